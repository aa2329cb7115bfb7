// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// checkOwnWork checks that the validating webhook accepts the pods of the mutating webhook, and
// that a second run adds nothing. It checks three pods: the one in a file, the same as an API server
// stores it, and the one that an API server makes of it. A template that was skipped with a reason
// may be missing. It returns the decisions, the pod and the verdict.
func checkOwnWork(t testing.TB, injector *inject.Injector, pod []byte) (map[string]inject.Code, []byte, *inject.Verdict) {
	t.Helper()
	checkOwnWorkOn(t, injector, keptBy(t, pod, true), false)
	return checkOwnWorkOn(t, injector, pod, true)
}

func checkOwnWorkOn(t testing.TB, injector *inject.Injector, pod []byte, file bool) (map[string]inject.Code, []byte, *inject.Verdict) {
	t.Helper()
	req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: pod, File: file}
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]inject.Code{}
	for i := range r.Decisions {
		codes[r.Decisions[i].Template] = r.Decisions[i].Code
	}
	after := applyPatch(t, pod, r.Patch())
	checkOrder(t, injector.Set().Templates, pod, after)
	var verdict *inject.Verdict
	for _, req.Object = range [][]byte{keptBy(t, after, false), keptBy(t, after, true), after} {
		if req.File = len(req.Object) == len(after) && bytes.Equal(req.Object, after); req.File && !file {
			continue // an API server stores it at once
		}
		again, err := injector.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		if again.Adds() {
			t.Errorf("a second run adds %s", again.Patch())
		}
		if verdict, err = inject.NewJudge(injector, nil, true).Judge(req); err != nil {
			t.Fatal(err)
		}
		for i := range verdict.Judged {
			f := &verdict.Judged[i]
			if f.Code == inject.CodeUnknownParameter {
				continue // a mistake of the pod's author
			}
			switch codes[f.Template] {
			case inject.CodeConflict, inject.CodeRenderFailed, inject.CodeInvalidParameter, "":
			default:
				t.Errorf("%s, and the judge says: %s", codes[f.Template], f)
			}
		}
	}
	return codes, after, verdict
}

// checkUnrecorded checks that the judge has no finding about a template that is injected into a pod which does not record it,
// whatever containers the pod has.
func checkUnrecorded(t testing.TB, injector *inject.Injector, before, after []byte, decisions []inject.Decision) {
	t.Helper()
	verdict, err := inject.NewJudge(injector, nil, true).Judge(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: keptBy(t, after, true)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range verdict.Judged {
		f := &verdict.Judged[i]
		if f.Code != inject.CodeUnknownParameter && !bytes.Contains(before, []byte(f.Template+"."+templates.Domain+"/")) &&
			slices.ContainsFunc(decisions, func(d inject.Decision) bool { return d.Template == f.Template && d.Code == inject.CodeInjected }) {
			t.Errorf("injected, and the judge says: %s", f)
		}
	}
}

// checkNewFaults checks that an injection is never the reason for a finding of the judge. Only what another webhook changed before
// the injection may be one, and a template that could not be injected.
func checkNewFaults(t testing.TB, injector *inject.Injector, before, after []byte, decisions []inject.Decision) {
	t.Helper()
	judge := func(pod []byte) []inject.Finding {
		return mustJudge(t, inject.NewJudge(injector, nil, true), inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: keptBy(t, pod, true)}).Judged
	}
	old := judge(before)
	for _, f := range judge(after) {
		failed := slices.ContainsFunc(decisions, func(d inject.Decision) bool {
			return d.Template == f.Template && (d.Code.Failed() || d.Code == inject.CodeFellBack) // to one that may have failed
		})
		was := slices.ContainsFunc(old, func(was inject.Finding) bool { return was.Code == inject.CodeAltered && was.Template == f.Template })
		if f.Template != "" && f.Code != inject.CodeUnknownParameter && !failed && (f.Code != inject.CodeAltered || !was) {
			t.Errorf("only after the injection, the judge says: %s", &f)
		}
	}
}

