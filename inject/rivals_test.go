// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// rival is a template that wants values which others want, too. It may add something only if it is absent, so that its own
// additions make its condition false.
type rival struct {
	name   string
	spec   map[string]any
	label  string           // value of the label, or ""
	unless string           // condition of the entries and of the label
	adds   []map[string]any // the entries
	side   map[string]any   // its container, or nil
}

// unlessSet are conditions that a template may make false itself.
var unlessSet = map[string]string{
	"":                "true",
	"variable":        "!has(container.env) || !container.env.exists(e, e.name == 'A')",
	"securityContext": "!has(container.securityContext)",
	"resources":       "!has(container.resources) || (!has(container.resources.limits) && !has(container.resources.requests))",
}

func (w wishes) rival(name string, order int) *rival {
	r := &rival{name: name, unless: w.some("", "", "variable", "securityContext", "resources").(string)}
	add := w.maybe(map[string]any{
		"env":             []any{w.some(map[string]any{"name": "A", "value": w.some("1", "2")}, map[string]any{"name": "A"})},
		"ports":           []any{w.maybe(map[string]any{"name": w.some("a", "b")})},
		"securityContext": w.securityContext(),
		"resources":       w.resources(),
		"lifecycle":       map[string]any{"preStop": map[string]any{"httpGet": w.some(map[string]any{"port": 80}, map[string]any{"port": 80, "path": "/x"})}},
	})
	if ports, ok := add["ports"].([]any); ok {
		ports[0].(map[string]any)["containerPort"] = 80
	}
	if w.IntN(4) > 0 && len(add) > 0 {
		r.adds = append(r.adds, add)
	}
	if w.IntN(8) == 0 {
		r.adds = append(r.adds, map[string]any{"securityContext": map[string]any{"runAsUser": w.some(0, 5)}})
	}
	var entries []any
	for _, add := range r.adds {
		entries = append(entries, map[string]any{"where": unlessSet[r.unless], "add": add})
	}
	pod := map[string]any{}
	if w.IntN(2) == 0 {
		r.label = w.some("1", "2").(string)
		pod["metadata"] = map[string]any{"labels": map[string]any{"example.com/a": r.label}}
	}
	if w.IntN(3) == 0 {
		r.side = w.maybe(map[string]any{"args": []any{w.some("x", "y")}, "securityContext": map[string]any{"privileged": true}, "terminationMessagePath": "/dev/termination-log"})
		r.side["name"], r.side["image"] = "side", "s:1"
		pod["spec"] = map[string]any{"containers": []any{r.side}}
	}
	r.spec = map[string]any{"default": true, "required": w.IntN(2) == 0, "order": order, "labelDomains": []any{"example.com"}, "pod": pod}
	if len(entries) > 0 {
		r.spec["forEachContainer"] = entries
	}
	if r.label != "" && w.IntN(3) == 0 {
		r.spec["match"] = map[string]any{"condition": "!has(pod.metadata.labels) || !('example.com/a' in pod.metadata.labels)"}
	}
	return r
}

func (w wishes) securityContext() map[string]any {
	return w.maybe(map[string]any{"runAsUser": w.some(0, 5), "runAsNonRoot": true, "allowPrivilegeEscalation": false, "capabilities": map[string]any{"add": []any{w.some("SYS_ADMIN", "CHOWN")}}})
}

func (w wishes) resources() map[string]any {
	return w.maybe(map[string]any{"limits": map[string]any{"cpu": w.some("1", "2")}, "requests": map[string]any{"cpu": "1"}})
}

// TestRivals checks, for random templates that want different values in the same places, that each of them is added completely
// or not at all: each of its values is in the pod, or the pod came with something that stays instead. Every value that stays
// is said to be of the one who set it. A second run adds nothing, decides the same, and names the same owners.
func TestRivals(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range uint64(size.Choose(t, 1500, 60_000)) {
		tryRivals(t, seed, seen)
	}
	for _, what := range []string{"injected", "conflict", "unless variable", "unless securityContext", "unless resources", "left out", "kept", "flipped"} {
		if seen[what] < 20 {
			t.Errorf("%s: only %d times", what, seen[what])
		}
	}
	t.Log(seen)
}

