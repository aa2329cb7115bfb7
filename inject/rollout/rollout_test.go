// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func injector(t *testing.T, text []byte) *inject.Injector {
	t.Helper()
	set, err := templates.Load(templates.Source{Name: "templates.yaml", Data: text})
	must(t, err)
	return inject.New(set)
}

func toJSON(t *testing.T, text []byte) []byte {
	t.Helper()
	out, err := yaml.YAMLToJSON(text)
	must(t, err)
	return out
}

func namespace() request.Namespace {
	return request.Namespace{Name: "shop", Labels: map[string]string{"pillion.dev/inject": "enabled"}, Known: true}
}

const created = "2026-01-02T03:04:05Z"

// create returns a running pod as the API server stores it. Its controller has created it.
func create(t *testing.T, i *inject.Injector, pod []byte) []byte {
	t.Helper()
	r, err := i.Inject(inject.Request{Operation: "CREATE", Namespace: namespace(), Object: pod, OptedIn: true})
	must(t, err)
	stored, err := schema.AsStored(r.InjectedJSON())
	must(t, err)
	var p map[string]any
	must(t, json.Unmarshal(stored, &p))
	metadata := p["metadata"].(map[string]any)
	metadata["uid"], metadata["creationTimestamp"] = "u-1", created
	p["status"] = map[string]any{"phase": "Running", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	metadata["managedFields"] = []any{map[string]any{
		"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": created, "fieldsType": "FieldsV1",
		"fieldsV1": map[string]any{"f:spec": owned(p["spec"].(map[string]any))},
	}}
	text, err := json.Marshal(p)
	must(t, err)
	return text
}

// owned returns the fields of containers in the format FieldsV1.
func owned(spec map[string]any) map[string]any {
	out := map[string]any{}
	for _, list := range []string{"initContainers", "containers"} {
		items, _ := spec[list].([]any)
		of := map[string]any{}
		for _, item := range items {
			c := item.(map[string]any)
			fields := fieldsOf(c)
			fields["."] = map[string]any{}
			of[fmt.Sprintf(`k:{"name":%q}`, c["name"])] = fields
		}
		out["f:"+list] = of
	}
	return out
}

func fieldsOf(object map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range object {
		if sub, ok := value.(map[string]any); ok {
			out["f:"+name] = fieldsOf(sub)
		} else {
			out["f:"+name] = map[string]any{}
		}
	}
	return out
}

// planCase has the inputs of a case: templates old.yaml and new.yaml, the pod before injection (pod.yaml),
// or its owner (owner.yaml), what others have changed (changed.yaml, a merge patch), and options.
type planCase struct {
	t       *testing.T
	files   map[string][]byte
	planner *rollout.Planner
	owner   []byte
	created []byte // the pod before injection
	running []byte
}

func newCase(t *testing.T, archive *txtar.Archive) *planCase {
	c := &planCase{t: t, files: map[string][]byte{}}
	for _, f := range archive.Files {
		c.files[f.Name] = f.Data
	}
	now := c.files["new.yaml"]
	if now == nil {
		now = c.files["old.yaml"]
	}
	options := string(c.files["options"])
	c.planner = &rollout.Planner{
		Injector: injector(t, now), Namespace: namespace(), Called: func([]byte) bool { return !strings.Contains(options, "not called") },
		Mutated: strings.Contains(options, "mutated"), Resizes: !strings.Contains(options, "no resize"), Added: strings.Contains(options, "added"),
	}
	_, c.planner.Only, _ = strings.Cut(strings.TrimSpace(options), "only ")
	pod := c.files["pod.yaml"]
	if owner := c.files["owner.yaml"]; owner != nil {
		c.owner = toJSON(t, owner)
		var o struct {
			Spec struct{ Template json.RawMessage }
		}
		must(t, json.Unmarshal(c.owner, &o))
		pod = []byte(o.Spec.Template)
	}
	c.created = toJSON(t, pod)
	c.running = create(t, injector(t, c.files["old.yaml"]), c.created)
	if changed := c.files["changed.yaml"]; changed != nil {
		var err error
		c.running, err = jsonpatch.MergePatch(c.running, toJSON(t, changed))
		must(t, err)
	}
	if moved := c.files["moved.json"]; moved != nil { // by a JSON patch
		c.running = patched(t, c.running, moved)
	}
	return c
}

func patched(t *testing.T, doc, patch []byte) []byte {
	t.Helper()
	p, err := jsonpatch.DecodePatch(patch)
	must(t, err)
	out, err := p.Apply(doc)
	must(t, err)
	return out
}

func (c *planCase) plan(pod []byte) *rollout.Pod {
	c.t.Helper()
	p, err := c.planner.Plan(pod, c.owner)
	must(c.t, err)
	return p
}

// TestPlans compares what a pod needs with golden files. If it changes in place, the test also applies
// each step, plans again after each, and checks that nothing is left at the end.
func TestPlans(t *testing.T) {
	t.Parallel()
	golden.Cases(t, "testdata/cases/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
		c := newCase(t, archive)
		p := c.plan(c.running)
		var out bytes.Buffer
		fmt.Fprintf(&out, "state: %s\naction: %s\n", p.State, p.Action)
		if p.Why != "" {
			fmt.Fprintf(&out, "why: %s\n", p.Why)
		}
		for i := range p.Changes {
			ch := &p.Changes[i]
			fmt.Fprintf(&out, "%s: %s%s: %s -> %s\n", ch.How, ch.Path, of(ch.Template), orNone(ch.From), orNone(ch.To))
		}
		for i := range p.Kept {
			fmt.Fprintf(&out, "kept: %s\n", p.Kept[i].String())
		}
		if p.Action == rollout.Patch {
			c.steps(p, &out)
		}
		return []txtar.File{{Name: "plan", Data: out.Bytes()}}
	})
}

