// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// TestTenants checks for random sets that templates of a namespace change nothing about what the templates of the cluster
// do: neither the decisions, nor what they add to the pod, nor what the validating webhook finds wrong with it. It also
// moves a container from the pod into a template of the namespace. Then the templates of the cluster add at least
// as much to it as before.
func TestTenants(t *testing.T) {
	t.Parallel()
	count, tried := size.Choose(t, 150, 5000), tally{}
	for seed := range uint64(count) {
		tryTenants(t, seed, tried)
	}
	t.Logf("%v", tried)
	if least := count / 20; tried["injected beside"] < 2*least || tried["moved"] < least || tried["moved and injected"] < least/2 {
		t.Errorf("too little was tried: %v", tried)
	}
}

// TestTenantJudged checks that the validating webhook denies a pod in which the container of a namespace's template lacks what
// a required template of the cluster adds to all containers.
func TestTenantJudged(t *testing.T) {
	t.Parallel()
	injector := parsed(t, `
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: audit}
spec: {required: true, forEachContainer: [{add: {env: [{name: AUDIT, value: "1"}]}}]}
---
apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
metadata: {name: wraps, namespace: shop}
spec: {default: true, pod: {spec: {containers: [{name: main, image: "m:1"}]}}}
`)
	req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: []byte(`{"spec":{"containers":[{"name":"app","image":"a"}]}}`)}
	req.Object = mustInject(t, injector, req).InjectedJSON()
	if v := mustJudge(t, inject.NewJudge(injector, nil, true), req); v.Word() != "allowed" {
		t.Errorf("%s: %v", v.Word(), v.Judged)
	}
	const added = `"env":[{"name":"AUDIT","value":"1"}]`
	last := strings.LastIndex(string(req.Object), added)
	req.Object = []byte(string(req.Object[:last]) + `"stdin":false` + string(req.Object[last+len(added):]))
	if v := mustJudge(t, inject.NewJudge(injector, nil, true), req); !v.Denied || v.Judged[0].Template != "audit" {
		t.Errorf("without it, %s: %v\n%s", v.Word(), v.Judged, req.Object)
	}
}

