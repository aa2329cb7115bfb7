// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const agent = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  pod:
    spec:
      initContainers:
      - {name: agent, restartPolicy: Always, image: "agent:%d", resources: {limits: {memory: %dMi}}}
`

func injector(t *testing.T, version int) *inject.Injector {
	t.Helper()
	set, err := templates.Load(templates.Source{Name: "agent.yaml", Data: fmt.Appendf(nil, agent, version, version*32)})
	must(t, err)
	return inject.New(set)
}

// fake is a cluster with pods and a kubelet. It serves one request at a time.
type fake struct {
	mu        sync.Mutex
	pods      map[string]*corev1.Pod
	order     []string
	budgets   []executor.Budget
	old       *inject.Injector
	planner   *rollout.Planner
	kubelet   func(*corev1.Pod) // after a change of a pod; nil: all becomes well
	reacts    func(*corev1.Pod) // instead of the kubelet; the pod has its former status
	meanwhile func(*corev1.Pod) // somebody changes a pod after it was read
	event     string            // why a container does not start
	symptom   string            // the last message about its probes
	hold      int               // polls until a changed pod is ready
	changes   chan struct{}     // what a watch receives
	held      map[string]int
	calls     []string
	failAt    int // the call that fails
	failAfter bool
	most      int // pods that were not ready at the same time
}

func newFake(t *testing.T, pods int) *fake {
	t.Helper()
	c := &fake{pods: map[string]*corev1.Pod{}, held: map[string]int{}, old: injector(t, 1), failAt: -1}
	c.planner = &rollout.Planner{
		Injector: injector(t, 2), Resizes: true, Called: func([]byte) bool { return true },
		Namespace: request.Namespace{Name: "shop", Labels: map[string]string{"pillion.dev/inject": "enabled"}, Known: true},
	}
	for i := range pods {
		name := fmt.Sprintf("web-%d", i)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID("u-" + name), CreationTimestamp: metav1.Now()},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
		}
		text, err := json.Marshal(pod)
		must(t, err)
		r, err := c.old.Inject(inject.Request{Operation: "CREATE", Namespace: c.planner.Namespace, Object: text, OptedIn: true})
		must(t, err)
		*pod = corev1.Pod{}
		must(t, json.Unmarshal(r.InjectedJSON(), pod))
		pod.ManagedFields = []metav1.ManagedFieldsEntry{owner("kube-controller-manager", pod.CreationTimestamp)}
		well(pod)
		c.pods[name], c.order = pod, append(c.order, name)
	}
	return c
}

// owner owns the container of the template.
func owner(manager string, at metav1.Time) metav1.ManagedFieldsEntry {
	fields := `{"f:spec":{"f:initContainers":{"k:{\"name\":\"agent\"}":{".":{},"f:image":{},"f:resources":{}}}}}`
	if manager == rollout.Manager {
		fields = strings.Replace(fields, `".":{},`, "", 1)
	}
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
}

// well is the status of a pod after the kubelet has done everything.
func well(pod *corev1.Pod) {
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	for _, c := range pod.Spec.InitContainers {
		resources := c.Resources
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Resources: &resources,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
}

func (c *fake) unready() {
	for _, pod := range c.pods {
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
	}
}

// call counts a request. It returns an error before or after the request.
func (c *fake) call(what, name string) (before, after error) {
	n := len(c.calls)
	c.calls = append(c.calls, what+" "+name)
	if n != c.failAt {
		return nil, nil
	}
	broken := errors.New("the connection broke")
	if c.failAfter {
		return nil, broken
	}
	return broken, nil
}

func (c *fake) Pod(_ context.Context, _, name string) (*unstructured.Unstructured, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, after := c.call("get", name); before != nil || after != nil {
		return nil, errors.Join(before, after)
	}
	pod := c.pods[name]
	if c.meanwhile != nil {
		defer c.meanwhile(pod)
		pod = pod.DeepCopy()
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	return &unstructured.Unstructured{Object: out}, err
}

func (c *fake) ClaimPod(_ context.Context, pod *corev1.Pod, claim rollout.Claim) (*unstructured.Unstructured, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, after := c.call("claim", pod.Name)
	if before != nil {
		return nil, before
	}
	now := c.pods[pod.Name]
	if now == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	if now.ResourceVersion != pod.ResourceVersion {
		return nil, apierrors.NewConflict(corev1.Resource("pods"), pod.Name, errors.New("it has changed"))
	}
	changed := now.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, rollout.AnnotationUnproved, claim.String())
	c.pods[pod.Name] = changed
	if c.meanwhile != nil {
		defer c.meanwhile(changed)
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(changed.DeepCopy())
	return &unstructured.Unstructured{Object: out}, errors.Join(err, after)
}

func (c *fake) PatchPod(_ context.Context, p executor.Patch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	what := "patch"
	name := p.Name
	if p.Subresource != "" {
		what += " " + p.Subresource
	}
	if p.DryRun {
		what += " dry run"
	}
	before, after := c.call(what, name)
	if before != nil {
		return before
	}
	doc, err := json.Marshal(c.pods[name])
	if err != nil {
		return err
	}
	patch, err := jsonpatch.DecodePatch(p.Operations)
	if err != nil {
		return err
	}
	if doc, err = patch.Apply(doc); err != nil {
		return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false) // as the API server does
	}
	if p.DryRun {
		return after
	}
	changed := &corev1.Pod{}
	if err := json.Unmarshal(doc, changed); err != nil {
		return err
	}
	c.patched(changed, strings.Contains(string(p.Operations), "/spec/"))
	return after
}

// patched stores a pod. If its containers have changed, the kubelet reacts.
func (c *fake) patched(pod *corev1.Pod, containers bool) {
	if c.pods[pod.Name] = pod; !containers {
		return
	}
	if c.reacts != nil {
		c.reacts(pod)
		return
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{owner(rollout.Manager, metav1.Now())}
	switch {
	case c.hold > 0:
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
		pod.Status.InitContainerStatuses[0].Ready = false
		c.held[pod.Name] = c.hold
	default:
		well(pod)
	}
	if c.kubelet != nil {
		c.kubelet(pod)
	}
	n := 0
	for _, p := range c.pods {
		if !rollout.IsReady(p) {
			n++
		}
	}
	c.most = max(c.most, n)
}

func (c *fake) Budgets(context.Context, string) ([]executor.Budget, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, after := c.call("budgets", "")
	return c.budgets, errors.Join(before, after)
}

// InspectWorkload returns the pods of one of the two workloads, or of the only one.
func (c *fake) InspectWorkload(_ context.Context, w *rollout.Workload, _ *executor.Sight, each func(*corev1.Pod)) (*executor.Sight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, after := c.call("inspect", w.Name); before != nil || after != nil {
		return nil, errors.Join(before, after)
	}
	for i, name := range c.order {
		if w.Name == "first" && i > 0 || w.Name == "rest" && i == 0 {
			continue
		}
		if c.held[name] > 0 {
			if c.held[name]--; c.held[name] == 0 {
				well(c.pods[name])
			}
		}
		each(c.pods[name].DeepCopy())
	}
	return &executor.Sight{Desired: -1}, nil
}

// Watch returns a channel that receives when the kubelet of a changed pod has reported, or nothing without changes.
func (c *fake) Watch(context.Context, *rollout.Workload, *executor.Sight) <-chan struct{} {
	return c.changes
}

func (c *fake) Symptom(context.Context, *corev1.Pod, string) string { return c.symptom }

func (c *fake) Failure(_ context.Context, pod *corev1.Pod, _ string, _ time.Time) string {
	return c.event
}

func (c *fake) Evict(context.Context, string, string, string) error { return errors.ErrUnsupported }
func (c *fake) EachPod(context.Context, string, metav1.ListOptions, func(*corev1.Pod) error) (string, error) {
	return "", errors.ErrUnsupported
}

func (c *fake) Workload(context.Context, *rollout.Workload) (*unstructured.Unstructured, error) {
	return nil, errors.ErrUnsupported
}

func (c *fake) Restart(context.Context, *rollout.Workload) (time.Time, error) {
	return time.Time{}, errors.ErrUnsupported
}

func (c *fake) plan(t *testing.T, pod *corev1.Pod) *rollout.Pod {
	t.Helper()
	text, err := json.Marshal(pod)
	must(t, err)
	p, err := c.planner.Plan(text, nil)
	must(t, err)
	return p
}

func (c *fake) image(t *testing.T, name string) string {
	t.Helper()
	return c.pods[name].Spec.InitContainers[0].Image
}

// workloads are two: one with the first pod, and one with the others.
func (c *fake) workloads(t *testing.T) []*rollout.Workload {
	t.Helper()
	all := []*rollout.Workload{{Namespace: "shop", Kind: "Deployment", Name: "first"}, {Namespace: "shop", Kind: "Deployment", Name: "rest"}}
	for i, name := range c.order {
		w := all[min(i, 1)]
		w.Pods++
		if p := c.plan(t, c.pods[name]); p.Action != rollout.None {
			w.Behind = append(w.Behind, p)
		}
	}
	for _, w := range all {
		w.Choose(rollout.Owner{})
	}
	return all
}

// newLimits are those of a rollout of one workload at a time, in which a pod is proved at once.
func newLimits(t *testing.T, most string, timeout time.Duration) executor.Limits {
	t.Helper()
	u, err := rollout.ParseUnavailable(most)
	must(t, err)
	l := executor.Limits{Parallel: 1, Timeout: timeout, Poll: time.Millisecond}
	l.MaxUnavailable, l.Bake = []rollout.Unavailable{u}, new(time.Duration)
	return l
}

func firstWorkload(t *testing.T, r *executor.Rollout) {
	t.Helper()
	var err error
	r.Limits.FirstWorkloads, err = rollout.ParseUnavailable("1")
	must(t, err)
}

func (c *fake) tryRun(t *testing.T, options func(*executor.Rollout), events ...*[]executor.Event) error {
	t.Helper()
	r := &executor.Rollout{
		Cluster: c, Limits: newLimits(t, "100%", 10*time.Second),
		Plan: func(_ string, pod []byte) (*rollout.Pod, error) { return c.planner.Plan(pod, nil) },
		Report: func(e executor.Event) {
			for _, into := range events {
				*into = append(*into, e)
			}
		},
	}
	if options != nil {
		options(r)
	}
	return r.Run(t.Context(), c.workloads(t))
}

func (c *fake) runRollout(t *testing.T, options func(*executor.Rollout)) (events []executor.Event) {
	t.Helper()
	if err := c.tryRun(t, options, &events); err != nil {
		t.Fatal(err)
	}
	return events
}
