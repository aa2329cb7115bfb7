// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestForgedBeside checks that the true record of one template proves nothing about another one
// with the same container.
func TestForgedBeside(t *testing.T) {
	t.Parallel()
	injector := withSpecs(t,
		`required: true, validate: {mode: Deny, protect: [all]}, pod: {spec: {containers: [{name: k, image: s, args: [secure]}]}}`,
		`order: 1, validate: {mode: Warn, protect: [image]}, pod: {spec: {volumes: [{name: v, configMap: {name: "c${string(size(pod.spec.containers))}"}}], containers: [{name: k, image: s}]}}`)
	all := injector.Set().Templates
	for _, record := range []string{"", `"t0.pillion.dev/injected":"zzz",`, `"t0.pillion.dev/injected":"` + all[0].Revision + `",`} {
		for _, volume := range []string{"c1", "c2", "c3"} {
			pod := fmt.Sprintf(`{"metadata":{"annotations":{%s"t1.pillion.dev/injected":%q}},"spec":{"containers":[{"name":"app","image":"a"},`+
				`{"name":"k","image":"s","args":["secure"],"command":["sleep"]}],"volumes":[{"name":"v","configMap":{"name":%q}}]}}`, record, all[1].Revision, volume)
			v := mustJudge(t, inject.NewJudge(injector, nil, true), inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"}, Object: []byte(pod)})
			if !v.Denied {
				t.Errorf("with the record %s and the volume %s, a command in a protected container passes: %v", record, volume, v.Judged)
			}
		}
	}
}

// TestForgedContainer checks that an annotation cannot hide a container from the condition of a
// required template.
func TestForgedContainer(t *testing.T) {
	t.Parallel()
	injector := withSpecs(t,
		`required: true, match: {condition: "pod.spec.containers.exists(c, c.image.startsWith('legacy/'))"}, pod: {spec: {containers: [{name: guard, image: g}]}}`,
		`pod: {spec: {containers: [{name: plain, image: p}]}}`,
		`params: [{name: v, type: string, default: "1"}], pod: {spec: {containers: [{name: computed, image: "c:${params.v}"}]}}`)
	for _, name := range []string{"app", "plain", "computed", "guard"} {
		for _, annotation := range []string{"injected", "customize"} {
			var all []string
			for i := range 3 {
				all = append(all, fmt.Sprintf(`"t%d.pillion.dev/%s":"true"`, i, annotation))
			}
			pod := fmt.Sprintf(`{"metadata":{"annotations":{%s}},"spec":{"containers":[{"name":"web","image":"a"},{"name":%q,"image":"legacy/x"}]}}`, strings.Join(all, ","), name)
			r, err := injector.Inject(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"}, Object: []byte(pod)})
			if err != nil {
				t.Fatal(err)
			}
			if r.Decisions[0].Code == inject.CodeConditionFalse {
				t.Errorf("the condition does not see a container named %s with the annotation %s", name, annotation)
			}
		}
	}
}

// TestForgedComputed checks that no annotation hides a container from a required template, if a
// template with computed names and values could have brought it.
func TestForgedComputed(t *testing.T) {
	t.Parallel()
	const loop = `params: [{name: c, default: x}], pod: {spec: {containers: [{"${forEach}": {m: "params.c.split(',')"}, name: "c-${m}", image: busybox, args: ["${m}"]}]}}`
	const image = `params: [{name: c, default: x}], pod: {spec: {containers: [{name: c-evil, image: "${params.c}"}]}}`
	for _, of := range []string{loop, image, "required: true, " + loop, "required: true, " + image} {
		injector := withSpecs(t, of, required())
		for _, annotations := range forgeries(1) {
			for _, evil := range []string{
				`{"name":"c-evil","image":"busybox","args":["sh -c evil"],"securityContext":{"privileged":true}}`,
				`{"name":"c-x","image":"busybox","args":["x"],"securityContext":{"privileged":true}}`,
				`{"name":"c-evil","image":"x","securityContext":{"privileged":true}}`,
			} {
				checkSeen(t, injector, fmt.Sprintf(`{"metadata":{"annotations":%s},"spec":{"containers":[%s]}}`, annotations, evil))
				checkSeen(t, injector, fmt.Sprintf(`{"metadata":{"annotations":%s},"spec":{"containers":[{"name":"app","image":"a"},%s]}}`, annotations, evil))
			}
		}
	}
}

// TestForgedFromItself checks that containers of the user's with the names of templates are not right
// only because the templates copied from them, or from each other's.
func TestForgedFromItself(t *testing.T) {
	t.Parallel()
	const copies = `required: true, pod: {spec: {containers: [{name: k%d, image: s, securityContext: "${pod.spec.containers.filter(c, has(c.securityContext))[?0].?securityContext}"}]}}`
	const forged = `,{"name":"k%d","image":"s","securityContext":{"privileged":true}}`
	for n := 1; n <= 2; n++ {
		var specs []string
		containers := `{"name":"app","image":"a"}`
		for i := range n {
			specs, containers = append(specs, fmt.Sprintf(copies, i)), containers+fmt.Sprintf(forged, i)
		}
		injector := withSpecs(t, append(specs, "order: 9, "+required())...)
		for _, annotations := range append(forgeries(n), "{}") {
			checkSeen(t, injector, `{"metadata":{"annotations":`+annotations+`},"spec":{"containers":[`+containers+`]}}`)
		}
	}
}

// TestLeftOutContainer checks that a container in the pod of a template that is left out is the user's
// for required templates if additions change what the template would render.
func TestLeftOutContainer(t *testing.T) {
	t.Parallel()
	const side = `, pod: {spec: {containers: [{name: k, image: s, args: ["v${string(size(pod.spec.volumes))}"]}]}}`
	for _, each := range []string{
		`forEachContainer: [{add: {env: [{name: "A${string(size(container.env))}", value: x}]}}]`,
		`forEachContainer: [{add: {env: [{name: "A", value: "x${pod.spec.volumes.size() > 0 ? pod.metadata.labels['app'] : ''}"}]}}]`,
	} {
		for _, order := range []string{"1", "-1"} {
			injector := withSpecs(t, each+side, `order: `+order+`, required: true, forEachContainer: [{add: {env: [{name: B, value: c}]}}], pod: {spec: {volumes: [{name: v, emptyDir: {}}]}}`)
			checkOwnWork(t, injector, []byte(`{"metadata":{"name":"web","annotations":{"t0.pillion.dev/injected":"`+injector.Set().Templates[0].Revision+`"}},"spec":{"containers":[{"name":"app","image":"a"},{"name":"k","image":"s","args":["v0"]}]}}`))
		}
	}
}

// TestForgedRandom is TestForgedComputed for random sets of templates and pods.
func TestForgedRandom(t *testing.T) {
	t.Parallel()
	seen, count := 0, size.Choose(t, 40, 100)
	for seed := range uint64(count) {
		g := reviews.NewSets(seed, 17)
		var specs []string
		for i := range 1 + g.IntN(3) {
			specs = append(specs, g.Template(i))
		}
		seen += tryForged(t, g, specs)
		if len(specs) > 1 && !t.Failed() {
			tryForged(t, g, reviews.Replacing(specs, 0, seed))
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("injected %d times", seen)
	if seen < 3*count/2 {
		t.Errorf("injected only %d times", seen)
	}
}

// tryForged tries a random pod with a container that looks like one of the templates', beside a required template.
func tryForged(t *testing.T, g *reviews.Sets, specs []string) (seen int) {
	t.Helper()
	all, documents := []*templates.Template{}, ""
	for i, spec := range specs {
		document := fmt.Sprintf("{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t%d}, spec: {%s}}", i, spec)
		found, _ := templates.Parse("t", []byte(document))
		all, documents = append(all, found...), documents+"---\n"+document+"\n"
	}
	last, problems := templates.Parse("t", []byte("{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: last}, spec: {order: 9, "+required()+"}}"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	injector := inject.New(templates.NewSet(append(all, last...)))
	forged := forgeries(3)
	pod := g.Pod(true)
	name := []string{"k0", "k1", "l0", "k0-a", "k1-d"}[g.IntN(5)]
	evil := fmt.Sprintf(`{"name":%q,"image":%q,"securityContext":{"privileged":true}}`, name, []string{"s", "fix", "evil"}[g.IntN(3)])
	for _, list := range []string{"containers", "initContainers"} {
		doc := decodeJSON(t, []byte(pod)).(map[string]any)
		spec := doc["spec"].(map[string]any)
		for _, field := range []string{"hostNetwork", "os", "nodeSelector"} { // the required template leaves such pods out
			delete(spec, field)
		}
		for _, other := range []string{"containers", "initContainers"} {
			old, _ := spec[other].([]any)
			spec[other] = slices.DeleteFunc(old, func(c any) bool { return c.(map[string]any)["name"] == name })
		}
		spec[list] = append(spec[list].([]any), decodeJSON(t, []byte(evil)))
		doc["metadata"] = map[string]any{"annotations": decodeJSON(t, []byte(forged[g.IntN(len(forged))]))}
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if checkSeen(t, injector, string(text)) {
			seen++
		}
		if t.Failed() {
			t.Log(documents)
			return seen
		}
	}
	return seen
}

// TestOthersAdditions checks that containers of templates stay hidden from required templates if
// another webhook, which runs later, adds to all containers.
func TestOthersAdditions(t *testing.T) {
	t.Parallel()
	injector := withSpecs(t,
		`params: [{name: c, default: x}], pod: {spec: {containers: [{name: side, image: "${params.c}", env: [{name: A, value: b}], securityContext: {capabilities: {drop: [ALL]}}}]}}`,
		`required: true, match: {condition: "size(pod.spec.containers) == 1"}, forEachContainer: [{add: {env: [{name: B, value: c}]}}]`)
	for added, exposed := range map[string]bool{
		`"env":[{"name":"Z","value":"z"}]`:               false,
		`"volumeMounts":[{"name":"z","mountPath":"/z"}]`: false,
		`"resources":{"limits":{"cpu":"1"}}`:             false,
		`"securityContext":{"allowPrivilegeEscalation":false,"runAsNonRoot":true,"runAsUser":7,"seccompProfile":{"type":"RuntimeDefault"}}`: false,
		`"securityContext":{"privileged":true}`:                      true,
		`"securityContext":{"runAsUser":0}`:                          true,
		`"securityContext":{"seccompProfile":{"type":"Unconfined"}}`: true,
		`"lifecycle":{"postStart":{"exec":{"command":["sh"]}}}`:      true,
		`"command":["sh"]`: true,
		`"image":"evil"`:   true,
	} {
		req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: []byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"a"}]}}`)}
		r, err := injector.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		doc := decodeJSON(t, applyPatch(t, req.Object, r.Patch())).(map[string]any)
		for _, c := range doc["spec"].(map[string]any)["containers"].([]any) {
			for name, value := range decodeJSON(t, []byte("{"+added+"}")).(map[string]any) {
				c := c.(map[string]any)
				switch old := c[name].(type) {
				case []any:
					c[name] = append(old, value.([]any)...)
				case map[string]any:
					maps.Copy(old, value.(map[string]any))
				default:
					c[name] = value
				}
			}
		}
		if req.Object, err = json.Marshal(doc); err != nil {
			t.Fatal(err)
		}
		again, err := injector.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		if hidden := again.Decisions[1].Code == inject.CodePresent; hidden == exposed {
			t.Errorf("with %s: %s", added, again.Decisions[1].Code)
		}
	}
}

// required returns the spec of a template for pods with a privileged container.
func required() string {
	const privileged = "c.?securityContext.?privileged.orValue(false)"
	return `required: true, match: {condition: "pod.spec.containers.exists(c, ` + privileged + `) || pod.spec.initContainers.exists(c, ` + privileged + `)"}, ` +
		`forEachContainer: [{where: "container.?securityContext.?privileged.orValue(false)", initContainers: true, add: {env: [{name: SEEN, value: "${container.name}"}]}}], ` +
		`pod: {metadata: {annotations: {x.example/seen: "${(pod.spec.initContainers + pod.spec.containers).filter(c, ` + privileged + `).map(c, c.name).join(',')}"}}}`
}

// forgeries returns annotations with which an author may claim containers for the first templates, or
// opt out of these templates.
func forgeries(n int) (all []string) {
	for _, value := range []string{"injected", "customize", "both"} {
		for _, wants := range []string{"", "-", "+"} {
			annotations, names := map[string]string{}, []string(nil)
			for i := range n {
				for _, key := range []string{"injected", "customize"} {
					if value == key || value == "both" {
						annotations[fmt.Sprintf("t%d.pillion.dev/%s", i, key)] = "true"
					}
				}
				names = append(names, fmt.Sprintf("%st%d", wants, i))
			}
			if wants != "" {
				annotations[inject.AnnotationTemplates] = strings.Join(names, ",")
			}
			text, _ := json.Marshal(annotations)
			all = append(all, string(text))
		}
	}
	return all
}

// checkSeen checks that the last template of a set sees the pod's privileged container, and that
// both webhooks agree. It reports whether the template is injected.
func checkSeen(t *testing.T, injector *inject.Injector, pod string) (injected bool) {
	t.Helper()
	set := injector.Set().Templates
	last := set[len(set)-1].Name
	req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: keptBy(t, []byte(pod), true)}
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	code := r.Decisions[len(set)-1].Code
	after := applyPatch(t, req.Object, r.Patch())
	switch code {
	case inject.CodeInjected:
		if !strings.Contains(string(after), `"SEEN"`) || !strings.Contains(string(after), `"x.example/seen":"`) {
			t.Errorf("%s sees nothing", last)
		}
	case inject.CodeConflict, inject.CodeRenderFailed: // denied
	default:
		t.Errorf("%s: %s", last, code)
	}
	req.Object = keptBy(t, after, true)
	again, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	if again.Adds() {
		t.Errorf("a second run adds %s", again.Patch())
	}
	for _, f := range mustJudge(t, inject.NewJudge(injector, nil, true), req).Judged {
		if f.Template == last && code == inject.CodeInjected {
			t.Errorf("the judge says: %s", f.String())
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s", pod, after)
	}
	return code == inject.CodeInjected
}

// TestForgedCost checks that forged records of all templates cause only a bounded number of
// injections, for any number of sets.
func TestForgedCost(t *testing.T) {
	const specs, sets = 10, 8
	request := func(injector *inject.Injector, volumes int, forged bool) inject.Request {
		var records, items []string
		for _, x := range injector.Set().Templates {
			records = append(records, fmt.Sprintf(`"%s.pillion.dev/customize":"true"`, x.Name))
			if forged {
				records = append(records, fmt.Sprintf(`"%s.pillion.dev/injected":%q`, x.Name, x.Revision))
			}
		}
		for i := range volumes {
			items = append(items, fmt.Sprintf(`{"name":"v%d","emptyDir":{}}`, i))
		}
		pod := fmt.Sprintf(`{"metadata":{"annotations":{%s}},"spec":{"containers":[{"name":"app","image":"a"}],"volumes":[%s]}}`, strings.Join(records, ","), strings.Join(items, ","))
		return inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop"}, Object: []byte(pod)}
	}
	var all []string
	for i := range specs {
		all = append(all, fmt.Sprintf(`required: true, match: {condition: "pod.spec.volumes.all(v, pod.spec.volumes.exists(w, w.name == v.name))"}, validate: {mode: Deny, protect: [all]}, pod: {spec: {containers: [{name: k%d, image: s}]}}`, i))
	}
	injector := withSpecs(t, all...)
	superseded := make([]*inject.Injector, sets-1)
	for i := range superseded {
		superseded[i] = withSpecs(t, all...)
	}
	judge := inject.NewJudge(injector, superseded, true)
	for _, volumes := range []int{10, 100, 20_000} {
		cost := func(forged bool) float64 {
			req := request(injector, volumes, forged)
			return testing.AllocsPerRun(1, func() { mustJudge(t, judge, req) })
		}
		honest, forged := cost(false), cost(true)
		t.Logf("%d volumes: %.0f allocations, with forged records %.0f", volumes, honest, forged)
		if forged > 2*honest+1_000 {
			t.Errorf("%d volumes: forged records cost %.0f allocations, beside %.0f without", volumes, forged, honest)
		}
	}
}

// TestForgedCopied checks two kinds of containers that a template brings and that differ because the
// template sees a container of the user's with the name of another template: the required template
// does not take them for the user's.
func TestForgedCopied(t *testing.T) {
	t.Parallel()
	const other = `pod: {spec: {containers: [{name: k, image: s}]}}`
	for _, c := range []struct{ brings, user string }{
		{`containers: [{name: l, image: s, securityContext: "${pod.spec.containers.filter(c, has(c.securityContext))[?0].?securityContext}"}]`, `"image":"s","securityContext":{"privileged":true}`},
		{`containers: [{"${forEach}": {m: "pod.spec.containers.map(c, c.name)"}, name: "l-${m}", image: s}]`, `"image":"evil","securityContext":{"privileged":true}`},
	} {
		injector := withSpecs(t, other, `required: true, pod: {spec: {`+c.brings+`}}`, "order: 9, "+required())
		for _, annotations := range forgeries(1) {
			if !checkSeen(t, injector, `{"metadata":{"annotations":`+annotations+`},"spec":{"containers":[{"name":"app","image":"a"},{"name":"k",`+c.user+`}]}}`) {
				t.Errorf("%s: not injected", c.brings)
			}
		}
	}
}