// TestTenantAfterWebhook checks a second call after another webhook has added a container. With the container of the namespace's
// template, the condition of the cluster's template is true then. What that adds to the container is no fault.
func TestTenantAfterWebhook(t *testing.T) {
	t.Parallel()
	injector := parsed(t, `
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: audit}
spec: {required: true, match: {condition: "size(pod.spec.containers) >= 3"}, forEachContainer: [{add: {env: [{name: AUDIT, value: "1"}]}}]}
---
apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
metadata: {name: own, namespace: shop}
spec: {default: true, validate: {mode: Deny, protect: [env]}, pod: {spec: {containers: [{name: own, image: "own:1"}]}}}
`)
	req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: []byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"a"}]}}`)}
	first := string(keptBy(t, mustInject(t, injector, req).InjectedJSON(), true))
	req.Object = keptBy(t, []byte(strings.Replace(first, `"containers":[`, `"containers":[{"name":"mesh","image":"mesh:1"},`, 1)), true)
	r := mustInject(t, injector, req)
	req.Object = keptBy(t, r.InjectedJSON(), true)
	if v := mustJudge(t, inject.NewJudge(injector, nil, true), req); r.Decisions[0].Code != inject.CodeInjected || v.Word() != "allowed" {
		t.Errorf("audit is %s, and the pod is %s: %v", r.Decisions[0].Code, v.Word(), v.Judged)
	}
	req.Object = []byte(strings.Replace(string(req.Object), `"name":"own","image":"own:1","env":[{"name":"AUDIT","value":"1"}`, `"name":"own","image":"own:1","env":[{"name":"AUDIT","value":"2"}`, 1))
	if v := mustJudge(t, inject.NewJudge(injector, nil, true), req); !v.Denied {
		t.Errorf("with another value, it is %s: %s", v.Word(), req.Object)
	}
}

// TestTenantTries checks that every template has a decision, and those of the cluster the same as alone, if very many
// templates of a namespace change what these do, or add without end.
func TestTenantTries(t *testing.T) {
	t.Parallel()
	pod := []byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"a"}]}}`)
	const search = "lists.range(500).filter(i, container.env.exists(e, e.name == string(i))).size()"
	for name, of := range map[string]string{
		"each changes a condition": "pod: {spec: {containers: [{name: n%d, image: s}]}}",
		"each costs much":          "forEachContainer: [{add: {env: [{name: \"T%[1]d${string(size(container.env))}\", value: \"${string(" + search + ")}\"}]}}], pod: {spec: {volumes: [{name: n%[1]d, emptyDir: {}}]}}",
		"each adds without end":    "forEachContainer: [{add: {env: [{name: \"T%[1]d${string(size(container.env))}\", value: x}]}}], pod: {spec: {volumes: [{name: n%[1]d, emptyDir: {}}]}}",
	} {
		documents := "---\napiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: one}\nspec: {default: true, match: {condition: \"size(pod.spec.containers) == 1\"}, pod: {spec: {initContainers: [{name: one, image: s}]}}}\n"
		alone := injectorOf(mustParse(t, documents))
		many := 50
		if name == "each costs much" {
			many = 20
		}
		for i := range many {
			documents += fmt.Sprintf("---\napiVersion: pillion.dev/v1alpha1\nkind: SidecarTemplate\nmetadata: {name: n%d, namespace: shop}\nspec: {default: true, %s}\n", i, fmt.Sprintf(of, i))
		}
		both := injectorOf(mustParse(t, documents))
		began := cpu.Used(t)
		r := mustInject(t, both, inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: pod})
		took := cpu.Used(t) - began
		t.Logf("%s: %v", name, took)
		if name == "each costs much" && !strings.Contains(r.Decisions[1].Message, "cost too much for this pod") {
			t.Errorf("%s: the reason is %q", name, r.Decisions[1].Message)
		}
		if name == "each costs much" { // checkOwnWork would take a dozen times as long
			compareTenant(t, alone, both, pod, nil)
			if again := mustInject(t, both, inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: keptBy(t, r.InjectedJSON(), true)}); again.Adds() {
				t.Errorf("%s: a second run adds %s", name, again.Patch())
			}
		} else {
			checkTenant(t, alone, both, pod, nil)
		}
		if t.Failed() {
			t.Fatal(name)
		}
		for i := range r.Decisions {
			if d := &r.Decisions[i]; d.Code == "" || i > 0 && d.Code.Succeeded() {
				t.Errorf("%s: %s is %q", name, d.Template, d.Code)
			}
		}
	}
}

// TestTenantMemory checks that a pod with very many values does not cost much more memory because its namespace has templates of
// its own.
func TestTenantMemory(t *testing.T) {
	const template = "{apiVersion: pillion.dev/v1alpha1, kind: %s, metadata: {name: %s}, spec: {default: true, forEachContainer: [{add: {env: [{name: %[2]s, value: x}]}}], pod: {spec: {containers: [{name: %[2]s, image: s}]}}}}"
	var set []*templates.Template
	for _, of := range [][2]string{{"ClusterSidecarTemplate", "one"}, {"SidecarTemplate", "two"}} {
		document := strings.Replace(fmt.Sprintf(template, of[0], of[1]), "name: two}, spec", "name: two, namespace: shop}, spec", 1)
		found, problems := templates.Parse("t", []byte(document))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		set = append(set, found...)
	}
	pod := []byte(`{"spec":{"containers":[{"name":"app","image":"a"}],"volumes":[` + strings.TrimSuffix(strings.Repeat("{},", 200_000), ",") + `]}}`)
	cost := func(injector *inject.Injector) (bytes uint64, codes []inject.Code) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: pod}
		r := mustInject(t, injector, req)
		mustJudge(t, inject.NewJudge(injector, nil, true), req)
		runtime.ReadMemStats(&after)
		for i := range r.Decisions {
			codes = append(codes, r.Decisions[i].Code)
		}
		return after.TotalAlloc - before.TotalAlloc, codes
	}
	alone, _ := cost(injectorOf(set[:1]))
	both, codes := cost(injectorOf(set))
	t.Logf("%d MiB alone, and %d MiB beside a template of the namespace: %v", alone>>20, both>>20, codes)
	if both > 2*alone+8<<20 {
		t.Errorf("%d MiB are allocated, and %d MiB beside a template of the namespace", alone>>20, both>>20)
	}
	if codes[1] != inject.CodeConflict {
		t.Errorf("the template of the namespace is %s", codes[1])
	}
}

