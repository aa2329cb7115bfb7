// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestTenants checks that a namespace with templates of its own has no effect on others: not on what
// their pods get, nor on their history.
func TestTenants(t *testing.T) {
	r := newReplica(t)
	r.put("shared", "1", "required: true")
	r.sync()
	pod := func(namespace string) inject.Request {
		req := inject.Request{Operation: "CREATE", OptedIn: true, Object: []byte(`{"spec":{"containers":[{"name":"web","image":"web"}]}}`)}
		req.Namespace.Name = namespace
		return req
	}
	injected := func(namespace string) (inject.Request, string) {
		req := pod(namespace)
		injector, _ := r.injectorAndJudge(namespace)
		result, err := injector.Inject(req)
		clitest.Must(t, err)
		req.Object = result.InjectedJSON()
		return req, string(req.Object)
	}
	judged := func(req inject.Request) string {
		_, judge := r.injectorAndJudge(req.Namespace.Name)
		v, err := judge.Judge(req)
		clitest.Must(t, err)
		return v.Word()
	}
	_, alone := injected("other")
	first, _ := injected("team-a")
	before := r.current.Load().others

	r.put("team-a/own", "0")
	r.reloadTemplates()
	mine, text := injected("team-a")
	if !strings.Contains(text, `"put.example.com/own":"0"`) || !strings.Contains(text, `"put.example.com/shared":"1"`) {
		t.Errorf("team-a gets %s", text)
	}
	if judged(first) != "allowed" || judged(mine) != "allowed" {
		t.Error("a pod of a recent set is not allowed")
	}
	if r.current.Load().others != before {
		t.Error("the view of other namespaces is new")
	}

	// A change in the cluster's templates is followed by many changes of a tenant.
	r.put("shared", "2", "required: true")
	r.reloadTemplates()
	for i := range 3 * inject.MaxSets {
		r.put("team-a/own", fmt.Sprint(i+1))
		r.reloadTemplates()
	}
	other := pod("other")
	other.Object = []byte(alone)
	if got := judged(other); got != "allowed" {
		t.Errorf("a pod by the former templates of the cluster is %s: changes of a tenant have pushed these out", got)
	}
	if _, now := injected("other"); strings.Contains(now, "own") {
		t.Errorf("another namespace gets %s", now)
	}
	// Without templates of its own, the namespace is like others as soon as its history has settled.
	r.drop("team-a/own")
	r.reloadTemplates()
	if judged(mine) == "denied" || r.current.Load().views["team-a"] == nil {
		t.Error("the history of the namespace is lost at once")
	}
	r.dropSuperseded(r.viewer.loads)
	if n := len(r.current.Load().views); n != 0 {
		t.Errorf("%d views stay", n)
	}
	if _, now := injected("team-a"); strings.Contains(now, "own") {
		t.Errorf("the namespace still gets %s", now)
	}
	if v := r.current.Load().others; len(v.kept) != 0 {
		t.Errorf("%d former sets stay", len(v.kept))
	}
}

