// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// rolloutAPI is an API with a pod in each of some namespaces. The pod has an older image of the template agent, and the
// annotations that are given. Objects are templates of namespaces.
func rolloutAPI(t testing.TB, namespaces []string, annotations map[string]string, objects ...any) clitest.API {
	t.Helper()
	template := func(image string) map[string]any {
		var o map[string]any
		clitest.Must(t, json.Unmarshal(fmt.Appendf(nil, `{"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "metadata": {"name": "agent"}, "spec": {"default": true,
			"pod": {"spec": {"initContainers": [{"name": "agent", "image": %q, "restartPolicy": "Always", "resources": {"limits": {"memory": %q}}}]}}}}`, image, image[len("agent:"):]+"Mi"), &o))
		return o
	}
	old, err := json.Marshal(template("agent:1"))
	clitest.Must(t, err)
	set, err := templates.Load(templates.Source{Name: "old.yaml", Data: old})
	clitest.Must(t, err)
	api := clitest.API{
		"/api/v1": metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods/resize"}}},
		"/api/v1/namespaces/pillion-system/configmaps/pillion-templates": configMap("pillion-templates", nil),
		"/apis/pillion.dev/v1alpha1/clustersidecartemplates":             listOf(template("agent:2")),
		"/apis/pillion.dev/v1alpha1/sidecartemplates":                    listOf(objects...),
	}
	for _, namespace := range namespaces {
		ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{inject.LabelInject: inject.Enabled}}}
		api["/api/v1/namespaces/"+namespace] = ns
		for _, kind := range Kinds() {
			path := "/api/v1"
			if kind.Group != "" {
				path = "/apis/" + kind.Group + "/v1"
			}
			api[path+"/namespaces/"+namespace+"/"+kind.resource] = listOf()
		}
		text, err := json.Marshal(corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace, UID: "u", Annotations: annotations},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
		})
		clitest.Must(t, err)
		r, err := inject.New(set).Inject(inject.Request{Operation: "CREATE", OptedIn: true, Object: text, Namespace: request.Namespace{Name: namespace, Labels: ns.Labels, Known: true}})
		clitest.Must(t, err)
		var pod map[string]any
		clitest.Must(t, json.Unmarshal(r.InjectedJSON(), &pod))
		pod["apiVersion"], pod["kind"] = "v1", "Pod"
		pod["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "kube-controller-manager", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{
			"f:spec": map[string]any{"f:containers": map[string]any{`k:{"name":"web"}`: map[string]any{".": map[string]any{}, "f:image": map[string]any{}}}},
		}}}
		api["/api/v1/namespaces/"+namespace+"/pods"], api["/api/v1/namespaces/"+namespace+"/pods/web"] = listOf(pod), pod
		api["/api/v1/namespaces/"+namespace+"/pods/web/resize"] = pod
	}
	return api
}

func clientOf(t testing.TB, api http.Handler) *Client {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL, QPS: -1}, "pillion-system") // without client-go's own limit
	clitest.Must(t, err)
	return c
}

// counter is a rate limiter that counts the requests that it lets through.
type counter struct {
	flowcontrol.RateLimiter

	n atomic.Int64
}

func (c *counter) Wait(context.Context) error { c.n.Add(1); return nil }
func (c *counter) Accept()                    { c.n.Add(1) }
func (c *counter) TryAccept() bool            { c.n.Add(1); return true }