// TestTenantComesAfter checks that a template of a namespace cannot put a container before one that a template of the cluster puts
// first, nor after one that it puts last.
func TestTenantComesAfter(t *testing.T) {
	t.Parallel()
	const template = "---\napiVersion: pillion.dev/v1alpha1\nkind: %s\nmetadata: {name: %s}\nspec: {default: true, placement: {initContainers: %s}, pod: {spec: {initContainers: [{name: %s, image: s}]}}}\n"
	for _, c := range []struct{ cluster, own, want string }{
		{"First", "{before: wall}", "wall own i"},
		{"First", "First", "wall own i"},
		{"{before: i}", "{before: i}", "own wall i"},
		{"{before: i}", "{after: wall}", "own wall i"},
		{"{after: i}", "{after: i}", "i wall own"},
		{"{after: i}", "{before: wall}", "i wall own"},
		{"{after: own}", "First", "i own wall"},
		{"{before: own}", "Last", "i wall own"},
		{"Last", "Last", "i own wall"},
		{"Last", "{after: wall}", "i own wall"},
		{"{after: none}", "{after: wall}", "i own wall"}, // it is last by default
	} {
		injector := injectorOf(mustParse(t, fmt.Sprintf(template, "ClusterSidecarTemplate", "wall", c.cluster, "wall")+
			fmt.Sprintf(template, "SidecarTemplate", "own, namespace: shop", c.own, "own")))
		r := mustInject(t, injector, inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: []byte(`{"spec":{"initContainers":[{"name":"i","image":"a"}],"containers":[{"name":"app","image":"a"}]}}`)})
		root, err := jsontree.Parse(r.InjectedJSON())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		items := root.At("spec", "initContainers").Items()
		for i := range items {
			names = append(names, items[i].Get("name").Text())
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s of the cluster, and %s of the namespace: %s, and not %s", c.cluster, c.own, got, c.want)
		}
	}
}

// FuzzTenants is TestTenants for any seed.
func FuzzTenants(f *testing.F) {
	for seed := range uint64(21) { // in the last one, what a template of the cluster puts after a container was there before that
		f.Add(seed + 10_000)
	}
	f.Add(uint64(3635))   // a variable with an empty value, and an expression that reads whether it has one
	f.Add(uint64(9918))   // templates of the cluster name containers that the pod does not have
	f.Add(uint64(10_050)) // the condition of a template of the cluster reads the template's own record
	f.Fuzz(func(t *testing.T, seed uint64) { tryTenants(t, seed, tally{}) })
}