func of(template string) string {
	if template == "" {
		return ""
	}
	return " of " + template
}

func orNone(text json.RawMessage) string {
	if text == nil {
		return "none"
	}
	return string(text)
}

// apps returns the containers of a pod that it had before the injection.
func (c *planCase) apps(pod []byte) (text string) {
	c.t.Helper()
	type containers []map[string]any
	var created, now struct {
		Spec struct{ InitContainers, Containers containers }
	}
	must(c.t, json.Unmarshal(c.created, &created))
	must(c.t, json.Unmarshal(pod, &now))
	for _, of := range [][2]containers{{created.Spec.InitContainers, now.Spec.InitContainers}, {created.Spec.Containers, now.Spec.Containers}} {
		for _, own := range of[0] {
			for _, container := range of[1] {
				if container["name"] == own["name"] {
					text += fmt.Sprintln(container)
				}
			}
		}
	}
	return text
}

func (c *planCase) steps(p *rollout.Pod, out *bytes.Buffer) {
	pod, changes, back := c.running, p.Changes, c.wayBack(p)
	for _, step := range []struct {
		name string
		make func(*rollout.Pod) ([]byte, error)
	}{{"images", (*rollout.Pod).Images}, {"resources", (*rollout.Pod).Resources}, {"record", (*rollout.Pod).Record}} {
		patch, err := step.make(p)
		must(c.t, err)
		if patch == nil {
			continue
		}
		fmt.Fprintf(out, "%s: %s\n", step.name, patch)
		before := c.apps(pod)
		pod = patched(c.t, pod, patch)
		if back != nil {
			c.wantBack(step.name, c.byRollout(pod, changes), back)
		}
		if after := c.apps(pod); after != before {
			c.t.Errorf("the step %s changes the app's containers from\n%s to\n%s", step.name, before, after)
		}
		if step.name == "record" {
			break
		}
		// A rollout that was interrupted here continues with the rest.
		last := len(p.Records) == 0 && (step.name == "resources" || p.Action == rollout.Patch)
		if p = c.plan(pod); p.Action != rollout.Patch && !last {
			c.t.Errorf("after the step %s: action %s (%s), want in place", step.name, p.Action, p.Why)
		}
	}
	last := c.plan(pod)
	fmt.Fprintf(out, "then: %s, %s\n", last.State, last.Action)
	if len(p.Kept) > 0 || c.planner.Only != "" {
		return
	}
	r, err := c.planner.Injector.Inject(inject.Request{Operation: "CREATE", Namespace: namespace(), Object: pod, OptedIn: true})
	must(c.t, err)
	if last.Action != rollout.None || last.State != explain.Current || len(r.Patch()) > 0 {
		c.t.Errorf("afterwards: state %s, action %s (%s), and another injection adds %s", last.State, last.Action, last.Why, r.Patch())
	}
	if was, is := inject.InjectedBy(create(c.t, c.planner.Injector, c.created)), inject.InjectedBy(pod); !maps.Equal(was, is) {
		c.t.Errorf("it has the records %v, and a pod that is created now has %v", is, was)
	}
	v, err := inject.NewJudge(c.planner.Injector, nil, true).Judge(inject.Request{Operation: "CREATE", Namespace: namespace(), Object: pod, OptedIn: true})
	must(c.t, err)
	if len(v.Judged) > 0 {
		c.t.Errorf("the validating webhook finds %v", v.Judged)
	}
}