// TestTooManyOfNamespace checks that a namespace cannot take the memory of all: only its oldest templates
// are used, in whatever order they arrive, and no large one.
func TestTooManyOfNamespace(t *testing.T) {
	limits := kube.NewLimits()
	r, other := newReplica(t), newReplica(t)
	r.sync()
	other.sync()
	name := func(i int) string { return fmt.Sprintf("team-a/t%03d", i) }
	object := func(i int) *unstructured.Unstructured {
		o := templateObject(name(i))
		o.SetGeneration(1)
		o.SetCreationTimestamp(metav1.NewTime(time.Unix(1e9+int64(i), 0)))
		o.Object["spec"] = map[string]any{"pod": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/a": "b"}}}}
		return o
	}
	for i := range limits.Count + 3 {
		r.take(object(i))
		other.take(object(limits.Count + 2 - i))
	}
	if r.uses() != other.uses() || len(r.currentSet().Templates) != limits.Count {
		t.Errorf("%d are used", len(r.currentSet().Templates))
	}
	detail, _ := r.checkReadiness()
	const want = "sidecartemplate/team-a/t050 and all younger ones is rejected since "
	if strings.Count(detail, "t05") != 1 || !strings.Contains(detail, want) {
		t.Errorf("it says %s", detail)
	}
	for _, r := range []*replica{r, other} {
		r.drop(name(0))
		r.drop(name(7))
	}
	if r.uses() != other.uses() || !strings.Contains(r.uses(), "t051@") || strings.Contains(r.uses(), "t052@") {
		t.Errorf("after two were deleted: %s", r.uses())
	}
	large := object(8)
	large.SetGeneration(2)
	large.Object["spec"].(map[string]any)["description"] = strings.Repeat("x", templates.MaxObject)
	r.take(large)
	r.reloadTemplates()
	if detail, _ := r.checkReadiness(); !strings.Contains(detail, "has more than 131072 bytes") {
		t.Errorf("it says %s", detail)
	}
}

// TestHistoryMemory checks that a tenant that changes large templates again and again does not take the memory of all:
// only the latest former set of such a namespace counts. The history of other namespaces stays.
func TestHistoryMemory(t *testing.T) {
	r := newReplica(t)
	r.put("shared", "1")
	r.put("team-a/own", "0")
	r.put("team-b/own", "0")
	r.put("team-c/own", "0")
	r.sync()
	one := r.current.Load().views["team-a"].injector.Set().Templates[1].Memory
	if one == 0 {
		t.Fatal("a template has no memory")
	}
	r.viewer.history = int64(5 * one)
	kept := func(namespace string) int { return len(r.current.Load().views[namespace].kept) }
	for i := range 3 {
		r.put("team-b/own", fmt.Sprint(i+1))
		r.put("team-c/own", fmt.Sprint(i+1))
		r.reloadTemplates()
	}
	large := func(text string) {
		r.put("team-a/own", strings.Repeat(text, 2000))
		r.reloadTemplates()
	}
	for i := range inject.MaxSets {
		large(fmt.Sprint(i))
	}
	if a, b, c := kept("team-a"), kept("team-b"), kept("team-c"); a != 1 || b != 3 || c != 3 {
		t.Errorf("kept are %d sets of the tenant, %d and %d of the others", a, b, c)
	}
	for i := range inject.MaxSets {
		r.put("team-b/own", fmt.Sprint("x", i))
		r.put("team-c/own", fmt.Sprint("x", i))
		r.reloadTemplates()
		if a, b, c := kept("team-a"), kept("team-b"), kept("team-c"); a != 1 || b+c > 2+5 || b < 2 || c < 2 {
			t.Errorf("kept are %d sets of the tenant, %d and %d of the others", a, b, c)
		}
	}
}

// TestLastValidMemory checks that the last valid content of invalid templates does not take the memory of all: beyond a
// limit, it is dropped.
func TestLastValidMemory(t *testing.T) {
	r := newReplica(t)
	r.put("shared", "1")
	r.sync()
	most := r.objects.catalog.Limits()
	const n = 10
	for i := range n {
		r.put(fmt.Sprintf("team-%d/own", i), strings.Repeat("x", 100_000))
	}
	r.reloadTemplates()
	if got := len(r.currentSet().Templates); got != n+1 {
		t.Fatalf("%d templates are used, want %d", got, n+1)
	}
	for i := range n {
		r.put(fmt.Sprintf("team-%d/own", i), "!")
	}
	r.put("shared", "!")
	r.reloadTemplates()
	sum, used := int64(0), r.currentSet().Templates
	for _, of := range used {
		if of.Namespace != "" {
			sum += int64(of.Memory)
		}
	}
	if sum > most.MostOfNamespace() || len(used) < 2 || len(used) == n+1 || used[0].Name != "shared" && used[len(used)-1].Name != "shared" {
		t.Errorf("%d templates are used, which take %d bytes", len(used), sum)
	}
}

// TestNameOfInvalid checks that a template of a namespace never takes the place of one of the cluster, even
// if some replicas do not know its last valid content. All replicas leave it out.
func TestNameOfInvalid(t *testing.T) {
	for _, required := range []string{"required: false", "required: true"} {
		verdicts := map[bool]string{}
		for _, withTenant := range []bool{false, true} {
			old, fresh := newReplica(t), newReplica(t)
			old.sync()
			old.put("agent", "platform", required)
			old.reloadTemplates()
			fresh.generation = 1
			for _, r := range []*replica{old, fresh} {
				r.put("agent", "!", required)
				if withTenant {
					r.put("team-a/agent", "tenant", "default: true")
				}
			}
			old.reloadTemplates()
			fresh.sync()
			if strings.Contains(old.uses()+fresh.uses(), "team-a") {
				t.Errorf("they use %q and %q", old.uses(), fresh.uses())
			}
			for _, p := range [][2]*replica{{old, fresh}, {fresh, old}} {
				req := inject.Request{Operation: "CREATE", OptedIn: true, Object: []byte(`{"spec":{"containers":[{"name":"web","image":"web"}]}}`)}
				req.Namespace.Name = "team-a"
				injector, _ := p[0].injectorAndJudge("team-a")
				result, err := injector.Inject(req)
				clitest.Must(t, err)
				req.Object = result.InjectedJSON()
				_, judge := p[1].injectorAndJudge("team-a")
				v, err := judge.Judge(req)
				clitest.Must(t, err)
				verdicts[withTenant] += v.Word() + " "
			}
		}
		if verdicts[true] != verdicts[false] {
			t.Errorf("%s: with the tenant's template: %s, and without it: %s", required, verdicts[true], verdicts[false])
		}
	}
}

// TestAccountsOfTenants checks that a template of a namespace that reads ServiceAccounts delays no other
// template, and no new replica, while these cannot be read.
func TestAccountsOfTenants(t *testing.T) {
	client := metadataClient(t)
	client.PrependReactor("list", "serviceaccounts", func(clienttesting.Action) (bool, k8sruntime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "", nil)
	})
	tenant := templateObject("team-a/own")
	tenant.SetGeneration(1)
	tenant.Object["spec"] = map[string]any{"default": true, "pod": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"own.example.com/x": "${serviceAccount.annotations[?'role'].orValue('none')}"}}}}
	r := newReplica(t)
	r.accounts = newAccounts(client)
	go r.accounts.followWanted(t.Context())
	r.take(tenant)
	r.put("shared", "1")
	r.sync()
	if _, err := r.checkReadiness(); err != nil {
		t.Error("a new replica is not ready:", err)
	}
	if detail, err := r.checkAccounts(); err != nil {
		t.Errorf("a new replica is not ready: %s, %v", detail, err)
	}
	before := r.currentSet().Revision
	r.put("shared", "2")
	r.reloadTemplates()
	if r.currentSet().Revision == before {
		t.Error("a template of the cluster waits")
	}
	for namespace, want := range map[string]inject.Code{"team-a": inject.CodeUnknownServiceAccount, "team-b": inject.CodeInjected} {
		req := inject.Request{Operation: "CREATE", OptedIn: true, Object: []byte(`{"spec":{"containers":[{"name":"web","image":"web"}]}}`)}
		req.Namespace = request.Namespace{Name: namespace, Known: true, ServiceAccounts: r.accounts}
		injector, _ := r.injectorAndJudge(namespace)
		result, err := injector.Inject(req)
		clitest.Must(t, err)
		if got := result.Decisions[len(result.Decisions)-1].Code; got != want {
			t.Errorf("a pod of %s: %s, want %s", namespace, got, want)
		}
	}
}