func tryTenants(t *testing.T, seed uint64, tried tally) {
	t.Helper()
	g := reviews.NewSets(seed, 23)
	var cluster, own []*templates.Template
	var documents []string
	add := func(to *[]*templates.Template, kind, name, spec string) bool {
		document := fmt.Sprintf("{apiVersion: pillion.dev/v1alpha1, kind: %s, metadata: {name: %s}, spec: {%s}}", kind, name, spec)
		found, problems := templates.Parse("t", []byte(document))
		if len(problems) == 0 {
			*to, documents = append(*to, found...), append(documents, document)
		}
		return len(problems) == 0
	}
	ofCluster := 1 + g.IntN(2)
	for i := range ofCluster {
		add(&cluster, "ClusterSidecarTemplate", fmt.Sprintf("t%d", i), lists(g.Template(i), seed, i))
	}
	for i := range 1 + g.IntN(2) {
		add(&own, "SidecarTemplate", fmt.Sprintf("t%d, namespace: shop", ofCluster+i), lists(g.Template(ofCluster+i), seed, ofCluster+i))
	}
	if len(cluster) == 0 || len(own) == 0 {
		tried["not loaded"]++
		return
	}
	pod := []byte(g.Pod(true))
	defer func() { // also if a check ends the test
		if t.Failed() {
			t.Logf("seed %d\n%s\n%s", seed, strings.Join(documents, "\n---\n"), pod)
		}
	}()
	alone, both := injectorOf(cluster), injectorOf(append(slices.Clone(cluster), own...))
	if checkTenant(t, alone, both, pod, nil) {
		tried["injected beside"]++
	}
	if container, rest := takeContainer(g, pod); container != nil && !slices.ContainsFunc(documents[:len(cluster)], readsItself.MatchString) {
		places := []string{"First", "Last", "{before: k0}", "{after: k0}", "{before: k1}", "{before: app}", "{after: app}", "{before: i}"}
		placement := fmt.Sprintf("%s: %s", container.list, places[g.IntN(len(places))])
		spec := fmt.Sprintf("default: true, match: {hostNetwork: true}, placement: {%s}, pod: {spec: {%s: [%s]}}", placement, container.list, container.text)
		wraps := []*templates.Template(nil)
		if add(&wraps, "SidecarTemplate", "wraps, namespace: shop", spec) {
			tried["moved"]++
			if checkTenant(t, alone, injectorOf(append(slices.Clone(cluster), wraps...)), rest, &movedFrom{pod, container}) {
				tried["moved and injected"]++
			}
		}
	}
	after := mustInject(t, both, inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: pod}).InjectedJSON()
	for range 2 {
		if checkMeddled(t, g, both, after) {
			tried["again"]++
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// lists lets some templates list volumes for the cluster autoscaler.
func lists(spec string, seed uint64, i int) string {
	random := rand.New(rand.NewPCG(seed, uint64(41+i)))
	if random.IntN(3) > 0 {
		return spec
	}
	names := []string{"v0", "v1", "v2", "v3", "shared", "w"}
	list := fmt.Sprintf("%s: %q", inject.SafeToEvictLocalVolumes, names[random.IntN(len(names))]+","+names[random.IntN(len(names))])
	if with := strings.Replace(spec, "annotations: {x.example", "annotations: {"+list+", x.example", 1); with != spec {
		return with
	}
	return strings.Replace(spec, "pod: {spec:", "pod: {metadata: {annotations: {"+list+"}}, spec:", 1)
}

// compareLists checks that a pod lists the volumes that the templates of the cluster list, and beside them no volume of these.
func compareLists(t *testing.T, original, before, after []byte) {
	t.Helper()
	list := func(pod []byte) []string {
		text, _ := lookup(decodeJSON(t, pod), "/metadata/annotations/"+strings.ReplaceAll(inject.SafeToEvictLocalVolumes, "/", "~1"))
		return strings.FieldsFunc(fmt.Sprint(text), func(r rune) bool { return r == ',' })
	}
	volumes := func(pod []byte) (names []string) {
		items, _ := lookup(decodeJSON(t, pod), "/spec/volumes")
		all, _ := items.([]any)
		for _, v := range all {
			names = append(names, fmt.Sprint(v.(map[string]any)["name"]))
		}
		return names
	}
	was, is, own := list(before), list(after), volumes(original)
	theirs := slices.DeleteFunc(volumes(before), func(name string) bool { return slices.Contains(own, name) })
	for _, name := range was {
		if name != "<nil>" && !slices.Contains(is, name) {
			t.Errorf("beside templates of the namespace, the list lacks %s: %s", name, is)
		}
	}
	for _, name := range is {
		if !slices.Contains(was, name) && slices.Contains(theirs, name) {
			t.Errorf("beside templates of the namespace, the volume %s of the cluster's is listed: %s, and not %s", name, is, was)
		}
	}
}

// withoutList returns a pod without the list of volumes.
func withoutList(t *testing.T, pod []byte) []byte {
	t.Helper()
	root, err := jsontree.Parse(pod)
	if err != nil {
		t.Fatal(err)
	}
	if root.At("metadata", "annotations", inject.SafeToEvictLocalVolumes) == nil {
		return pod
	}
	var nodes jsontree.Arena
	metadata := root.Get("metadata")
	rest := nodes.With(root, "metadata", nodes.With(metadata, "annotations", nodes.Without(metadata.Get("annotations"), inject.SafeToEvictLocalVolumes)))
	return rest.AppendTo(nil)
}

// readsItself finds templates that may add to a container or not depending on what they have added to the pod themselves.
var readsItself = regexp.MustCompile(`where: "[^"]*(pod|variables)\.`)

func mustParse(t *testing.T, documents string) []*templates.Template {
	t.Helper()
	found, problems := templates.Parse("t", []byte(documents))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return found
}

func injectorOf(set []*templates.Template) *inject.Injector {
	joined, _ := templates.Join(templates.NewSet(set))
	return inject.New(joined)
}

// movedFrom is a pod and the container of it that was moved into a template.
type movedFrom struct {
	pod       []byte
	container *podContainer
}

type podContainer struct{ list, name, text string }

// takeContainer removes one of several containers.
func takeContainer(g *reviews.Sets, pod []byte) (*podContainer, []byte) {
	root, err := jsontree.Parse(pod)
	if err != nil {
		return nil, nil
	}
	list := "containers"
	if g.IntN(3) == 0 && len(root.At("spec", "initContainers").Items()) > 0 {
		list = "initContainers"
	}
	items := root.At("spec", list).Items()
	if list == "containers" && len(items) < 2 {
		return nil, nil
	}
	i := g.IntN(len(items))
	if items[i].Get("resources") != nil && root.At("spec", "resources") != nil {
		return nil, nil // a template leaves out the resources of its containers
	}
	taken := &podContainer{list, items[i].Get("name").Text(), items[i].String()}
	var nodes jsontree.Arena
	spec := nodes.With(root.Get("spec"), list, jsontree.Items(slices.Delete(slices.Clone(items), i, i+1)...))
	rest := nodes.With(root, "spec", spec)
	return taken, rest.AppendTo(nil)
}

// checkTenant compares the pod that the templates of the cluster alone make with the pod that they make together with templates of the
// namespace. It reports whether a template of the namespace was injected.
func checkTenant(t *testing.T, alone, both *inject.Injector, pod []byte, moved *movedFrom) (injected bool) {
	t.Helper()
	checkOwnWork(t, both, pod)
	return compareTenant(t, alone, both, pod, moved)
}

// compareTenant is checkTenant without what holds for each set of templates.
func compareTenant(t *testing.T, alone, both *inject.Injector, pod []byte, moved *movedFrom) (injected bool) {
	t.Helper()
	req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: keptBy(t, pod, true), Detail: true}
	was, is := mustInject(t, alone, req), mustInject(t, both, req)
	for i := range is.Decisions {
		d := &is.Decisions[i]
		switch {
		case i >= len(was.Decisions):
			injected = injected || d.Code == inject.CodeInjected
		case d.Code != was.Decisions[i].Code || d.Message != was.Decisions[i].Message:
			t.Errorf("%s is %s (%s), and beside templates of the namespace %s (%s)", d.Template, was.Decisions[i].Code, was.Decisions[i].Message, d.Code, d.Message)
		}
	}
	before, after := was.InjectedJSON(), is.InjectedJSON()
	compareLists(t, keptBy(t, pod, true), before, after)
	compareOrders(t, before, after)
	if what := lacks(t, withoutList(t, before), withoutList(t, after)); what != "" {
		t.Errorf("beside templates of the namespace, the pod lacks %s\n%s\n%s", what, before, after)
	}
	compareFindings(t, alone, before, after)
	if moved != nil && injected && !strings.Contains(string(before), fmt.Sprintf(`"name":%q,`, moved.container.name)) { // otherwise it is the cluster's
		written := inOrderOf(t, moved.pod, after, moved.container.list)
		inPod := mustInject(t, alone, inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: keptBy(t, written, true)})
		for _, r := range []*inject.Result{was, inPod} {
			again := mustInject(t, alone, inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: keptBy(t, r.InjectedJSON(), true)})
			for i := range again.Decisions {
				if r.Decisions[i].Code.Succeeded() && !again.Decisions[i].Code.Succeeded() {
					return false // its condition reads what it adds
				}
			}
		}
		for i := range inPod.Decisions {
			if was, is := inPod.Decisions[i].Code, is.Decisions[i].Code; was != is {
				t.Errorf("%s is %s with the container %s in the pod, and %s with that in a template", is, was, moved.container.name, is)
			}
		}
		if lacking := fieldsLacking(t, after, inPod.InjectedJSON(), moved.container); lacking != nil {
			// An expression that reads what its template adds has another value for a container that comes later.
			late := mustInject(t, alone, inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: withContainer(t, before, after, moved.container)})
			if fieldsLacking(t, after, late.InjectedJSON(), moved.container) != nil {
				t.Errorf("in a template, the container %s lacks %q\n%s\n%s", moved.container.name, lacking, inPod.InjectedJSON(), after)
			}
		}
		compareFindings(t, alone, inPod.InjectedJSON(), after)
		compareEarlier(t, inPod.InjectedJSON(), after, moved.container)
	}
	return injected
}