// wantBack checks that a pod with some or all of its changes goes back to what it had before, if one template has changed.
func (c *planCase) wantBack(step string, pod []byte, w *rollout.WayBack) {
	c.t.Helper()
	planner := *c.planner
	planner.Only = w.Template
	for i := 0; ; i++ {
		p, err := planner.PlanBack(pod, c.owner, w)
		must(c.t, err)
		if p.Action == rollout.None {
			break
		}
		if p.Action != rollout.Patch || i == 3 {
			c.t.Errorf("after the step %s, the way back is %s: %s", step, p.Action, p.Why)
			return
		}
		for _, make := range []func(*rollout.Pod) ([]byte, error){(*rollout.Pod).Images, (*rollout.Pod).Resources, (*rollout.Pod).Record} {
			patch, err := make(p)
			must(c.t, err)
			if patch != nil {
				pod = patched(c.t, pod, patch)
				break
			}
		}
	}
	left, err := rollout.Changes(c.running, pod)
	left = slices.DeleteFunc(left, func(c rollout.Change) bool { // a digest that another client has added
		return strings.HasPrefix(string(c.From), strings.TrimSuffix(string(c.To), `"`)+"@")
	})
	if err != nil || len(left) > 0 {
		c.t.Errorf("after the step %s and the way back, the pod differs: %+v, %v", step, left, err)
	}
}

// wayBack returns the way back from the change of a pod, or nil if not exactly one template has another content that the pod gets.
func (c *planCase) wayBack(p *rollout.Pod) *rollout.WayBack {
	if c.files["new.yaml"] == nil {
		return nil
	}
	old := injector(c.t, c.files["old.yaml"])
	var changed []*templates.Template
	for _, t := range c.planner.Injector.All().Templates {
		if !slices.ContainsFunc(old.All().Templates, func(o *templates.Template) bool { return o.Name == t.Name && o.Revision == t.Revision }) {
			changed = append(changed, t)
		}
	}
	fewer := len(c.planner.Injector.All().Templates) < len(old.All().Templates) // then its earlier content is not all that changes
	if fewer || len(changed) != 1 || p.Records[changed[0].Annotation(templates.AnnotationInjected)] != changed[0].Revision {
		return nil
	}
	t := changed[0]
	return &rollout.WayBack{Template: t.Name, Replaces: t.Spec.Replaces, Failed: t.Revision, Earlier: func(string) (*inject.Injector, string) { return old, "" }}
}

// byRollout returns a pod whose managed fields show that a rollout has made changes.
func (c *planCase) byRollout(pod []byte, changes []rollout.Change) []byte {
	var p map[string]any
	must(c.t, json.Unmarshal(pod, &p))
	metadata := p["metadata"].(map[string]any)
	entries, fields := metadata["managedFields"].([]any), map[string]any{}
	for i := range changes {
		path := strings.Split(changes[i].Path, "/")
		if len(path) < 5 || path[1] != "spec" {
			continue
		}
		list, key, field := "f:"+path[2], fmt.Sprintf(`k:{"name":%q}`, path[3]), "f:"+path[4]
		for _, e := range entries {
			spec, _ := e.(map[string]any)["fieldsV1"].(map[string]any)["f:spec"].(map[string]any)
			containers, _ := spec[list].(map[string]any)
			container, _ := containers[key].(map[string]any)
			delete(container, field)
		}
		if fields[list] == nil {
			fields[list] = map[string]any{}
		}
		if of := fields[list].(map[string]any); of[key] == nil {
			of[key] = map[string]any{}
		}
		fields[list].(map[string]any)[key].(map[string]any)[field] = map[string]any{}
	}
	metadata["managedFields"] = append(entries, map[string]any{
		"manager": rollout.Manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T04:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:spec": fields},
	})
	text, err := json.Marshal(p)
	must(c.t, err)
	return text
}