// keptBy returns what an API server stores of a pod, with its feature gates off or on. Kubernetes' own
// types write the values, so that this does not depend on what the engine foresees of them.
func keptBy(t testing.TB, pod []byte, gates bool) []byte {
	t.Helper()
	parsed, err := jsontree.Parse(pod)
	if err != nil {
		t.Fatal(err)
	}
	server := schema.Server{File: true, OnHost: parsed.At("spec", "hostNetwork").Kind() == jsontree.True, DropsGated: !gates}
	all := schema.Pod().Foreseen(parsed, server)
	kept := all.AppendTo(nil)
	var full corev1.Pod
	if kjson.UnmarshalCaseSensitivePreserveInts(kept, &full) != nil {
		return kept // no API server has such a pod
	}
	for _, containers := range [][]corev1.Container{full.Spec.InitContainers, full.Spec.Containers} {
		for i := range containers {
			setDefaults(&containers[i], full.Spec.HostNetwork)
		}
	}
	text, err := json.Marshal(&full)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// setDefaults sets what Kubernetes derives from other fields, as SetDefaults_Pod and
// SetDefaults_ResourceList do.
func setDefaults(c *corev1.Container, onHost bool) {
	for name, limit := range c.Resources.Limits {
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		if _, ok := c.Resources.Requests[name]; !ok {
			c.Resources.Requests[name] = limit
		}
	}
	for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for name, q := range list {
			q.RoundUp(resource.Milli)
			list[name] = q
		}
	}
	for i := range c.Ports {
		if onHost && c.Ports[i].HostPort == 0 {
			c.Ports[i].HostPort = c.Ports[i].ContainerPort
		}
	}
}

