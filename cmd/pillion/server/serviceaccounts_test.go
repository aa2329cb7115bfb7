// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

func serviceAccount(name, role string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: "0ae0b4a2-7f5c-4c39-8a3f-5f2c3d7a9b10",
			Annotations:   map[string]string{"role": role, corev1.LastAppliedConfigAnnotation: strings.Repeat("x", 300)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 400))}},
		},
	}
}

func metadataClient(t testing.TB, objects ...k8sruntime.Object) *fake.FakeMetadataClient {
	t.Helper()
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewSimpleMetadataClient(scheme, objects...)
}

const readsAccount = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  required: true
  pod: {spec: {containers: [{name: agent, image: a, args: ["${serviceAccount.annotations[?'role'].orValue('none')}"]}]}}
`

// eventually waits for a condition without a limit of its own: the test's deadline is the limit.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for !holds() {
		select {
		case <-t.Context().Done():
			t.Fatal("never: " + what)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestReloadBeginsToReadServiceAccounts checks that a set that reads ServiceAccounts is used as soon
// as these are loaded and not before, and that they are watched only as long as a set that counts
// reads them.
func TestReloadBeginsToReadServiceAccounts(t *testing.T) {
	t.Parallel()
	client, forbidden := metadataClient(t, serviceAccount("web", "first")), true
	release := make(chan struct{})
	client.PrependReactor("list", "serviceaccounts", func(clienttesting.Action) (bool, k8sruntime.Object, error) {
		if forbidden {
			forbidden = false
			return true, nil, apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "", nil)
		}
		<-release
		return false, nil, nil
	})
	file := filepath.Join(t.TempDir(), "t.yaml")
	clitest.Write(t, file, clitest.AgentTemplate)
	a := newAccounts(client)
	e, err := newTemplateReloader(sources{paths: []string{file}, accounts: a}, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	clitest.Must(t, err)
	settled := []func(){}
	e.later = func(_ time.Duration, f func()) { settled = append(settled, f) }
	go a.followWanted(t.Context())
	if detail, err := e.checkAccounts(); err != nil || detail != "no template reads them" {
		t.Errorf("at first: %q %v", detail, err)
	}
	before := e.currentSet().Revision
	clitest.Write(t, file, readsAccount)
	e.reloadTemplates()
	if e.currentSet().Revision != before {
		t.Error("the set is in use before the ServiceAccounts are known")
	}
	eventually(t, "the missing right is reported", func() bool {
		detail, err := e.checkAccounts()
		return err == nil && strings.Contains(detail, "forbidden")
	})
	if detail, err := e.checkReadiness(); err != nil || !strings.Contains(detail, "waits for the ServiceAccounts") {
		t.Errorf("while it waits: %q %v", detail, err)
	}
	close(release)
	eventually(t, "the new set is in use", func() bool { return e.currentSet().Revision != before })
	if got := a.ServiceAccount("shop", "web"); !got.Known || got.Annotations["role"] != "first" || got.Annotations[corev1.LastAppliedConfigAnnotation] != "" {
		t.Errorf("it is %+v", got)
	}
	if a.ServiceAccount("shop", "other").Known || a.ServiceAccount("other", "web").Known {
		t.Error("one that does not exist is known")
	}
	clitest.Write(t, file, clitest.AgentTemplate)
	e.reloadTemplates()
	if a.current.Load() == nil {
		t.Error("a set that still counts reads them")
	}
	for _, f := range settled {
		f()
	}
	if a.current.Load() != nil {
		t.Error("no set reads them any more")
	}
}

// TestServiceAccountBefore checks that pods of a moment ago are correct by what the ServiceAccount was
// then, and not longer.
func TestServiceAccountBefore(t *testing.T) {
	t.Parallel()
	client := metadataClient(t, serviceAccount("web", "r0"))
	a := newAccounts(client)
	expire := make(chan func(), 100)
	a.later = func(_ time.Duration, f func()) { expire <- f }
	synced := make(chan struct{})
	a.synced = func() { close(synced) }
	a.setWanted(true)
	go a.followWanted(t.Context())
	<-synced
	found, problems := templates.Parse("t", []byte(readsAccount))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	judge := inject.NewJudge(inject.New(templates.NewSet(found)), nil, true)
	verdict := func(role string) string {
		v, err := judge.Judge(inject.Request{
			Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop", Known: true, ServiceAccounts: a},
			Object: fmt.Appendf(nil, `{"metadata":{"annotations":{"agent.pillion.dev/injected":%q}},"spec":{"serviceAccountName":"web","containers":[{"name":"web","image":"w"},{"name":"agent","image":"a","args":[%q]}]}}`, found[0].Revision, role),
		})
		clitest.Must(t, err)
		if v.Doubt {
			return "doubted"
		}
		return v.Word()
	}
	for i := 1; i <= 5; i++ {
		object := serviceAccount("web", fmt.Sprint("r", i))
		clitest.Must(t, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), object, "shop"))
		eventually(t, "the change is seen", func() bool { return a.ServiceAccount("shop", "web").Annotations["role"] == fmt.Sprint("r", i) })
		<-expire
	}
	for role, want := range map[string]string{"r5": "allowed", "r4": "allowed", "r2": "allowed", "r1": "doubted", "x": "doubted"} {
		if got := verdict(role); got != want {
			t.Errorf("a pod with the role %s is %s, want %s", role, got, want)
		}
	}
}

// TestNamespaceBefore checks that a pod is correct by the annotations that its namespace had a moment
// ago, and not by others.
func TestNamespaceBefore(t *testing.T) {
	t.Parallel()
	namespace := func(level string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"agent.pillion.dev/level": level}},
		}
	}
	client := metadataClient(t, namespace("l0"))
	i := informNamespaces(client)
	var expire atomic.Value
	i.later = func(_ time.Duration, f func()) { expire.Store(f) }
	go i.controller.RunWithContext(t.Context())
	found, problems := templates.Parse("t", []byte("{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: agent}, spec: {required: true, params: [{name: level}], "+
		"pod: {spec: {containers: [{name: agent, image: a, args: ['${params.level}']}]}}}}"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	injector := inject.New(templates.NewSet(found))
	request := func() inject.Request {
		var ns request.Namespace
		eventually(t, "the namespace is known", func() (known bool) {
			var err error
			ns, err = i.Namespace("shop")
			return err == nil
		})
		return inject.Request{Operation: "CREATE", OptedIn: true, Namespace: ns, Object: []byte(`{"spec":{"containers":[{"name":"web","image":"w"}]}}`)}
	}
	injected, err := injector.Inject(request())
	clitest.Must(t, err)
	verdict := func() string {
		req := request()
		req.Object = injected.InjectedJSON()
		v, err := inject.NewJudge(injector, nil, true).Judge(req)
		clitest.Must(t, err)
		return v.Word()
	}
	clitest.Must(t, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), namespace("l1"), ""))
	eventually(t, "the change is seen", func() bool { return expire.Load() != nil })
	if got := verdict(); got != "allowed" {
		t.Errorf("just after the change, the pod is %s", got)
	}
	expire.Load().(func())()
	if got := verdict(); got != "denied" {
		t.Errorf("later, the pod is %s", got)
	}
}

// TestMetadataMemory checks that the memory of namespaces and ServiceAccounts does not depend on what users write into them:
// now, and a moment ago. One with too much of it gives an error, and no wrong values.
func TestMetadataMemory(t *testing.T) {
	n := size.Choose(t, 60, 1000)
	object := func(kind, namespace, name string, size int) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, Labels: map[string]string{"a": strings.Repeat("l", size/4)},
				Annotations: map[string]string{"role": strings.Repeat("x", size)},
			},
		}
	}
	i := informNamespaces(metadataClient(t))
	i.later = func(time.Duration, func()) {}
	a := i.accounts.newAccountInformer()
	a.later = i.later
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for k := range n {
		name := fmt.Sprint("n", k)
		for step, size := range []int{200, 1000, 3000, 250 << 10} {
			namespace, account := compactObject(object("Namespace", "", name, size+k), maxNamespace), compactObject(object("ServiceAccount", "shop", name, size+k), maxAccount)
			if old := i.objectByKey(name); step > 0 {
				i.keepFormer(old, namespace)
				a.keepFormer(a.objectByKey("shop/"+name), account)
			}
			clitest.Must(t, i.store.Update(namespace))
			clitest.Must(t, a.store.Update(account))
		}
	}
	each := (heap() - before) / int64(n)
	t.Logf("%d bytes for each namespace and ServiceAccount", each)
	if each > 20_000 {
		t.Errorf("each namespace and ServiceAccount takes %d bytes", each)
	}
	if _, err := i.Namespace("n1"); !errors.Is(err, webhook.ErrNamespaceTooLarge) || !strings.Contains(err.Error(), "32 KiB") {
		t.Errorf("the error is %v", err)
	}
	if got := a.findAccount("shop", "n1"); got.Known {
		t.Error("the ServiceAccount is known")
	}
	clitest.Must(t, i.store.Update(compactObject(object("Namespace", "", "n1", 20<<10), maxNamespace)))
	if ns, err := i.Namespace("n1"); err != nil || len(ns.Annotations["role"]) != 20<<10 {
		t.Errorf("an ordinary namespace is %.100v, %v", ns, err)
	}
}

// TestManyAccounts checks that very many large ServiceAccounts of one namespace take no more memory than its share, and that those
// of other namespaces are known beside them.
func TestManyAccounts(t *testing.T) {
	t.Parallel()
	const n = 1000
	var objects []k8sruntime.Object
	for k := range n {
		account := serviceAccount(fmt.Sprint("a", k), strings.Repeat("x", maxAccount-100))
		account.Namespace = "tenant"
		objects = append(objects, account)
	}
	client := metadataClient(t, append(objects, serviceAccount("web", "reader"))...)
	i := newAccounts(client).newAccountInformer()
	go i.controller.RunWithContext(t.Context())
	eventually(t, "the ServiceAccounts are loaded", i.controller.HasSynced)
	kept := func() (n, bytes int) {
		for _, object := range i.store.List() {
			if m := object.(*metav1.PartialObjectMetadata); m.Namespace == "tenant" && !isTooLarge(m) {
				n, bytes = n+1, bytes+contentSize(m)
			}
		}
		return n, bytes
	}
	if n, bytes := kept(); bytes > maxAccounts || bytes < maxAccounts/2 {
		t.Errorf("%d ServiceAccounts are kept, with %d bytes", n, bytes)
	}
	if got := i.findAccount("shop", "web"); !got.Known || got.Annotations["role"] != "reader" {
		t.Errorf("the ServiceAccount of another namespace is %v", got)
	}
	accounts := corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	for k := range n {
		clitest.Must(t, client.Tracker().Delete(accounts, "tenant", fmt.Sprint("a", k)))
		if k%50 == 49 { // the fake watch has a short queue
			eventually(t, "the deletion is seen", func() bool { return i.objectByKey(fmt.Sprint("tenant/a", k)) == nil })
		}
	}
	small := serviceAccount("small", "r")
	small.Namespace = "tenant"
	clitest.Must(t, client.Tracker().Create(accounts, small, "tenant"))
	eventually(t, "a ServiceAccount is known after the others were deleted", func() bool { return i.findAccount("tenant", "small").Known })
	small.Annotations = map[string]string{"role": strings.Repeat("x", 1000)}
	clitest.Must(t, client.Tracker().Update(accounts, small, "tenant"))
	eventually(t, "its change is known", func() bool { return len(i.findAccount("tenant", "small").Annotations["role"]) == 1000 })
	if n, _ := kept(); n != 1 {
		t.Errorf("%d ServiceAccounts are kept", n)
	}
}

// TestRoom checks that what a namespace uses is what its objects have, whatever happens to these.
func TestRoom(t *testing.T) {
	t.Parallel()
	r, random := newRoom(2000), rand.New(rand.NewPCG(1, 2))
	has := map[string]int{}
	for range size.Choose(t, 2000, 50_000) {
		m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("n", random.IntN(2)), Name: fmt.Sprint("a", random.IntN(20))}}
		key := m.Namespace + "/" + m.Name
		delete(has, key)
		switch n := random.IntN(500); {
		case n < 100:
			r.dropDeleted(m)
			continue
		case n < 150:
			r.dropDeleted(cache.DeletedFinalStateUnknown{Key: key})
			continue
		case n > 200:
			m.Annotations = map[string]string{"a": strings.Repeat("x", n-1)}
		}
		if kept := r.keepIfRoom(m); !isTooLarge(kept) && contentSize(kept) > 0 {
			has[key] = contentSize(kept) + perObject
		}
		used := map[string]int{}
		for key, n := range has {
			used[key[:2]] += n
		}
		if !maps.Equal(used, r.used) || used["n0"] > r.most || used["n1"] > r.most {
			t.Fatalf("used are %v, and counted %v", used, r.used)
		}
	}
	if len(has) == 0 {
		t.Error("nothing was kept")
	}
}

// TestFormersMemory checks that former states have a limit together, and are dropped later.
func TestFormersMemory(t *testing.T) {
	i := informNamespaces(metadataClient(t))
	var later []func()
	i.later = func(_ time.Duration, f func()) { later = append(later, f) }
	object := func(name, value string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"a": strings.Repeat(value, maxNamespace-100)}}}
	}
	for k := range 200 {
		for _, values := range []string{"xy", "yz", "zx"} {
			i.keepFormer(object(fmt.Sprint("n", k), values[:1]), object(fmt.Sprint("n", k), values[1:]))
		}
	}
	sum := int64(0)
	i.former.Range(func(_, former any) bool {
		sum += totalSize(*former.(*[]*metav1.PartialObjectMetadata))
		return true
	})
	if sum != i.formers.Load() || sum > maxFormers || sum < maxFormers/2 {
		t.Errorf("the former states have %d bytes, and %d are counted", sum, i.formers.Load())
	}
	for _, f := range later {
		f()
	}
	if left := i.formers.Load(); left != 0 || len(i.formerVersions("n1")) > 0 {
		t.Errorf("%d bytes are left", left)
	}
}

// BenchmarkServiceAccounts reports the memory for each ServiceAccount.
func BenchmarkServiceAccounts(b *testing.B) {
	const many = 10_000
	var objects []k8sruntime.Object
	for i := range many {
		objects = append(objects, serviceAccount(fmt.Sprint("account-", i), fmt.Sprint("arn:aws:iam::123456789012:role/account-", i)))
	}
	var before, after runtime.MemStats
	for b.Loop() {
		i := newAccounts(metadataClient(b)).newAccountInformer()
		runtime.GC()
		runtime.ReadMemStats(&before)
		for _, object := range objects {
			m := object.(*metav1.PartialObjectMetadata).DeepCopy()
			m.SetManagedFields(nil)
			delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
			if err := i.store.Add(compactObject(m, maxAccount)); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(i)
	}
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/many, "B/account")
}