// TestLargeOfNamespace checks that the templates of a namespace have a limit in bytes, which bounds the memory
// and the time that they take.
func TestLargeOfNamespace(t *testing.T) {
	limits := kube.NewLimits()
	ofNamespace := int(limits.Size.Value())
	r := newReplica(t)
	r.sync()
	for i := range 3 {
		o := templateObject(fmt.Sprint("team-a/t", i))
		o.SetGeneration(1)
		o.SetCreationTimestamp(metav1.NewTime(time.Unix(1e9+int64(i), 0)))
		o.Object["spec"] = map[string]any{"description": strings.Repeat("x", ofNamespace*2/5), "pod": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/a": "b"}}}}
		r.take(o)
	}
	if got := r.uses(); !strings.Contains(got, "t0@") || !strings.Contains(got, "t1@") || strings.Contains(got, "t2@") {
		t.Errorf("used are %s", got)
	}
}

// BenchmarkTenantsMemory measures what a template of a namespace takes, with 2,000 of them in 1,000
// namespaces: each is as the example in the README.
func BenchmarkTenantsMemory(b *testing.B) {
	text, err := os.ReadFile("../../../examples/templates/log-agent.yaml")
	clitest.Must(b, err)
	var example unstructured.Unstructured
	clitest.Must(b, yaml.Unmarshal(text, &example.Object))
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := newReplica(b)
		for i := range 2000 {
			o := templateObject(fmt.Sprintf("n%d/t%d", i/2, i%2))
			o.Object["spec"] = k8sruntime.DeepCopyJSONValue(example.Object["spec"])
			o.SetGeneration(1)
			r.take(o)
		}
		r.sync()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if n := len(r.currentSet().Templates); n != 2000 {
			b.Fatal(n, "templates are used")
		}
	}
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/2000, "B/template")
}

// BenchmarkTenants measures 2,000 templates in 1,000 namespaces: a request, a change of one of them, and
// a change of a template of the cluster.
func BenchmarkTenants(b *testing.B) {
	r := newReplica(b)
	r.put("shared", "1")
	for i := range 1000 {
		r.put(fmt.Sprintf("n%d/a", i), "1")
		r.put(fmt.Sprintf("n%d/b", i), "1")
	}
	r.sync()
	few := newReplica(b)
	few.put("shared", "1")
	few.put("n1/a", "1")
	few.put("n1/b", "1")
	few.sync()
	for _, of := range []struct {
		name string
		r    *replica
	}{{"request/2", few}, {"request/2000", r}} {
		b.Run(of.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				injector, _ := of.r.injectorAndJudge("n1")
				req := inject.Request{Operation: "CREATE", OptedIn: true, Object: []byte(`{"spec":{"containers":[{"name":"web","image":"web"}]}}`)}
				req.Namespace.Name = "n1"
				_, err := injector.Inject(req)
				clitest.Must(b, err)
			}
		})
	}
	for _, name := range []string{"n1/a", "shared"} {
		b.Run("change/"+name, func(b *testing.B) {
			i := 0
			for b.Loop() {
				i++
				r.put(name, fmt.Sprint("x", i))
				r.reloadTemplates()
			}
		})
	}
}