// TestJudgeOwnWork checks the ways in which templates may read, or conflict with, additions of
// templates. Each template must be injected unless want has another code for it.
func TestJudgeOwnWork(t *testing.T) {
	t.Parallel()
	each := func(add string) string { return "required: true, forEachContainer: [{add: {" + add + "}}], " }
	const volume = "pod: {spec: {volumes: [{name: v, emptyDir: {}}]}}"
	marshal := func(what, other string) []string {
		args := "args: [\"${json.marshal(" + what + ")}\"]"
		return []string{"validate: {mode: Deny, protect: [args]}, match: {hostNetwork: true}, pod: {spec: {containers: [{name: side, image: s, " + args + "}]}}", other + ", match: {hostNetwork: true}"}
	}
	const side = "pod: {spec: {containers: [{name: side, image: s}]}}"
	const one = `{"name":"app","image":"a"}`
	for name, c := range map[string]struct {
		specs            []string
		containers, spec string // of the pod
		want             string
	}{
		"computed args":             {specs: []string{each(`env: [{name: A, value: "1"}]`) + `pod: {spec: {containers: [{name: side, image: s, args: ["${string(size(pod.spec.containers))}"]}]}}`}},
		"computed image, protected": {specs: []string{`validate: {mode: Deny, protect: [image]}, pod: {spec: {containers: [{name: side, image: "s:${string(size(pod.spec.containers))}"}]}}`}},
		"one name": {specs: []string{
			`required: true, pod: {spec: {containers: [{name: side, image: s, args: [a]}]}}`, "required: true, " + side,
		}, want: "conflict"},
		"a condition that it makes false": {specs: []string{
			each("volumeMounts: [{name: v, mountPath: /v}]") + volume,
			`required: true, match: {condition: "!pod.spec.containers.exists(c, c.name == 'k')"}, pod: {spec: {volumes: [{name: w, emptyDir: {}}], containers: [{name: k, image: s, volumeMounts: [{name: w, mountPath: /v}]}]}}`,
		}},
		"a computed volume": {specs: []string{
			`required: true, pod: {spec: {volumes: [{name: v, emptyDir: {sizeLimit: "${size(pod.spec.containers) == 1 ? '1Gi' : '2Gi'}"}}], containers: [{name: side, image: s, volumeMounts: [{name: v, mountPath: /v}]}]}}`,
		}},
		"a container of one of two lists": {specs: []string{
			`required: true, pod: {spec: {initContainers: [{"${when}": "size(pod.spec.containers) < 2", name: side, image: s, restartPolicy: Always}], containers: [{"${when}": "size(pod.spec.containers) > 1", name: side, image: s}]}}`,
			"required: true, order: -1, pod: {spec: {containers: [{name: k, image: s}]}}",
		}},
		"an expression that fails": {specs: []string{
			`required: true, pod: {spec: {containers: [{name: side, image: s, env: [{"${when}": "size(pod.spec.containers) > 1", name: X, value: "${pod.metadata.labels['app']}"}]}]}}`,
		}},
		"a chain with a computed volume": {specs: []string{
			`required: true, match: {condition: "pod.spec.volumes.exists(v, v.name == 'w')"}, pod: {spec: {volumes: [{name: v, configMap: {name: "c${string(size(pod.spec.containers))}"}}], containers: [{name: k, image: s}]}}`,
			"required: true, order: 2, pod: {spec: {volumes: [{name: w, emptyDir: {}}], containers: [{name: side, image: s}]}}",
		}},
		"a container that looks like the user's after its own additions": {specs: []string{
			`required: true, forEachContainer: [{add: {env: [{name: E1, value: "1"}], ports: [{containerPort: 91}]}}], pod: {spec: {volumes: [{name: v1, configMap: {name: "c${string(size(pod.spec.containers))}"}}], initContainers: [{name: l1, image: s}]}}`,
			`required: true, order: 1, pod: {spec: {volumes: [{name: v2, emptyDir: {}}], containers: [{name: k2, image: "v${string(size(pod.spec.volumes))}"}]}}`,
		}, want: "render_failed"},
		"a mount that another template moves": {specs: []string{
			`params: [{name: l, type: list, default: "a,b"}], validate: {protect: [image]}, pod: {spec: {volumes: [{name: v0}], containers: [{"${forEach}": {m: "params.l"}, name: "k0-${m}", image: "${pod.spec.volumes.exists(v, has(v.emptyDir.sizeLimit)) ? 'y' : 'n'}"}]}}`,
			`validate: {protect: [all]}, pod: {metadata: {annotations: {x.example/t2: "v${string(size(pod.spec.volumes))}"}}, spec: {volumes: [{name: v2, emptyDir: {sizeLimit: "01.50"}}], initContainers: [{"${when}": "pod.metadata.annotations.exists(k, k.startsWith('x'))", name: k2, image: s, volumeMounts: [{name: v2, mountPath: "/w0-${string(size(pod.spec.volumes))}"}]}]}}`,
		}},
		"an addition that makes a later template fail": {specs: []string{
			volume,
			"order: 1, " + `forEachContainer: [{where: "pod.spec.volumes.exists(v, v.name == 'v')", add: {env: [{name: A, value: "${pod.metadata.labels['x']}"}]}}], ` + side,
		}, want: "render_failed"},
		"the cost limit": {specs: []string{
			`required: true, match: {condition: "pod.spec.volumes.all(v, pod.spec.volumes.exists(w, w.name == v.name))"}, pod: {spec: {volumes: [{name: zz, emptyDir: {}}], containers: [{name: side, image: s}]}}`,
		}, spec: `"volumes":[` + list(147, `{"name":"v%d","emptyDir":{}}`) + `]`, want: "render_failed"},
		"1,000 variables": {specs: []string{
			each(`env: [{name: A, value: "${string(size(container.env) < 2)}"}, {name: B, value: "${container.env.exists(e, e.name == 'x') ? 'y' : 'n'}"}]`) + side,
		}, containers: `{"name":"app","image":"a","env":[` + list(1000, `{"name":"E%d","value":"x"}`) + `]}`, want: "render_failed"},
		"1,000 volumes": {specs: []string{
			`required: true, match: {condition: "size(pod.spec.volumes) != 3"}, ` + volume,
		}, spec: `"volumes":[` + list(1000, `{"name":"v%d","emptyDir":{}}`) + `]`, want: "render_failed"},
		"500 containers": {specs: []string{each("env: [{name: A, value: b}]") + side}, containers: list(500, `{"name":"c%d","image":"a"}`)},
		"a volume without a source": {specs: []string{
			"required: true, pod: {spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: side, image: s, volumeMounts: [{name: v, mountPath: /v}]}]}}",
		}, spec: `"volumes":[{"name":"v"}]`},
		"quantities":                   {specs: marshal("pod.spec.containers[0].resources", `required: true, forEachContainer: [{add: {resources: {requests: {cpu: "0.5", memory: "1024Mi"}}}}]`)},
		"a user's quantities":          {specs: marshal("pod.spec.containers.map(c, c.resources)", "order: 1, "+volume), containers: one + `,{"name":"b","image":"b","resources":{"limits":{"cpu":0.0005,"memory":"0.5Gi"}}}`},
		"requests from limits":         {specs: marshal("pod.spec.containers[0].resources", `required: true, forEachContainer: [{add: {resources: {limits: {cpu: "2000m"}}}}]`)},
		"the size of a volume":         {specs: marshal("pod.spec.volumes", `required: true, pod: {spec: {volumes: [{name: v, emptyDir: {sizeLimit: "0.5Gi"}}]}}`)},
		"a field behind a gate":        {specs: marshal("pod.spec.volumes", `required: true, pod: {spec: {volumes: [{name: v, emptyDir: {mode: 511}}]}}`)},
		"a user's field behind a gate": {specs: marshal("pod.spec.containers", "order: 1, "+volume), containers: `{"name":"app","image":"a","lifecycle":{"stopSignal":"SIGTERM"}}`},
		"has a field behind a gate":    {specs: []string{"match: {hostNetwork: true, condition: 'pod.spec.containers.exists(c, has(c.lifecycle))'}, " + side}, containers: `{"name":"app","image":"a","lifecycle":{"stopSignal":"SIGTERM"}}`, want: "condition_false"},
		"a divisor":                    {specs: marshal("pod.spec.containers[0].env", `required: true, forEachContainer: [{add: {env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "1000m"}}}]}}]`)},
		"ports on the node's network":  {specs: marshal("pod.spec.containers[0].ports", "required: true, order: 2, forEachContainer: [{add: {ports: [{containerPort: 8080}]}}]"), spec: `"hostNetwork":true`},
		"a condition on a quantity":    {specs: []string{"required: true, match: {condition: \"string(pod.spec.containers[0].resources.limits['cpu']) == '2'\"}, " + side}, containers: `{"name":"app","image":"a","resources":{"limits":{"cpu":2}}}`},
		"a hook and a negative period": {specs: []string{"forEachContainer: [{add: {lifecycle: {preStop: {sleep: {seconds: 1}}}}}]"}, spec: `"terminationGracePeriodSeconds":-1`},
		"a field that a gate drops, in one of two volumes": {specs: []string{
			"required: true, pod: {spec: {volumes: [{name: v, emptyDir: {mode: 511}}]}}",
			"required: true, pod: {spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: side, image: s}]}}",
		}},
	} {
		containers := c.containers
		if containers == "" {
			containers = one
		}
		spec := c.spec
		if spec != "" {
			spec = "," + spec
		}
		codes, _, _ := checkOwnWork(t, withSpecs(t, c.specs...), []byte(`{"metadata":{"name":"web"},"spec":{"containers":[`+containers+`]`+spec+`}}`))
		var other []string
		for _, template := range sorted(codes) {
			if codes[template] != inject.CodeInjected {
				other = append(other, string(codes[template]))
			}
		}
		if strings.Join(other, " ") != c.want {
			t.Errorf("%s: %v, want %q", name, codes, c.want)
		}
		if t.Failed() {
			t.Log(name)
		}
	}
}