// compareOrders checks that the containers of a pod have the same order as without the templates of the namespace.
func compareOrders(t *testing.T, before, after []byte) {
	t.Helper()
	for _, list := range []string{"initContainers", "containers"} {
		was, is := containersOf(t, before, list), containersOf(t, after, list)
		kept := slices.DeleteFunc(slices.Clone(is), func(name string) bool { return !slices.Contains(was, name) })
		if !slices.Equal(was, kept) {
			t.Errorf("the %s are %q, and beside templates of the namespace %q", list, was, is)
		}
	}
}

// compareEarlier checks that the same containers are before a container in the pod as before one in a template.
func compareEarlier(t *testing.T, inPod, after []byte, container *podContainer) {
	t.Helper()
	was, is := containersOf(t, inPod, container.list), containersOf(t, after, container.list)
	earlier := func(all []string) []string {
		return slices.Sorted(slices.Values(all[:slices.Index(all, container.name)]))
	}
	if !slices.Equal(earlier(was), earlier(is)) {
		t.Errorf("with %s in the pod, the %s are %q, and in a template %q", container.name, container.list, was, is)
	}
}

// containersOf returns the names of a pod's containers in one list.
func containersOf(t testing.TB, pod []byte, list string) (names []string) {
	t.Helper()
	root, err := jsontree.Parse(pod)
	if err != nil {
		t.Fatal(err)
	}
	items := root.At("spec", list).Items()
	for i := range items {
		names = append(names, items[i].Get("name").Text())
	}
	return names
}