// TestLimit checks that each request of a rollout passes the same rate limiter: those of the plan, and all kinds of
// those of the executor.
func TestLimit(t *testing.T) {
	t.Parallel()
	api, limiter := rolloutAPI(t, []string{"shop"}, nil), &counter{}
	var sent atomic.Int64
	seen := map[string]int{}
	c := clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // one request at a time
		if n := sent.Add(1); n != limiter.n.Load() {
			t.Errorf("%s %s is request %d, and the limiter has let through %d", r.Method, r.URL.Path, n, limiter.n.Load())
		}
		seen[r.Method]++
		api.ServeHTTP(w, r)
	}))
	clitest.Must(t, c.setRateLimiter(limiter))
	targets, err := c.Rollout(t.Context(), Query{Namespaces: []string{"shop"}}, Bounds{}, io.Discard)
	clitest.Must(t, err)
	if len(targets.Workloads) != 1 || targets.Workloads[0].Way != rollout.ChangeInPlace || seen[http.MethodPatch] != 1 {
		t.Fatalf("the plan is %+v, with the requests %v", targets.Workloads, seen)
	}
	ctx, cluster := t.Context(), c.Executor()
	w := &rollout.Workload{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	for what, request := range map[string]func() error{
		"get a pod": func() error { _, err := cluster.Pod(ctx, "shop", "web"); return err },
		"patch": func() error {
			return cluster.PatchPod(ctx, executor.Patch{Namespace: "shop", Name: "web", Operations: []byte("[]")})
		},
		"resize": func() error {
			return cluster.PatchPod(ctx, executor.Patch{Namespace: "shop", Name: "web", Subresource: "resize"})
		},
		"evict": func() error { return cluster.Evict(ctx, "shop", "web", "u") },
		"list pods": func() error {
			_, err := cluster.EachPod(ctx, "shop", metav1.ListOptions{}, func(*corev1.Pod) error { return nil })
			return err
		},
		"get a workload":  func() error { _, err := cluster.Workload(ctx, w); return err },
		"restart":         func() error { _, err := cluster.Restart(ctx, w); return err },
		"list budgets":    func() error { _, err := cluster.Budgets(ctx, "shop"); return err },
		"list events":     func() error { cluster.Failure(ctx, &corev1.Pod{}, "", time.Time{}); return nil },
		"list namespaces": func() error { _, err := c.Labelled(ctx, "a=b", nil); return err },
	} {
		before := sent.Load()
		_ = request() // an API without the object is enough
		if n := sent.Load() - before; n != 1 {
			t.Errorf("%s sends %d requests", what, n)
		}
	}
	if seen[http.MethodPost] != 1 || sent.Load() != limiter.n.Load() {
		t.Errorf("%d requests (%v), and the limiter has let through %d", sent.Load(), seen, limiter.n.Load())
	}
}