// TestLooksAreBounded uses templates that add without end, each only if the earlier ones were left
// out. After any number of rounds, every template has a decision.
func TestLooksAreBounded(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		var specs []string
		for i := range n {
			specs = append(specs, fmt.Sprintf(`required: true, order: %d, forEachContainer: [{where: "!pod.spec.volumes.exists(v, v.name == 'v%d')", `+
				`add: {env: [{name: "T%d${string(size(container.env))}", value: x}]}}], pod: {spec: {volumes: [{name: v%d, emptyDir: {}}]}}`, i, i-1, i, i))
		}
		codes, _, _ := checkOwnWork(t, withSpecs(t, specs...), []byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"a"}]}}`))
		if len(codes) != n {
			t.Errorf("%d templates have %d decisions: %v", n, len(codes), codes)
		}
	}
}

// TestProtectedCustomized checks a user's container that differs from a protected field. It is a
// conflict, and both webhooks agree. A pod that follows the advice in the reason passes.
func TestProtectedCustomized(t *testing.T) {
	t.Parallel()
	injector := withSpecs(t, "required: true, pod: {spec: {containers: [{name: side, image: s, securityContext: {privileged: true}}]}}")
	for own, want := range map[string]string{
		`"image":"s","securityContext":{"privileged":true}`:                                                 "",
		`"image":"s","securityContext":{"privileged":true},"terminationMessagePath":"/dev/termination-log"`: "",
		`"image":"s","securityContext":{"privileged":true},"command":["sleep"]`:                             `the pod's container side has ["sleep"] at spec.containers[1].command, which the template protects; remove it, or remove the container`,
		`"workingDir":"/x"`:                 `spec.containers[1].workingDir, which the template protects; remove it`,
		`"image":"evil"`:                    `has "evil" at spec.containers[1].image, which the template protects; make it "s"`,
		`"securityContext":{"runAsUser":1}`: `spec.containers[1].securityContext.runAsUser, which the template protects; remove it`,
	} {
		for _, annotations := range []string{`{"t0.pillion.dev/customize":"true"}`, `{}`} {
			if annotations == "{}" && !strings.Contains(own, `"image":"s"`) {
				continue // the name is in use
			}
			pod := []byte(`{"metadata":{"name":"web","annotations":` + annotations + `},"spec":{"containers":[{"name":"app","image":"a"},{"name":"side",` + own + `}]}}`)
			codes, _, verdict := checkOwnWork(t, injector, pod)
			switch {
			case want == "" && (codes["t0"] != inject.CodeInjected || verdict.Denied):
				t.Errorf("%s: %s %v", own, codes["t0"], verdict.Judged)
			case want != "" && (codes["t0"] != inject.CodeConflict || !verdict.Denied || !strings.Contains(verdict.Judged[0].Message, want)):
				t.Errorf("%s: %s %v", own, codes["t0"], verdict.Judged)
			}
		}
	}
}