func tryRivals(t *testing.T, seed uint64, seen map[string]int) {
	t.Helper()
	w := wishes{rand.New(rand.NewPCG(seed, 31))}
	var texts []string
	rivals := map[string]*rival{}
	var all []*templates.Template
	for i := range 2 + w.IntN(2) {
		r := w.rival(fmt.Sprint("t", i), i)
		text := encoded(t, map[string]any{"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "metadata": map[string]any{"name": r.name}, "spec": r.spec})
		found, problems := templates.Parse("t", []byte(text))
		if len(problems) > 0 {
			continue // some combinations are not valid
		}
		rivals[r.name], texts, all = r, append(texts, text), append(all, found...)
	}
	app := w.maybe(map[string]any{"env": []any{map[string]any{"name": "A", "value": w.some("1", "2")}}, "securityContext": w.securityContext(), "resources": w.resources()})
	if w.IntN(2) == 0 {
		app = map[string]any{}
	}
	app["name"], app["image"] = "app", "app:1"
	pod := map[string]any{"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"containers": []any{app}}}
	if w.IntN(4) == 0 {
		pod["metadata"].(map[string]any)["labels"] = map[string]any{"example.com/a": w.some("1", "2")}
	}
	var after []byte
	defer func() {
		if t.Failed() {
			t.Logf("seed %d\n%s\n---\n%s\n---\n%s", seed, strings.Join(texts, "\n---\n"), encoded(t, pod), after)
		}
	}()
	injector := inject.New(templates.NewSet(all))
	req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"}, Object: keptBy(t, []byte(encoded(t, pod)), true)}
	r, patched := checkInvariants(t, injector, req)
	after = patched
	original, final := decodeJSON(t, req.Object), decodeJSON(t, keptBy(t, after, true))
	req.Object = keptBy(t, after, true)
	again := mustInject(t, injector, req)
	verdict := mustJudge(t, inject.NewJudge(injector, nil, true), req)
	for i := range r.Decisions {
		var others []*rival
		for j := range r.Decisions {
			if r.Decisions[j].Code.Succeeded() && i != j {
				others = append(others, rivals[r.Decisions[j].Template])
			}
		}
		d, second := &r.Decisions[i], &again.Decisions[i]
		own := rivals[d.Template]
		seen[string(d.Code)]++
		if second.Code == inject.CodeConditionFalse && d.Code == inject.CodeInjected && own.spec["match"] != nil {
			seen["flipped"]++
			continue // its own label makes its condition false
		}
		if d.Code.Succeeded() != second.Code.Succeeded() || !d.Code.Succeeded() && d.Code != second.Code {
			t.Errorf("%s is %s (%s), and in a second run %s (%s)", d.Template, d.Code, d.Message, second.Code, second.Message)
		}
		if !d.Code.Succeeded() {
			continue
		}
		seen["unless "+own.unless]++
		for _, what := range own.lacks(t, original, final, others) {
			t.Errorf("%s is %s, and the pod lacks %s", d.Template, d.Code, what)
		}
		for k := range d.Kept {
			if kept := &d.Kept[k]; kept.By != "" {
				t.Errorf("%s is %s, although %s", d.Template, d.Code, encoded(t, kept))
			} else if kept.Beside != "" {
				seen["left out"]++
			} else {
				seen["kept"]++
			}
		}
		if theirs, ownersAgain := owners(d.Kept), owners(second.Kept); !reflect.DeepEqual(theirs, ownersAgain) && own.unless == "" {
			t.Errorf("%s keeps %v, and in a second run %v", d.Template, theirs, ownersAgain)
		}
		for j := range r.Decisions[:i] {
			if other := rivals[r.Decisions[j].Template]; r.Decisions[j].Code.Succeeded() && own.side != nil && other.side != nil && !sameSide(own.side, other.side) {
				t.Errorf("%s and %s have different containers, and both are in the pod", d.Template, other.name)
			}
		}
	}
	for _, f := range verdict.Judged {
		i := slices.IndexFunc(r.Decisions, func(d inject.Decision) bool { return d.Template == f.Template })
		if r.Decisions[i].Code.Succeeded() {
			t.Errorf("%s is injected, and then %s", f.Template, f.String())
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// owners returns the values that stay, with the owners, without their places: these may change by the injection.
func owners(all []inject.Kept) (texts []string) {
	for i := range all {
		texts = append(texts, fmt.Sprintf("%s of %q for %s beside %q", all[i].Pod, all[i].By, all[i].Template, all[i].Beside))
	}
	slices.Sort(texts)
	return texts
}

func sameSide(a, b map[string]any) bool {
	return reflect.DeepEqual(a["args"], b["args"]) && reflect.DeepEqual(a["securityContext"], b["securityContext"])
}

// lacks returns what the final pod lacks of a template that was added, and that nothing in the original pod explains.
func (r *rival) lacks(t *testing.T, original, final any, others []*rival) (all []string) {
	t.Helper()
	was, _ := at(original, "spec", "containers", 0).(map[string]any)
	is, _ := at(final, "spec", "containers", 0).(map[string]any)
	if label, _ := lookup(final, "/metadata/labels/example.com~1a"); r.label != "" && label != r.label {
		if own, _ := lookup(original, "/metadata/labels/example.com~1a"); own != label {
			all = append(all, fmt.Sprintf("the label %s: it is %v", r.label, label))
		}
	}
	for _, add := range r.adds {
		for _, want := range valuesIn(normal(t, add), "") {
			have, there := lookup(is, want.path)
			switch {
			case there && withoutDefaults(have) == withoutDefaults(want.value):
			case r.needsNot(was, others):
			case explains(was, want.path):
			default:
				all = append(all, fmt.Sprintf("%s %v: it is %v", want.path, want.value, have))
			}
		}
	}
	return all
}

// needsNot reports whether the condition of the entries is false because of the pod, or of another template.
func (r *rival) needsNot(was map[string]any, others []*rival) bool {
	field := map[string]string{"variable": "env", "securityContext": "securityContext", "resources": "resources"}[r.unless]
	own, _ := was[field].(map[string]any)
	return field != "" && (was[field] != nil && field != "resources" || len(own) > 0 || slices.ContainsFunc(others, func(other *rival) bool { return other.has(field) }))
}

func (r *rival) has(field string) bool {
	return slices.ContainsFunc(r.adds, func(add map[string]any) bool { return add[field] != nil })
}

// explains reports whether a container of the original pod has another value at a place, or one beside which the template's is not
// possible.
func explains(was map[string]any, path string) bool {
	has := func(path string) bool { _, ok := lookup(was, path); return ok }
	is := func(path string, value string) bool { v, ok := lookup(was, path); return ok && fmt.Sprint(v) == value }
	switch {
	case strings.HasPrefix(path, "/env"), strings.HasPrefix(path, "/ports"), strings.HasPrefix(path, "/lifecycle"):
		return has(path)
	case path == "/resources/limits/cpu", path == "/resources/requests/cpu":
		return has("/resources/limits/cpu") || has("/resources/requests/cpu")
	case path == "/securityContext/runAsNonRoot" && is("/securityContext/runAsUser", "0"):
		return true
	case path == "/securityContext/allowPrivilegeEscalation" && is("/securityContext/capabilities/add/0", "SYS_ADMIN"):
		return true
	}
	return has(path)
}

// withoutDefaults returns a value as a string, without what an API server sets in it by default.
func withoutDefaults(v any) string {
	of, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprint(v)
	}
	rest := map[string]string{}
	for name, value := range of {
		if text := withoutDefaults(value); text != "TCP" && text != "/" && text != "HTTP" {
			rest[name] = text
		}
	}
	return fmt.Sprint(rest)
}

type wanted struct {
	path  string
	value any
}

// valuesIn returns the values of an addition that are merged as a whole.
func valuesIn(add any, path string) (all []wanted) {
	of, ok := add.(map[string]any)
	if !ok || strings.HasSuffix(path, "/preStop") {
		if items, ok := add.([]any); ok && (path == "/env" || path == "/ports") {
			return []wanted{{path + "/0", items[0]}}
		}
		return []wanted{{path, add}}
	}
	for _, name := range sorted(of) {
		all = append(all, valuesIn(of[name], path+"/"+name)...)
	}
	return all
}