// roundTripper is a function that answers requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestMaxLists checks that a rollout reads no more than maxLists lists of pods at the same time, and that the others follow. One whose
// context ends waits no more.
func TestMaxLists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reading, read atomic.Int64
		answer := make(chan struct{})
		c, err := NewClient(&rest.Config{Host: "http://api.example", QPS: -1, Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			reading.Add(1)
			defer reading.Add(-1)
			<-answer
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"items":[]}`))}, nil
		})}, "pillion-system")
		clitest.Must(t, err)
		cluster := c.Executor()
		list := func(ctx context.Context) error {
			_, err := cluster.EachPod(ctx, "shop", metav1.ListOptions{}, func(*corev1.Pod) error { return nil })
			return err
		}
		const all = 3 * maxLists
		for range all {
			go func() {
				if err := list(t.Context()); err != nil {
					t.Error(err)
				}
				read.Add(1)
			}()
		}
		synctest.Wait()
		if n := reading.Load(); n != maxLists {
			t.Errorf("%d lists are read at the same time, want %d", n, maxLists)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := list(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled list ends with %v", err)
		}
		close(answer)
		synctest.Wait()
		if n := read.Load(); n != all {
			t.Errorf("%d of %d lists were read", n, all)
		}
	})
}

// TestLimitRate checks that the limit allows no burst.
func TestLimitRate(t *testing.T) {
	t.Parallel()
	c := clientOf(t, clitest.API{})
	clitest.Must(t, c.Limit(3))
	if qps := c.config.RateLimiter.QPS(); qps != 3 {
		t.Errorf("the limit is %v requests per second, want 3", qps)
	}
	begin := time.Now()
	first, second := c.config.RateLimiter.TryAccept(), c.config.RateLimiter.TryAccept()
	if !first || second && time.Since(begin) < time.Second/4 {
		t.Errorf("two requests at once are allowed: %t, %t", first, second)
	}
}

// TestRolloutTenants checks that templates of namespaces do not affect rollouts elsewhere: those that are invalid, that
// name others which they may not replace, or that have the name of a template of the cluster.
func TestRolloutTenants(t *testing.T) {
	t.Parallel()
	template := func(namespace, name, spec string) map[string]any {
		o := templateObject("SidecarTemplate", namespace, name)
		of := o["spec"].(map[string]any)
		of["default"] = true
		clitest.Must(t, json.Unmarshal([]byte(spec), &of))
		return o
	}
	const sidecar = `"pod": {"spec": {"initContainers": [{"name": "agent", "image": "evil:1", "restartPolicy": "Always"}]}}`
	for what, object := range map[string]map[string]any{
		"nothing":                           nil,
		"invalid":                           template("tenant", "broken", `{"pod": {"spec": {"containers": "none"}}}`),
		"replaces none":                     template("tenant", "next", `{"replaces": "none", `+sidecar+`}`),
		"replaces one of the cluster":       template("tenant", "next", `{"replaces": "agent", `+sidecar+`}`),
		"replaces one of another namespace": template("tenant", "next", `{"replaces": "of-shop", `+sidecar+`}`),
		"the name of one of the cluster":    template("tenant", "agent", `{`+sidecar+`, "rollout": {"strategy": "InPlaceOrRestart"}}`),
	} {
		objects := []any{templateObject("SidecarTemplate", "shop", "of-shop")}
		if object != nil {
			objects = append(objects, object)
		}
		c := clientOf(t, rolloutAPI(t, []string{"shop", "tenant"}, nil, objects...))
		targets, err := c.Rollout(t.Context(), Query{Namespaces: []string{"shop", "tenant"}}, Bounds{Object: "clustersidecartemplate/agent"}, io.Discard)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for _, namespace := range []string{"shop", "tenant"} {
			n := 0
			for _, w := range targets.Workloads {
				if w.Namespace == namespace && w.Way == rollout.ChangeInPlace && strings.HasPrefix(w.Behind[0].Summary(), "image of agent") {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%s: the plan for %s is %+v", what, namespace, targets.Workloads)
			}
		}
		targets, err = c.Rollout(t.Context(), Query{Namespaces: []string{"shop", "tenant"}}, Bounds{Object: "sidecartemplate/tenant/agent"}, io.Discard)
		if err != nil || len(targets.Workloads) > 0 {
			t.Errorf("%s: the rollout of a template that is not used: %+v, %v", what, targets, err)
		}
	}
}

// TestRolloutOtherContent checks that there is no plan if the API server has another content of the template than the caller, or if
// Pillion does not use the template, although the caller knows a revision. An empty plan would mean that no pod is left.
func TestRolloutOtherContent(t *testing.T) {
	t.Parallel()
	invalid := templateObject("SidecarTemplate", "shop", "own")
	delete(invalid, "spec")
	c := clientOf(t, rolloutAPI(t, []string{"shop"}, nil, invalid, templateObject("SidecarTemplate", "shop", "agent")))
	for object, want := range map[string]string{
		"clustersidecartemplate/agent": ErrOtherContent.Error(),
		"clustersidecartemplate/none":  "the template clustersidecartemplate/none is not used",
		"sidecartemplate/shop/own":     "the template sidecartemplate/shop/own is not used",
		"sidecartemplate/shop/agent":   "the template sidecartemplate/shop/agent is not used", // one of the cluster has the name
	} {
		for _, undo := range []bool{false, true} {
			bounds := Bounds{Object: object, Revision: "0123456789ab", InPlace: true, Undo: undo}
			targets, err := c.Rollout(t.Context(), Query{Namespaces: []string{"shop"}}, bounds, io.Discard)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: the plan is %+v, %v", bounds, targets, err)
			}
		}
	}
}

// TestRolloutInvalid checks that pods stay unchanged if they have a template of their namespace whose content is
// invalid.
func TestRolloutInvalid(t *testing.T) {
	t.Parallel()
	broken := templateObject("SidecarTemplate", "shop", "broken")
	delete(broken, "spec")
	c := clientOf(t, rolloutAPI(t, []string{"shop"}, map[string]string{"broken.pillion.dev/injected": "0123456789ab"}, broken))
	targets, err := c.Rollout(t.Context(), Query{Namespaces: []string{"shop"}}, Bounds{}, io.Discard)
	clitest.Must(t, err)
	if len(targets.Workloads) != 1 || targets.Workloads[0].Way != rollout.Cannot || !strings.Contains(targets.Workloads[0].Why, "sidecartemplate/shop/broken is invalid, and Pillion may still use its last valid content") {
		t.Errorf("%+v", targets.Workloads)
	}
}

// TestBounds checks which templates the name of one selects.
func TestBounds(t *testing.T) {
	t.Parallel()
	set := &templates.Set{Templates: []*templates.Template{{Name: "agent", File: "clustersidecartemplate/agent"}, {Name: "own", Namespace: "shop", File: "sidecartemplate/shop/own"}, {Name: "own", Namespace: "pay", File: "sidecartemplate/pay/own"}}}
	for _, test := range []struct {
		b    Bounds
		want string
	}{
		{Bounds{}, "agent shop/own pay/own"},
		{Bounds{Template: "agent"}, "agent"},
		{Bounds{Template: "own"}, "shop/own pay/own"},
		{Bounds{Template: "pay/own"}, "pay/own"},
		{Bounds{Template: "own/pay"}, ""},
		{Bounds{Template: "shop/agent"}, ""},
		{Bounds{Object: "sidecartemplate/shop/own"}, "shop/own"},
		{Bounds{Object: "sidecartemplate/shop/agent"}, ""},
	} {
		b, want := test.b, test.want
		var got []string
		for _, of := range set.Templates {
			if b.includesTemplate(of) {
				got = append(got, of.ID())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%+v selects %q, want %q", b, got, want)
		}
		if err := b.checkTemplate(set); (err == nil) != (want != "" || b.Object != "") {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

// TestRolloutGone checks that a plan of the controller does without a namespace that was deleted after it was listed.
func TestRolloutGone(t *testing.T) {
	api := rolloutAPI(t, []string{"shop", "gone"}, nil)
	delete(api, "/api/v1/namespaces/gone")
	c := clientOf(t, api)
	q := Query{Namespaces: []string{"shop", "gone"}}
	if _, err := c.Rollout(t.Context(), q, Bounds{Object: "clustersidecartemplate/agent"}, io.Discard); err != nil {
		t.Error(err)
	}
	if _, err := c.Rollout(t.Context(), q, Bounds{}, io.Discard); err == nil {
		t.Error("a user who names a namespace that does not exist gets no error")
	}
}

// TestStatusOfRollout checks that status does not report that there are no problems if a rollout has stopped, also if all pods
// are current, and that it has a note about each rollout that is not complete.
func TestStatusOfRollout(t *testing.T) {
	t.Parallel()
	condition := func(kind, status, reason, message string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": message}
	}
	for what, test := range map[string]struct {
		progressing, degraded map[string]any
		note                  string // "": none
		stopped               bool
	}{
		"complete": {condition("Progressing", "False", "Complete", ""), condition("Degraded", "False", "AsExpected", "No pod has failed."), "", false},
		"running":  {condition("Progressing", "True", "Updating", "Wave 1 of 3."), condition("Degraded", "False", "AsExpected", "No pod has failed."), "is running: Wave 1 of 3.", false},
		"stopped":  {condition("Progressing", "False", "Stopped", ""), condition("Degraded", "True", "Failed", "pod web-0 crashes."), "has stopped: pod web-0 crashes.", true},
		"it stopped, and runs in other namespaces": {condition("Progressing", "True", "Updating", "Wave 1 of 3."), condition("Degraded", "True", "Failed", "pod web-0 crashes."), "has stopped: pod web-0 crashes.", true},
		"being undone": {condition("Progressing", "True", "Undoing", ""), condition("Degraded", "True", "Failed", "It is being undone."), "is being undone: It is being undone.", true},
		"undone":       {condition("Progressing", "False", "Stopped", ""), condition("Degraded", "True", "Undone", "2 pods were put back."), "was undone: 2 pods were put back.", true},
	} {
		current := templateObject("SidecarTemplate", "shop", "current")
		current["status"] = map[string]any{"conditions": []any{test.progressing, test.degraded}}
		api := rolloutAPI(t, []string{"shop"}, nil, current)
		api["/api/v1/namespaces/shop/pods"] = listOf()
		c := clientOf(t, api)
		report, err := c.Report(t.Context(), Query{Namespaces: []string{"shop"}}, io.Discard)
		clitest.Must(t, err)
		if says := strings.Contains(report.Summary, "1 automatic rollout has stopped"); says != test.stopped || report.Stopped > 0 != test.stopped {
			t.Errorf("%s: %s", what, report.Summary)
		}
		if notes := strings.Join(report.Notes, " "); strings.Contains(notes, "The automatic rollout of sidecartemplate/shop/current "+test.note) != (test.note != "") {
			t.Errorf("%s: the notes are %s", what, notes)
		}
	}
}