// TestOwnWork is TestJudgeOwnWork for random sets of templates and pods. It also checks that damage is found, and that the
// invariants hold for a second call after another webhook has changed the pod, and that the judge has no finding about what
// only that call injects.
func TestOwnWork(t *testing.T) {
	t.Parallel()
	count, tried := size.Choose(t, 120, 400), tally{}
	for seed := range uint64(count) {
		tryOwnWork(t, seed, 3, tried)
	}
	t.Logf("%v", tried)
	least := func(of int) int { return of * count / 400 }
	if tried[inject.CodeInjected] < least(300) || tried["damaged"] < least(100) || tried[inject.CodeConflict] < least(5) || tried[inject.CodeConditionFalse] < least(20) ||
		tried["again"] < least(50) || tried[inject.CodeReplaced] < least(20) || tried[inject.CodeFellBack] < least(10) || tried[inject.CodeNotInShare] < least(20) {
		t.Errorf("too little was tried: %v", tried)
	}
}

// FuzzOwnWork is TestOwnWork for any seed.
func FuzzOwnWork(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, seed+100)
	}
	f.Fuzz(func(t *testing.T, seed, stream uint64) { tryOwnWork(t, seed, stream, tally{}) })
}

var conditional = regexp.MustCompile(`"\$\{when\}": "[^"]*", ("\$\{forEach\}": \{m: "[^"]*"\}, )?name: "?k`)

type tally map[inject.Code]int

func tryOwnWork(t *testing.T, seed, stream uint64, tried tally) {
	t.Helper()
	g := reviews.NewSets(seed, stream)
	tryOwnWorkOf(t, g, g.Documents(shopNamespace().Name, g.Template), tried)
	if t.Failed() {
		t.Fatalf("seed %d, stream %d", seed, stream)
	}
}

func tryOwnWorkOf(t *testing.T, g *reviews.Sets, documents []string, tried tally) {
	t.Helper()
	var all []*templates.Template
	written := map[string]string{}
	for _, document := range documents {
		found, problems := templates.Parse("t", []byte(document))
		if len(problems) > 0 {
			tried["not loaded"]++
			continue
		}
		all, written[found[0].Name] = append(all, found...), document
	}
	pod := g.Pod(!conditional.MatchString(strings.Join(documents, "")))
	injector := injectorOf(all)
	codes, after, verdict := checkOwnWork(t, injector, []byte(pod))
	for _, code := range codes {
		tried[code]++
	}
	for _, template := range injector.Set().Templates {
		i := slices.IndexFunc(verdict.Decisions, func(d inject.Decision) bool { return d.Template == template.Name })
		// A conditional container is not missing if the condition is false by now.
		if d := &verdict.Decisions[i]; d.Mode == v1alpha1.Deny && d.Code == inject.CodePresent && codes[d.Template] == inject.CodeInjected && !conditional.MatchString(written[d.Template]) {
			tried["damaged"] += checkDamage(t, injector, template, after)
		}
	}
	for range 3 {
		if checkMeddled(t, g, injector, after) {
			tried["again"]++
		}
		if t.Failed() {
			break
		}
	}
	if t.Failed() {
		t.Fatalf("%s\n%s\n%s", strings.Join(documents, "\n"), pod, after)
	}
}