// fieldsLacking returns the places where a container of one pod has nothing and that of the other one has something.
func fieldsLacking(t *testing.T, pod, other []byte, container *podContainer) (all []string) {
	t.Helper()
	has := fieldsOf(t, keptBy(t, pod, true), container)
	for _, place := range fieldsOf(t, keptBy(t, other, true), container) {
		if !slices.Contains(has, place) {
			all = append(all, place)
		}
	}
	return all
}

// withContainer returns a pod with one more container, at the place that it has in another pod.
func withContainer(t *testing.T, pod, other []byte, container *podContainer) []byte {
	t.Helper()
	root, err := jsontree.Parse(keptBy(t, pod, true))
	if err != nil {
		t.Fatal(err)
	}
	item, err := jsontree.Parse([]byte(container.text))
	if err != nil {
		t.Fatal(err)
	}
	var nodes jsontree.Arena
	spec := nodes.With(root.Get("spec"), container.list, jsontree.Items(append(slices.Clone(root.At("spec", container.list).Items()), *item)...))
	with := nodes.With(root, "spec", spec)
	return keptBy(t, inOrderOf(t, with.AppendTo(nil), other, container.list), true)
}

// inOrderOf returns a pod with its containers in the order that they have in another pod, because expressions may read the
// first one.
func inOrderOf(t *testing.T, pod, other []byte, list string) []byte {
	t.Helper()
	root, err := jsontree.Parse(pod)
	if err != nil {
		t.Fatal(err)
	}
	like, err := jsontree.Parse(other)
	if err != nil {
		t.Fatal(err)
	}
	place := func(of *jsontree.Node) int {
		return slices.IndexFunc(like.At("spec", list).Items(), func(c jsontree.Node) bool { return c.Get("name").Text() == of.Get("name").Text() })
	}
	items := slices.Clone(root.At("spec", list).Items())
	slices.SortStableFunc(items, func(a, b jsontree.Node) int { return place(&a) - place(&b) })
	var nodes jsontree.Arena
	ordered := nodes.With(root, "spec", nodes.With(root.Get("spec"), list, jsontree.Items(items...)))
	return ordered.AppendTo(nil)
}