// simple returns a case of a pod without a controller, and a change of its template.
func simple(t *testing.T, old, now string) *planCase {
	t.Helper()
	const template = "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: agent}, spec: {default: true, pod: {spec: {containers: [{name: agent, %s}]}}}}"
	return newCase(t, &txtar.Archive{Files: []txtar.File{
		{Name: "old.yaml", Data: fmt.Appendf(nil, template, old)},
		{Name: "new.yaml", Data: fmt.Appendf(nil, template, now)},
		{Name: "pod.yaml", Data: []byte(`{metadata: {name: web, namespace: shop}, spec: {containers: [{name: web, image: "web:1"}]}}`)},
	}})
}

// TestRestarts checks which changes restart a container, and so count for PodDisruptionBudgets.
func TestRestarts(t *testing.T) {
	t.Parallel()
	const container = `image: "agent:%d", resources: {limits: {cpu: 10m, memory: %dMi}}, resizePolicy: [{resourceName: %s, restartPolicy: %s}]`
	for what, test := range map[string]struct {
		image            int
		resource, policy string
		want             bool
	}{
		"an image":                    {2, "memory", "NotRequired", true},
		"memory":                      {1, "memory", "NotRequired", false},
		"memory, with a restart":      {1, "memory", "RestartContainer", true},
		"memory, restarts are of CPU": {1, "cpu", "RestartContainer", false},
	} {
		c := simple(t, fmt.Sprintf(container, 1, 32, test.resource, test.policy), fmt.Sprintf(container, test.image, 64, test.resource, test.policy))
		p := c.plan(c.running)
		if p.Action != rollout.Patch || p.Restarts() != test.want {
			t.Errorf("%s: %s, restarts %t, want %t: %+v", what, p.Action, p.Restarts(), test.want, p.Changes)
		}
	}
}

// TestInvalid checks that a pod is left if the content of its template is invalid: Pillion may use an earlier one.
func TestInvalid(t *testing.T) {
	t.Parallel()
	const why = "the template gone is invalid"
	for what, test := range map[string]struct {
		record, invalid string
		want            rollout.Action
	}{
		"it has no such template":     {"", "gone", rollout.Patch},
		"the template does not exist": {"gone", "", rollout.Replace},
		"the template is invalid":     {"gone", "gone", rollout.Leave},
	} {
		c := simple(t, `image: "agent:1"`, `image: "agent:2"`)
		c.planner.Invalid = map[string]string{test.invalid: why}
		if test.record != "" {
			c.running = patched(t, c.running, fmt.Appendf(nil, `[{"op": "add", "path": "/metadata/annotations/%s.pillion.dev~1injected", "value": "0123456789ab"}]`, test.record))
		}
		if p := c.plan(c.running); p.Action != test.want || (p.Why == why) != (test.want == rollout.Leave) {
			t.Errorf("%s: %s (%s), want %s", what, p.Action, p.Why, test.want)
		}
	}
}

// TestOwn checks which containers of a pod count as those of templates: a crash of an app's container of that name fails
// no rollout.
func TestOwn(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		annotations string
		want        []string
	}{
		"the app has a container with the name of a template's": {"{}", []string{"agent"}},
		"a record shows it as the template's":                   {"{proxy.pillion.dev/injected: 0123456789ab}", []string{"agent", "proxy"}},
		"the user wrote it for the template":                    {"{proxy.pillion.dev/injected: 0123456789ab, proxy.pillion.dev/customize: 'true'}", []string{"agent"}},
	} {
		const template = "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: %s}, spec: {default: %t, pod: {spec: {initContainers: [{name: %[1]s, restartPolicy: Always, image: '%[1]s:%[3]d'}]}}}}\n---\n"
		set := func(version int) []byte {
			return fmt.Appendf(fmt.Appendf(nil, template, "agent", true, version), template, "proxy", false, 1)
		}
		c := newCase(t, &txtar.Archive{Files: []txtar.File{
			{Name: "old.yaml", Data: set(1)},
			{Name: "new.yaml", Data: set(2)},
			{Name: "pod.yaml", Data: fmt.Appendf(nil, "{metadata: {name: web, namespace: shop, annotations: %s}, spec: {containers: [{name: web, image: 'web:1'}, {name: proxy, image: 'mine:1'}]}}", test.annotations)},
		}})
		if p := c.plan(c.running); !slices.Equal(p.Own, test.want) {
			t.Errorf("%s: %q, want %q (%s)", what, p.Own, test.want, p.Why)
		}
	}
}