// checkMeddled lets another webhook change an injected pod, and checks a second call. It reports whether that adds something.
func checkMeddled(t *testing.T, g *reviews.Sets, injector *inject.Injector, after []byte) (adds bool) {
	t.Helper()
	changed, _ := g.Meddle(keptBy(t, after, true))
	changed = keptBy(t, changed, true) // API servers set defaults after each webhook
	r, again := checkInvariants(t, injector, inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: changed})
	checkUnrecorded(t, injector, changed, again, r.Decisions)
	checkNewFaults(t, injector, changed, again, r.Decisions)
	if t.Failed() {
		t.Logf("another webhook made: %s", changed)
	}
	return r.Adds()
}

// TestLostRecord checks pods in which another webhook removed or changed one record between two calls of Pillion. The second
// call may see containers of the template that it did not see before, and templates may add what these need. When it has written
// the record again, they must still be right.
func TestLostRecord(t *testing.T) {
	t.Parallel()
	const names = `pod: {spec: {containers: [{name: k, image: s, env: [{"${forEach}": {c: "pod.spec.containers.map(c, c.name)"}, name: "E-${c}", value: x}]}]}}`
	const counts = `pod: {spec: {containers: [{name: k, image: s, env: [{name: E, value: "${string(size(pod.spec.containers))}"}]}]}}`
	const ports = `pod: {spec: {containers: [{name: k, image: s, ports: [{"${forEach}": {i: "lists.range(size(pod.spec.containers))"}, containerPort: "${8000 + i}"}]}]}}`
	for _, reads := range []string{names, counts, ports} {
		for _, protect := range []string{"all", "env", "ports", "image, env, ports"} {
			for _, order := range []string{"-1", "1"} {
				injector := withSpecs(t, "validate: {mode: Deny, protect: ["+protect+"]}, "+reads, "required: true, order: "+order+", pod: {spec: {containers: [{name: l, image: s}]}}")
				_, after, _ := checkOwnWork(t, injector, []byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"a"}]}}`))
				if checkLostRecords(t, injector, keptBy(t, after, true)); t.Failed() {
					t.Fatalf("protect %s, order %s: %s", protect, order, reads)
				}
			}
		}
	}
	lost, count := 0, size.Choose(t, 40, 1500)
	for seed := range uint64(count) {
		g := reviews.NewSets(seed, 9)
		var all []*templates.Template
		for _, document := range g.Documents(shopNamespace().Name, g.Template) {
			found, _ := templates.Parse("t", []byte(document))
			all = append(all, found...)
		}
		injector, pod := injectorOf(all), keptBy(t, []byte(g.Pod(true)), true)
		r, err := injector.Inject(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: pod})
		if err != nil {
			t.Fatal(err)
		}
		if lost += checkLostRecords(t, injector, keptBy(t, applyPatch(t, pod, r.Patch()), true)); t.Failed() {
			t.Fatalf("seed %d: %s", seed, pod)
		}
	}
	t.Logf("%d records", lost)
	if lost < count/2 {
		t.Errorf("only %d records were lost", lost)
	}
}

// checkLostRecords removes and changes each record of a pod, one at a time. It returns the number of records.
func checkLostRecords(t testing.TB, injector *inject.Injector, pod []byte) (n int) {
	t.Helper()
	for key := range inject.InjectedBy(pod) {
		n++
		for _, instead := range []any{nil, "", "0123456789ab"} {
			doc := decodeJSON(t, pod).(map[string]any)
			annotations := doc["metadata"].(map[string]any)["annotations"].(map[string]any)
			if annotations[key+".pillion.dev/injected"] = instead; instead == nil {
				delete(annotations, key+".pillion.dev/injected")
			}
			changed, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			r, err := injector.Inject(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: changed})
			if err != nil {
				t.Fatal(err)
			}
			after := keptBy(t, applyPatch(t, changed, r.Patch()), true)
			again, err := injector.Inject(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: after})
			if err != nil {
				t.Fatal(err)
			}
			if again.Adds() {
				t.Errorf("another run adds %s", again.Patch())
			}
			if checkNewFaults(t, injector, changed, after, r.Decisions); t.Failed() {
				t.Fatalf("the record of %s is %v: %s", key, instead, changed)
			}
		}
	}
	return n
}