func mustInject(t *testing.T, injector *inject.Injector, req inject.Request) *inject.Result {
	t.Helper()
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// counts are the ends of paths that random templates compute.
var counts = regexp.MustCompile(`-[0-9]+\b`)

// fieldsOf returns where a container has something. Values are left out, because expressions may read other containers,
// except in its security context.
func fieldsOf(t *testing.T, pod []byte, container *podContainer) (all []string) {
	t.Helper()
	root, err := jsontree.Parse(pod)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(n *jsontree.Node, at string)
	walk = func(n *jsontree.Node, at string) {
		if all = append(all, at); strings.HasPrefix(at, "/securityContext/") {
			all = append(all, at+"="+n.String())
		}
		for i := range n.Members() {
			walk(&n.Members()[i], at+"/"+n.Members()[i].Name())
		}
		for i := range n.Items() {
			item := &n.Items()[i]
			key := item.Get("name").Text() + item.Get("mountPath").Text() + fmt.Sprint(item.Get("containerPort"))
			walk(item, at+"/"+counts.ReplaceAllString(key, "-N"))
		}
	}
	items := root.At("spec", container.list).Items()
	for i := range items {
		if items[i].Get("name").IsText(container.name) {
			walk(&items[i], "")
		}
	}
	return all
}

// lacks returns what the first pod has and the second one does not, or "".
func lacks(t *testing.T, has, pod []byte) string {
	t.Helper()
	one, err := jsontree.Parse(has)
	if err != nil {
		t.Fatal(err)
	}
	other, err := jsontree.Parse(pod)
	if err != nil {
		t.Fatal(err)
	}
	if schema.Pod().Contains(other, one) {
		return ""
	}
	for _, list := range []string{"initContainers", "containers"} {
		items := one.At("spec", list).Items()
		for i := range items {
			found := slices.IndexFunc(other.At("spec", list).Items(), func(c jsontree.Node) bool { return c.Get("name").Text() == items[i].Get("name").Text() })
			if found < 0 || !schema.Pod().At("spec").At(list).Elem.Contains(&other.At("spec", list).Items()[found], &items[i]) {
				return items[i].String()
			}
		}
	}
	return "something outside of containers"
}

// compareFindings checks that the templates of the cluster find the same wrong with one pod as with the other.
func compareFindings(t *testing.T, injector *inject.Injector, one, other []byte) {
	t.Helper()
	count := func(pod []byte) (all []string) {
		for _, f := range mustJudge(t, inject.NewJudge(injector, nil, true), inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: keptBy(t, pod, true)}).Judged {
			if f.Template != "" {
				all = append(all, f.Template+" "+string(f.Code))
			}
		}
		slices.Sort(all)
		return slices.Compact(all) // a template that is not injected may have one more reason
	}
	if was, is := count(one), count(other); !slices.Equal(was, is) {
		t.Errorf("the findings of the cluster's templates are %q, and beside templates of the namespace %q\n%s\n%s", was, is, one, other)
	}
}
