// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestBound checks the promise of a rollout with random clusters: at no time are more pods unready because of it than
// maxUnavailable and the budgets allow, also if several rollouts change the same pods at once: of two templates, and of the
// command and the controller. The image may fail at any time until a pod is proved, in all pods or some of
// them, for good or now and then. Meanwhile pods are deleted, nodes stop reporting, requests fail, clocks differ, and
// the processes of the rollouts are killed. Workloads share budgets, which come and go, and are scaled.
func TestBound(t *testing.T) {
	t.Parallel()
	all := size.Choose(t, 400, 100_000)
	const groups = 8
	for g := range groups {
		t.Run(fmt.Sprint("group ", g), func(t *testing.T) {
			t.Parallel()
			for i := g; i < all && !t.Failed(); i += groups {
				synctest.Test(t, func(t *testing.T) { newSimulation(t, uint64(i)).run(t) })
			}
		})
	}
}

// images are the two images of the template agent, which has nothing else that changes.
var images = sync.OnceValue(func() [2]*inject.Injector { return newInjectors("agent") })

// imagesOfTwo are those of the templates agent and proxy, which both change.
var imagesOfTwo = sync.OnceValue(func() [2]*inject.Injector { return newInjectors("agent", "proxy") })

func newInjectors(names ...string) (all [2]*inject.Injector) {
	for i := range all {
		var sources []templates.Source
		for _, name := range names {
			probe := fmt.Sprintf(", startupProbe: {tcpSocket: {port: 80}, periodSeconds: %d}", startupPeriod/time.Second)
			text := strings.ReplaceAll(strings.Replace(agent, ", resources: {limits: {memory: %dMi}}", probe, 1), "agent", name)
			sources = append(sources, templates.Source{Name: name + ".yaml", Data: fmt.Appendf(nil, text, i+1)})
		}
		set, err := templates.Load(sources...)
		if err != nil {
			panic(err)
		}
		all[i] = inject.New(set)
	}
	return all
}

// bad is how the new image fails.
type bad string

const (
	never    bad = "never"
	late     bad = "late"     // in each pod, some time after it was ready
	some     bad = "some"     // in some pods, at different times
	flaps    bad = "flaps"    // in each pod, for a while, again and again
	breaks   bad = "breaks"   // the sidecar is ready, and the app is not any more
	restarts bad = "restarts" // the sidecar crashes, and is ready at once
	shaky    bad = "shaky"    // each pod is ready, unready for a moment, and ready again, soon after its start; no failure
	unprobed bad = "unprobed" // each pod stays ready until its first startup probe, and then it never is; kubelets from 1.35 on do that
	probed   bad = "probed"   // the same, but the startup probe succeeds later; no failure
)

// startupPeriod is the period of the startup probes of sidecars.
const startupPeriod = 20 * time.Second

// simulation is a cluster with one or two workloads and a kubelet. Its pods are never changed: another one takes their place.
type simulation struct {
	*fake

	t        *testing.T
	rand     *rand.Rand
	seed     uint64
	sets     [2]*inject.Injector // the old and the new content
	only     []string            // of each rollout: the template whose changes it makes, or "" for all
	apps     []string            // the names of the workloads
	way      rollout.Way
	bad      bad
	after    time.Duration // until a pod fails
	start    time.Duration // until a new pod or image is ready, at most
	most     string
	budget   int                   // that a budget allows to be unready, or -1
	passing  passing               // another budget
	scales   bool                  // workloads are scaled
	limits   map[string][]numberAt // of pods that may be unready, by workload and for allBudgets, in the order in which they came
	bounds   map[string]int        // the limits when a rollout has last made another pod unready
	skew     time.Duration         // of the clock of the API server and kubelets
	errors   float64               // the share of requests that fail
	faults   bool                  // pods are deleted, and nodes stop reporting
	kills    int                   // how often the process is killed
	undo     bool                  // a failure undoes the rollout
	reapply  bool                  // after a failure, the user applies the old template
	atOnce   bool                  // a pod is proved when it is first seen ready with the change
	loses    int                   // how many responses of the next changes of pods are lost
	content  int                   // of the template: one of images
	states   map[string]*state
	watchers []chan<- struct{}
	version  int
	created  int
	broken   string // what was wrong
	deployed bool
	worst    int // the most pods that were unready because of the rollout
}

// passing is a budget that comes after a while, and goes later.
type passing struct {
	allows      int // -1: it never comes
	from, until time.Duration
	exists      bool
}

// numberAt is a number since a time.
type numberAt struct {
	n  int
	at time.Time
}

// allBudgets is the key of the limit by budgets, which select the pods of all workloads.
const allBudgets = "budgets"

// noBudget is the limit if there is no budget.
const noBudget = 1 << 30

// grace is how long a change may take that was decided with a limit. Only a pod that changes later has to respect the next one.
const grace = 10 * time.Second

// state is what the simulation knows of a pod.
type state struct {
	app        string
	ready      bool // what the kubelet reports
	silent     bool // its node does not report
	ours       bool // it is because of a rollout if the pod is not ready
	containers []container
}

// container is what the simulation knows of a sidecar.
type container struct {
	generation int
	ready      bool
	runs       string      // the image
	since      metav1.Time // when it started
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	r := rand.New(rand.NewPCG(seed, 1))
	n := 1 + r.IntN(12)
	c := &simulation{
		fake: &fake{pods: map[string]*corev1.Pod{}, held: map[string]int{}, failAt: -1}, t: t, rand: r, seed: seed, sets: images(), only: []string{""}, way: rollout.ChangeInPlace,
		bad: []bad{never, late, late, some, flaps, breaks, restarts, shaky, unprobed, probed}[r.IntN(10)], after: time.Duration(r.IntN(80)) * time.Second, start: time.Duration(r.IntN(30)) * time.Second,
		most: []string{"1", "2", "4", "25%", "50%", "100%"}[r.IntN(6)], budget: -1, states: map[string]*state{}, apps: []string{"web"}, passing: passing{allows: -1},
	}
	if r.IntN(3) == 0 {
		c.way = rollout.Evict
	}
	if r.IntN(3) == 0 {
		c.budget = 1 + r.IntN(3)
	}
	if r.IntN(2) == 0 {
		c.skew = time.Duration(r.IntN(400)-200) * time.Second
	}
	if r.IntN(3) == 0 {
		c.errors = []float64{0.02, 0.1}[r.IntN(2)]
	}
	c.faults, c.kills = r.IntN(3) == 0, max(0, r.IntN(6)-3)
	if c.way == rollout.ChangeInPlace {
		c.undo, c.reapply = r.IntN(2) == 0, r.IntN(4) == 0
	}
	if r.IntN(2) == 0 { // several at once
		c.undo, c.reapply = false, false
		c.only = [][]string{{"", ""}, {"agent", "proxy"}, {"agent", "proxy"}, {"", "agent", "proxy"}}[r.IntN(4)]
		if c.only[1] != "" {
			c.sets = imagesOfTwo()
		}
	}
	c.atOnce = c.bad == never && r.IntN(2) == 0 // otherwise, an image that fails later reaches all pods
	// Nothing in the pod that replaces an evicted one shows other rollouts that it is not proved. So budgets that several workloads share
	// are kept only in place.
	if r.IntN(3) == 0 && c.way == rollout.ChangeInPlace {
		c.apps = append(c.apps, "api")
	}
	if r.IntN(3) == 0 && (c.way == rollout.ChangeInPlace || c.budget < 0) { // the API denies the eviction of a pod with two budgets
		c.passing = passing{allows: 1 + r.IntN(3), from: c.random(5 * time.Minute)}
		c.passing.until = c.passing.from + c.random(10*time.Minute)
	}
	c.scales = r.IntN(4) == 0
	c.deploy(n)
	return c
}

// deploy creates the pods, which are ready for an hour.
func (c *simulation) deploy(n int) {
	c.limits, c.bounds = map[string][]numberAt{}, map[string]int{}
	c.content = 1
	c.old = c.sets[0]
	c.planner = c.plannerOf("")
	for i := range n {
		name := c.createPod(c.sets[0], c.apps[i%len(c.apps)])
		pod := c.pods[name]
		pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		for i := range c.states[name].containers {
			of := &c.states[name].containers[i]
			of.ready, of.since = true, pod.CreationTimestamp
		}
		c.report(name)
		pod = c.pods[name]
		pod.Status.Conditions[0].LastTransitionTime = pod.CreationTimestamp
	}
	c.deployed = true
	c.reacts = c.replaced
	for _, app := range c.apps {
		c.noteSize(app)
	}
	c.noteBudgets()
	if c.passing.allows < 0 {
		return
	}
	for after, exists := range map[time.Duration]bool{c.passing.from: true, c.passing.until: false} {
		time.AfterFunc(after, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.passing.exists = exists
			c.noteBudgets()
		})
	}
}

// noteSize notes the limit of a workload after its size has changed.
func (c *simulation) noteSize(app string) {
	most, err := rollout.ParseUnavailable(c.most)
	must(c.t, err)
	c.limits[app] = append(c.limits[app], numberAt{most.Of(c.desiredPods(app)), time.Now()})
}

// noteBudgets notes the limit of budgets after these have changed.
func (c *simulation) noteBudgets() {
	n := noBudget
	for _, allows := range c.presentBudgets() {
		n = min(n, allows)
	}
	c.limits[allBudgets] = append(c.limits[allBudgets], numberAt{n, time.Now()})
}

// presentBudgets returns how many pods each budget lets be unready, by its name.
func (c *simulation) presentBudgets() map[string]int {
	all := map[string]int{}
	if c.budget >= 0 {
		all["web"] = c.budget
	}
	if c.passing.exists {
		all["passing"] = c.passing.allows
	}
	return all
}

// noteChange notes that a rollout makes a pod unready. So at that time, no more pods may be at risk than the limits allow. A pod that a
// rollout has changed before may be at risk already, so it only raises the bounds.
func (c *simulation) noteChange(s *state) {
	for _, key := range []string{s.app, allBudgets} {
		bound := 0
		if s.ours {
			bound = c.bounds[key]
		}
		for _, limit := range slices.Backward(c.limits[key]) {
			if bound = max(bound, limit.n); time.Since(limit.at) > grace {
				break
			}
		}
		c.bounds[key] = bound
	}
}

// plannerOf plans the changes of a template, or of all.
func (c *simulation) plannerOf(only string) *rollout.Planner {
	return &rollout.Planner{
		Injector: c.sets[1], Called: func([]byte) bool { return true }, Only: only,
		Namespace: request.Namespace{Name: "shop", Labels: map[string]string{"pillion.dev/inject": "enabled"}, Known: true},
	}
}

// now is the time of the API server and of kubelets. Kubernetes stores it in seconds.
func (c *simulation) now() metav1.Time {
	return metav1.NewTime(time.Now().Add(c.skew).Truncate(time.Second))
}

// createPod creates a pod, as its controller does. It is not ready.
func (c *simulation) createPod(by *inject.Injector, app string) (name string) {
	c.created++
	name = fmt.Sprintf("%s-%d", app, c.created)
	controls := true
	bare := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: types.UID("u-" + name), CreationTimestamp: c.now(), Labels: map[string]string{"app": app},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: types.UID("set-" + app), Controller: &controls}},
		},
		Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
	text, err := json.Marshal(bare)
	must(c.t, err)
	r, err := by.Inject(inject.Request{Operation: "CREATE", Namespace: c.planner.Namespace, Object: text, OptedIn: true})
	must(c.t, err)
	pod := &corev1.Pod{}
	must(c.t, json.Unmarshal(r.InjectedJSON(), pod))
	pod.ManagedFields = []metav1.ManagedFieldsEntry{ownerOf("kube-controller-manager", pod.CreationTimestamp, pod)}
	s := &state{app: app}
	for i := range pod.Spec.InitContainers {
		s.containers = append(s.containers, container{runs: pod.Spec.InitContainers[i].Image, since: c.now()})
	}
	c.pods[name], c.states[name] = pod, s
	c.report(name)
	return name
}

// ownerOf owns all containers of templates in a pod.
func ownerOf(manager string, at metav1.Time, pod *corev1.Pod) metav1.ManagedFieldsEntry {
	e := owner(manager, at)
	fields := string(e.FieldsV1.GetRawBytes())
	if len(pod.Spec.InitContainers) > 1 {
		const before, after = `{"f:spec":{"f:initContainers":{`, `}}}`
		one := strings.TrimSuffix(strings.TrimPrefix(fields, before), after)
		fields = before + one + "," + strings.ReplaceAll(one, "agent", "proxy") + after
	}
	e.FieldsV1 = metav1.NewFieldsV1(fields)
	return e
}

// isNew reports whether an image is the new one.
func isNew(image string) bool { return strings.HasSuffix(image, ":2") }

// isUpdated reports whether all sidecars of a pod have the new image.
func isUpdated(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return !isNew(c.Image) })
}

// report is the kubelet that reports a pod, or the node controller if its node is silent.
func (c *simulation) report(name string) {
	s, pod := c.states[name], c.pods[name].DeepCopy()
	c.version++
	pod.ResourceVersion = strconv.Itoa(c.version)
	before, statuses := pod.Status.Conditions, pod.Status.InitContainerStatuses
	well(pod)
	s.ready = true
	for i := range s.containers {
		of, now := &s.containers[i], &pod.Status.InitContainerStatuses[i]
		s.ready = s.ready && of.ready
		now.Ready = of.ready || c.bad == breaks && isNew(of.runs)
		if i < len(statuses) {
			now.RestartCount = statuses[i].RestartCount
		}
		now.Image, now.State.Running.StartedAt = of.runs, of.since
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", LastTransitionTime: c.now()}, {Type: corev1.ContainersReady, Status: corev1.ConditionFalse}}
	if s.ready {
		pod.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: c.now()}
		pod.Status.Conditions[1].Status = corev1.ConditionTrue
		if s.silent {
			pod.Status.Conditions[0].Status = corev1.ConditionFalse
		}
	}
	if len(before) > 0 && before[0].Status == pod.Status.Conditions[0].Status {
		pod.Status.Conditions[0].LastTransitionTime = before[0].LastTransitionTime
	}
	c.pods[name] = pod
	c.notifyWatchers()
	c.check()
}

// changeLater does something with a container of a pod, unless it was changed or deleted meanwhile.
func (c *simulation) changeLater(name string, i int, after time.Duration, do func(of *container)) {
	generation := c.states[name].containers[i].generation
	time.AfterFunc(after, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s := c.states[name]; s != nil && s.containers[i].generation == generation {
			do(&s.containers[i])
			c.report(name)
		}
	})
}

func (c *simulation) random(most time.Duration) time.Duration {
	return time.Duration(c.rand.Int64N(int64(most) + 1))
}

// replaced is the kubelet that replaces the containers of a pod that were changed. It notices that a moment later.
func (c *simulation) replaced(pod *corev1.Pod) {
	s := c.states[pod.Name]
	if s.ready && !s.silent {
		c.noteChange(s)
		s.ours = true
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{ownerOf(rollout.Manager, c.now(), pod)}
	for i := range s.containers {
		image := pod.Spec.InitContainers[i].Image
		if s.containers[i].runs == image {
			continue
		}
		s.containers[i].generation++
		c.changeLater(pod.Name, i, c.random(2*time.Second), func(of *container) {
			of.ready, of.runs, of.since = of.ready && isNew(image) && c.bad.precedesProbe(), image, c.now()
			if !of.ready {
				c.startContainer(pod.Name, i)
				return
			}
			c.changeLater(pod.Name, i, c.random(startupPeriod), func(of *container) {
				if of.ready = false; c.bad == probed {
					c.startContainer(pod.Name, i)
				}
			})
		})
	}
}

// startContainer lets a container become ready, and fail if its image does.
func (c *simulation) startContainer(name string, i int) {
	c.changeLater(name, i, c.random(c.start), func(of *container) {
		of.ready = true
		if isNew(c.pods[name].Spec.InitContainers[i].Image) {
			c.failContainer(name, i)
		}
	})
}

func (c *simulation) failContainer(name string, i int) {
	fail := func(of *container) { of.ready = false }
	switch c.bad {
	case late, breaks:
		c.changeLater(name, i, c.after, fail)
	case some:
		if c.rand.IntN(2) == 0 {
			c.changeLater(name, i, c.random(c.after), fail)
		}
	case flaps:
		c.changeLater(name, i, time.Second+c.random(c.after), func(of *container) {
			of.ready = false
			c.startContainer(name, i)
		})
	case restarts:
		c.changeLater(name, i, time.Second+c.random(c.after), func(of *container) { // for a moment that no inspection sees
			of.ready = false
			c.report(name)
			c.pods[name].Status.InitContainerStatuses[i].RestartCount++
			of.ready = true
			c.failContainer(name, i)
		})
	case shaky:
		c.changeLater(name, i, c.random(5*time.Second), func(of *container) {
			of.ready = false
			c.changeLater(name, i, c.random(3*time.Second), func(of *container) { of.ready = true })
		})
	case never, unprobed, probed:
	}
}

// isHarmless reports whether the new image works.
func (b bad) isHarmless() bool { return b == never || b == shaky || b == probed }

// precedesProbe reports whether a new container counts as ready before its startup probe has run.
func (b bad) precedesProbe() bool { return b == unprobed || b == probed }

// check counts the pods that are unready because of the rollout.
func (c *simulation) check() {
	n := map[string]int{}
	for _, s := range c.states {
		if s.ours && !s.ready {
			n[s.app]++
			n[allBudgets]++
		}
	}
	c.worst = max(c.worst, n[allBudgets])
	for key := range n {
		if n[key] > c.bounds[key] && c.broken == "" && c.deployed {
			c.broken = fmt.Sprintf("%d pods are unready because of the rollout, and %d may be (%s)", n[key], c.bounds[key], key)
		}
	}
}

// remove deletes a pod. Its controller creates another one, which gets the new image.
func (c *simulation) remove(name string, ours bool) {
	if s := c.states[name]; ours && s.ready && !s.silent {
		c.noteChange(s)
	}
	c.states["in place of "+name] = &state{app: c.states[name].app, ours: ours} // until there is another pod
	delete(c.states, name)
	delete(c.pods, name)
	c.notifyWatchers()
	c.check()
	c.createLater("in place of " + name)
}

// createLater lets the controller create the pod of a place, unless the workload is scaled down meanwhile.
func (c *simulation) createLater(place string) {
	time.AfterFunc(c.random(time.Second), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		of := c.states[place]
		if of == nil {
			return
		}
		delete(c.states, place)
		made := c.createPod(c.sets[c.content], of.app)
		c.states[made].ours = of.ours
		c.check()
		for i := range c.states[made].containers {
			c.startContainer(made, i)
		}
	})
}

// rescaleWorkloads changes how many pods the workloads should have, now and then.
func (c *simulation) rescaleWorkloads(ctx context.Context) {
	for i := 0; ; i++ {
		c.mu.Lock()
		wait := c.random(3 * time.Minute)
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		c.mu.Lock()
		app := c.apps[c.rand.IntN(len(c.apps))]
		change := c.rand.IntN(7) - 3
		for k := range change {
			place := fmt.Sprintf("new %d %d", i, k)
			c.states[place] = &state{app: app}
			c.createLater(place)
		}
		for _, name := range slices.Sorted(maps.Keys(c.states)) {
			if change < 0 && c.states[name].app == app {
				delete(c.states, name)
				delete(c.pods, name)
				change++
			}
		}
		c.noteSize(app)
		c.notifyWatchers()
		c.mu.Unlock()
	}
}

// delay is the time that a request takes, so that those of several rollouts come in any order.
func (c *simulation) delay() {
	if len(c.only) < 2 {
		return
	}
	c.mu.Lock()
	takes := c.random(500 * time.Millisecond)
	c.mu.Unlock()
	<-time.After(takes)
}

// request lets a request fail now and then.
func (c *simulation) request() error {
	if c.rand.Float64() < c.errors {
		return errBroken
	}
	return nil
}

var errBroken = errors.New("the connection broke")

func (c *simulation) InspectWorkload(_ context.Context, w *rollout.Workload, _ *executor.Sight, each func(*corev1.Pod)) (*executor.Sight, error) {
	c.delay()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.request(); err != nil {
		return nil, err
	}
	for name, pod := range c.pods {
		if c.states[name].app == w.Name {
			each(pod)
		}
	}
	return &executor.Sight{Desired: c.desiredPods(w.Name)}, nil
}

// Watch returns a channel that receives nothing in a third of all simulations, as if watches were lost.
func (c *simulation) Watch(context.Context, *rollout.Workload, *executor.Sight) <-chan struct{} {
	if c.seed%3 == 0 {
		return nil
	}
	changes := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = append(c.watchers, changes)
	return changes
}

func (c *simulation) notifyWatchers() {
	for _, to := range c.watchers {
		select {
		case to <- struct{}{}:
		default:
		}
	}
}

// desiredPods returns the number of pods that a workload should have.
func (c *simulation) desiredPods(app string) (n int) {
	for _, s := range c.states {
		if s.app == app {
			n++
		}
	}
	return n
}

// EachPod answers at once: a decision holds a mutex meanwhile, and fake time does not go on while others wait for a mutex.
func (c *simulation) EachPod(_ context.Context, _ string, _ metav1.ListOptions, each func(*corev1.Pod) error) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range c.pods {
		must(c.t, each(pod))
	}
	return "", c.request()
}

func (c *simulation) Pod(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	c.mu.Lock()
	err, there := c.request(), c.pods[name] != nil
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return c.fake.Pod(ctx, namespace, name)
}

func (c *simulation) PatchPod(ctx context.Context, p executor.Patch) error {
	c.delay()
	c.mu.Lock()
	before, after, there := c.request(), c.request(), c.pods[p.Name] != nil
	c.mu.Unlock()
	switch {
	case before != nil:
		return before
	case !there:
		return apierrors.NewNotFound(corev1.Resource("pods"), p.Name)
	}
	err := c.fake.PatchPod(ctx, p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteWrite(p.Name)
	if c.loses > 0 && bytes.Contains(p.Operations, []byte("/image")) {
		c.loses--
		after = errBroken
	}
	return errors.Join(err, after)
}

// noteWrite notes when a rollout has last written to a pod, as the API server does for a manager of fields.
func (c *simulation) noteWrite(name string) {
	pod := c.pods[name]
	if pod == nil {
		return
	}
	c.version++
	now, changed := c.now(), *pod
	changed.ResourceVersion = strconv.Itoa(c.version)
	if changed.ManagedFields = slices.Clone(pod.ManagedFields); changed.ManagedFields[0].Manager == rollout.Manager {
		changed.ManagedFields[0].Time = &now
	}
	c.pods[name] = &changed
}

func (c *simulation) ClaimPod(ctx context.Context, pod *corev1.Pod, claim rollout.Claim) (*unstructured.Unstructured, error) {
	c.delay()
	c.mu.Lock()
	before, after, now := c.request(), c.request(), c.pods[pod.Name]
	c.mu.Unlock()
	switch {
	case before != nil:
		return nil, before
	case now == nil:
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	object, err := c.fake.ClaimPod(ctx, pod, claim)
	if err == nil {
		c.mu.Lock()
		c.noteWrite(pod.Name)
		c.mu.Unlock()
	}
	return object, errors.Join(err, after)
}

func (c *simulation) Budgets(context.Context, string) ([]executor.Budget, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []executor.Budget
	for name, allows := range c.presentBudgets() {
		all = append(all, executor.Budget{Name: name, Selector: labels.Everything(), Allowed: c.allowedDisruptions(allows), Pods: len(c.states)})
	}
	return all, c.request()
}

// allowedDisruptions returns how many pods a budget that lets so many be unready allows to disrupt now.
func (c *simulation) allowedDisruptions(allows int) int {
	for _, s := range c.states {
		if !s.ready || s.silent {
			allows--
		}
	}
	return max(0, allows)
}

// isBlocked reports whether a budget allows no disruption.
func (c *simulation) isBlocked() bool {
	for _, allows := range c.presentBudgets() {
		if c.allowedDisruptions(allows) < 1 {
			return true
		}
	}
	return false
}

func (c *simulation) Evict(_ context.Context, _, name, _ string) error {
	c.delay()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.request(); err != nil {
		return err
	}
	s := c.states[name]
	switch {
	case s == nil:
		return apierrors.NewNotFound(corev1.Resource("pods"), name)
	case s.ready && c.isBlocked():
		return apierrors.NewTooManyRequests("the budget", 1)
	}
	c.remove(name, s.ours || s.ready && !s.silent)
	return c.request()
}

// disturb deletes pods, and lets nodes be silent for a while.
func (c *simulation) disturb(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		wait := c.random(2 * time.Minute)
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		c.mu.Lock()
		for name := range c.pods { // any one
			if c.rand.IntN(2) == 0 {
				c.remove(name, false)
			} else {
				c.states[name].silent = true
				c.report(name)
				time.AfterFunc(c.random(time.Minute), func() {
					c.mu.Lock()
					defer c.mu.Unlock()
					if s := c.states[name]; s != nil {
						s.silent = false
						c.report(name)
					}
				})
			}
			break
		}
		c.mu.Unlock()
	}
}

// goBack undoes the rollout, until nothing is left to do. The bound holds meanwhile, too.
func (c *simulation) goBack(ctx context.Context, t *testing.T, most rollout.Unavailable) {
	var failures []string
	plan := func(_ string, pod []byte) (*rollout.Pod, error) { return c.planner.PlanBack(pod, nil, c.wayBack()) }
	if !c.undo {
		c.mu.Lock()
		c.content, c.planner.Injector, c.kills = 0, c.sets[0], 0 // another process does not know which pods went back
		c.mu.Unlock()
		plan = func(_ string, pod []byte) (*rollout.Pod, error) { return c.planner.Plan(pod, nil) }
	}
	for try := 0; try < c.kills+40; try++ {
		all := c.workloadsBy(func(pod *corev1.Pod) *rollout.Pod {
			text, err := json.Marshal(pod)
			must(t, err)
			p, err := plan("", text)
			must(t, err)
			return p
		})
		for _, w := range all {
			w.Choose(rollout.Owner{InPlace: true})
		}
		if !slices.ContainsFunc(all, (*rollout.Workload).Acts) {
			break
		}
		process, kill := context.WithCancel(ctx)
		if try < c.kills {
			time.AfterFunc(c.random(2*time.Minute), kill)
		}
		r := &executor.Rollout{
			Cluster: c, Limits: executor.Limits{Parallel: 2, Timeout: 5 * time.Minute, Poll: time.Second, Undo: c.undo}, Plan: plan,
		}
		r.Limits.MaxUnavailable, r.Limits.Shares = []rollout.Unavailable{most}, []int{100}
		if err := r.Run(process, all); err != nil {
			failures = append(failures, err.Error())
		}
		kill()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	describe := func(what string) {
		t.Errorf("seed %d: undo %t: %s; %d pods, the image fails %s after %s, maxUnavailable %s, budget %d, %+v, scales %t, workloads %s, skew %s, start %s, errors %g, faults %t, killed %d times, after %d failures, the last one: %q",
			c.seed, c.undo, what, len(c.pods), c.bad, c.after, c.most, c.budget, c.passing, c.scales, c.apps, c.skew, c.start, c.errors, c.faults, c.kills, len(failures), failures[max(0, len(failures)-1):])
	}
	if c.broken != "" {
		describe(c.broken)
	}
	// Pods that were created with the content that fails never become ready, and others may wait for them.
	made := func(pod *corev1.Pod) bool {
		return len(pod.ManagedFields) == 1 && pod.ManagedFields[0].Manager != rollout.Manager && isUpdated(pod)
	}
	waits := slices.ContainsFunc(slices.Collect(maps.Values(c.pods)), made)
	for name, pod := range c.pods {
		switch before, kept := pod.Annotations["agent.pillion.dev/injected-before"]; {
		case waits:
		case pod.Spec.InitContainers[0].Image != "agent:1" || pod.Annotations["agent.pillion.dev/injected"] == c.failed() || kept && c.undo:
			describe(fmt.Sprintf("pod %s has %s, %q, before %q", name, pod.Spec.InitContainers[0].Image, pod.Annotations["agent.pillion.dev/injected"], before))
		case !c.states[name].ready && !c.faults && len(failures) == 0 && pod.ManagedFields[0].Manager == rollout.Manager: // others may be new
			describe("pod " + name + " is not ready")
		}
	}
}

// failed is the revision that has failed.
func (c *simulation) failed() string { return c.sets[1].All().Templates[0].Revision }

func (c *simulation) wayBack() *rollout.WayBack {
	return &rollout.WayBack{Template: "agent", Failed: c.failed(), Earlier: func(revision string) (*inject.Injector, string) {
		if revision == c.failed() {
			return nil, "it is the one that has failed"
		}
		return c.sets[0], ""
	}}
}

// planWorkloads returns the workloads, with a plan for each pod.
func (c *simulation) planWorkloads(planner *rollout.Planner) []*rollout.Workload {
	return c.workloadsBy(func(pod *corev1.Pod) *rollout.Pod {
		text, err := json.Marshal(pod)
		must(c.t, err)
		p, err := planner.Plan(text, nil)
		must(c.t, err)
		return p
	})
}

func (c *simulation) workloadsBy(plan func(pod *corev1.Pod) *rollout.Pod) (all []*rollout.Workload) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, app := range c.apps {
		all = append(all, &rollout.Workload{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: app, Way: c.way})
	}
	for name, pod := range c.pods {
		w := all[slices.Index(c.apps, c.states[name].app)]
		w.Pods++
		p := plan(pod)
		if p.Action == rollout.None {
			continue
		}
		if c.way == rollout.Evict && p.Action != rollout.Leave {
			p.Action, p.Why = rollout.Replace, "more differs"
		}
		p.Forget()
		w.Behind = append(w.Behind, p)
	}
	return all
}

func (c *simulation) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	disturbing, calm := context.WithTimeout(ctx, 20*time.Minute)
	defer calm()
	if c.faults {
		group.Go(func() { c.disturb(disturbing) })
	}
	if c.scales {
		group.Go(func() { c.rescaleWorkloads(disturbing) })
	}
	if len(c.only) == 1 {
		failures, err := c.updateAll(ctx, t, "")
		c.conclude(t, []error{err}, failures)
		cancel()
		return
	}
	var mu sync.Mutex
	var failures []string
	errs := make([]error, len(c.only))
	var rollouts sync.WaitGroup
	for i, only := range c.only {
		c.mu.Lock()
		after := c.random(2 * time.Minute)
		c.mu.Unlock()
		rollouts.Go(func() {
			<-time.After(after)
			all, err := c.updateAll(ctx, t, only)
			mu.Lock()
			defer mu.Unlock()
			errs[i], failures = err, append(failures, all...)
		})
	}
	rollouts.Wait()
	c.conclude(t, errs, failures)
	cancel()
}

// errWentBack is returned if a rollout was undone.
var errWentBack = errors.New("it went back")

// updateAll updates all pods to a template, or to all if it is "", and tries again as users and the controller do. It returns the
// last error, and those before.
func (c *simulation) updateAll(ctx context.Context, t *testing.T, only string) (failures []string, err error) {
	most, err := rollout.ParseUnavailable(c.most)
	must(t, err)
	planner := c.plannerOf(only)
	for try := 0; ; try++ {
		process, kill := context.WithCancel(ctx)
		if try < c.kills {
			c.mu.Lock()
			time.AfterFunc(c.random(5*time.Minute), kill)
			c.mu.Unlock()
		}
		r := &executor.Rollout{
			Cluster: c, Limits: executor.Limits{Parallel: 2, Timeout: 5 * time.Minute, Poll: time.Second}, Template: only,
			Plan: func(_ string, pod []byte) (*rollout.Pod, error) { return planner.Plan(pod, nil) },
		}
		r.Limits.MaxUnavailable = []rollout.Unavailable{most}
		if c.atOnce {
			r.Limits.Bake = new(time.Duration(0))
		}
		failed := false
		r.Report = func(e executor.Event) {
			if failed = failed || e.Type == "failed" && !e.Blocked; failed && c.undo {
				kill() // as the controller does
			}
		}
		if c.seed%2 == 0 {
			r.Limits.First, r.Limits.Shares = 1, []int{5, 25, 100}
		}
		all := c.planWorkloads(planner)
		left := slices.ContainsFunc(all, func(w *rollout.Workload) bool { return len(w.Behind) > 0 })
		err = r.Run(process, all)
		killed := process.Err() != nil && !failed
		kill()
		if failed && (c.undo || c.reapply) {
			c.goBack(ctx, t, most)
			return failures, errWentBack
		}
		if killed && try < c.kills {
			continue
		}
		again := len(c.only) > 1 && err == nil && left // others may have taken pods from it
		if err == nil && !again || err != nil && !c.bad.isHarmless() || try > c.kills+20 {
			return failures, err
		}
		if err != nil {
			failures = append(failures, err.Error()) // because of a request that failed, or a pod that somebody deleted
		}
	}
}

// conclude checks what the rollouts have left.
func (c *simulation) conclude(t *testing.T, errs []error, failures []string) {
	err := errors.Join(errs...)
	if errors.Is(err, errWentBack) {
		return // it has checked everything
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	describe := func(what string) {
		t.Errorf("seed %d: %s; %s, rollouts %q, %d pods, the image fails %s after %s, maxUnavailable %s, budget %d, %+v, scales %t, workloads %s, skew %s, start %s, errors %g, faults %t, killed %d times; the rollout returned %v after %q",
			c.seed, what, c.way, c.only, len(c.pods), c.bad, c.after, c.most, c.budget, c.passing, c.scales, c.apps, c.skew, c.start, c.errors, c.faults, c.kills, err, failures)
	}
	if c.broken != "" {
		describe(c.broken)
	}
	outdated, unready, claimed := 0, 0, 0
	for name, pod := range c.pods {
		if !isUpdated(pod) {
			outdated++
		}
		if s := c.states[name]; s.ours && !s.ready {
			unready++
		}
		if pod.Annotations[rollout.AnnotationUnproved] != "" {
			claimed++
		}
	}
	switch {
	case err == nil && outdated > 0:
		describe(fmt.Sprintf("it is complete, and %d pods are outdated", outdated))
	// A new pod is recorded when it is created, so another process, or a run after one that failed, does not know that it is not proved.
	case err == nil && unready > 0 && (c.way != rollout.Evict || c.kills == 0 && len(failures) == 0):
		describe(fmt.Sprintf("it is complete, and %d pods that it has changed are not ready", unready))
	case err == nil && claimed > 0 && c.kills == 0 && c.errors == 0:
		describe(fmt.Sprintf("it is complete, and %d pods still have a claim", claimed))
	// A workload may have to wait longer than the timeout for another one that has used up their budget.
	case (err != nil || len(failures) > 0) && c.bad.isHarmless() && !c.faults && c.errors == 0 && len(c.only) == 1 && len(c.apps) == 1:
		describe("it failed without a reason")
	case err != nil && c.bad.isHarmless() && !c.faults && c.errors == 0:
		describe("it never became complete")
	}
}

// TestBoundAgain repeats simulations that have broken the bound. Requests come in another order each time.
func TestBoundAgain(t *testing.T) {
	t.Parallel()
	for what, seed := range map[string]uint64{
		"pods that waited to go back did not count in a budget that another workload shared":                       38383,
		"a rollout went on with a pod that another one had left, and did not count the claim of a third one in it": 398,
	} {
		t.Run(what, func(t *testing.T) {
			for range 40 {
				synctest.Test(t, func(t *testing.T) { newSimulation(t, seed).run(t) })
			}
		})
	}
}

// TestLostResponse checks that a pod counts as disrupted if the response of its change was lost, so that another workload with the same
// budget does not change too many.
func TestLostResponse(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			c := &simulation{
				fake: &fake{pods: map[string]*corev1.Pod{}, held: map[string]int{}, failAt: -1}, t: t, rand: rand.New(rand.NewPCG(seed, 1)), sets: images(), only: []string{""}, apps: []string{"web", "api"}, passing: passing{allows: -1},
				way: rollout.ChangeInPlace, bad: never, start: 20 * time.Second, most: "100%", budget: 2, states: map[string]*state{}, loses: 1,
			}
			c.deploy(8)
			r := &executor.Rollout{
				Cluster: c, Limits: executor.Limits{Parallel: 2, Timeout: 5 * time.Minute, Poll: time.Second},
				Plan: func(_ string, pod []byte) (*rollout.Pod, error) { return c.planner.Plan(pod, nil) },
			}
			most, err := rollout.ParseUnavailable(c.most)
			must(t, err)
			r.Limits.MaxUnavailable = []rollout.Unavailable{most}
			if err := r.Run(t.Context(), c.planWorkloads(c.planner)); !errors.Is(err, errBroken) {
				t.Errorf("seed %d: %v", seed, err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.broken != "" {
				t.Errorf("seed %d: %s", seed, c.broken)
			}
		})
	}
}

// TestLateFailure checks rollouts with the default limits, in which 20 pods are ready at first. If the image fails, the
// rollout stops before more pods than the first wave have it, and reports the pod. If only something else happens, it ends.
func TestLateFailure(t *testing.T) {
	t.Parallel()
	type fault struct {
		bad   bad
		after time.Duration
		most  string
		waves bool
		// meanwhile happens after a minute.
		meanwhile func(c *simulation, name string)
	}
	shares, err := rollout.ParseShares(rollout.DefaultShares())
	must(t, err)
	for what, test := range map[string]fault{
		"unready after 20 s":                {bad: late, after: 20 * time.Second, most: "4", waves: true},
		"unready after 60 s":                {bad: late, after: 60 * time.Second, most: "4", waves: true},
		"unready after 20 s, without waves": {bad: late, after: 20 * time.Second, most: "4"},
		"unready after 60 s, without waves": {bad: late, after: 60 * time.Second, most: "4"},
		"unready after 8 s":                 {bad: late, after: 8 * time.Second, most: "4", waves: true},
		"one at a time":                     {bad: late, after: 20 * time.Second, most: "1"},
		"some pods only":                    {bad: some, after: 60 * time.Second, most: "4"},
		"flapping":                          {bad: flaps, after: 30 * time.Second, most: "4", waves: true},
		"it breaks the app":                 {bad: breaks, after: 20 * time.Second, most: "4", waves: true},
		"it crashes, and is ready at once":  {bad: restarts, after: 40 * time.Second, most: "4", waves: true},
		"a pod is deleted": {bad: never, most: "4", waves: true, meanwhile: func(c *simulation, name string) {
			c.remove(name, false)
		}},
		"a node goes away": {bad: never, most: "4", waves: true, meanwhile: func(c *simulation, name string) {
			c.states[name].silent = true
			c.report(name)
			time.AfterFunc(time.Minute, func() { // its pods are evicted
				c.mu.Lock()
				defer c.mu.Unlock()
				c.remove(name, false)
			})
		}},
		"unready for a moment after the start": {bad: shaky, most: "4", waves: true},
		"ready before its startup probe":       {bad: probed, most: "4", waves: true},
		"it never passes its startup probe":    {bad: unprobed, most: "4", waves: true},
		"nothing":                              {bad: never, most: "25%", waves: true},
	} {
		for _, way := range []rollout.Way{rollout.ChangeInPlace, rollout.Evict} {
			if way == rollout.Evict && test.bad.precedesProbe() {
				continue // a new pod has no container before
			}
			t.Run(what+", "+string(way), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := &simulation{
						fake: &fake{pods: map[string]*corev1.Pod{}, held: map[string]int{}, failAt: -1}, t: t, rand: rand.New(rand.NewPCG(1, 1)), sets: images(), only: []string{""}, apps: []string{"web"}, passing: passing{allows: -1},
						way: way, bad: test.bad, after: test.after, start: 5 * time.Second, most: test.most, budget: -1, states: map[string]*state{},
					}
					const pods = 20
					c.deploy(pods)
					if test.meanwhile != nil {
						time.AfterFunc(time.Minute, func() {
							c.mu.Lock()
							defer c.mu.Unlock()
							for _, changed := range []bool{true, false} { // one that has the change, and one that has not
								for name, pod := range c.pods {
									if isUpdated(pod) == changed {
										test.meanwhile(c, name)
										break
									}
								}
							}
						})
					}
					most, err := rollout.ParseUnavailable(test.most)
					must(t, err)
					r := &executor.Rollout{
						Cluster: c, Limits: executor.Limits{Parallel: 1, Timeout: 5 * time.Minute, Poll: time.Second},
						Plan: func(_ string, pod []byte) (*rollout.Pod, error) { return c.planner.Plan(pod, nil) },
					}
					r.Limits.MaxUnavailable, r.Limits.MinReady = []rollout.Unavailable{most}, rollout.DefaultMinReady
					first := most.Of(pods)
					if test.waves {
						r.Limits.First, r.Limits.Shares, first = rollout.DefaultFirst, shares, 1
					}
					begun := time.Now()
					err = r.Run(t.Context(), c.planWorkloads(c.planner))
					if c.broken != "" {
						t.Error(c.broken)
					}
					t.Logf("%s: at most %d pods were unready because of it, and it took %s: %v", what, c.worst, time.Since(begun).Round(time.Second), err)
					changed := 0
					for _, pod := range c.pods {
						if isUpdated(pod) {
							changed++
						}
					}
					switch {
					case test.bad.isHarmless() && (err != nil || changed != pods):
						t.Errorf("%d pods have the change: %v", changed, err)
					case test.bad == unprobed && (err == nil || !strings.Contains(err.Error(), "it waits for the container agent to be ready")):
						t.Errorf("it does not report a pod: %v", err)
					case !test.bad.isHarmless() && test.bad != unprobed && (err == nil || !strings.Contains(err.Error(), "it was ready with the change for")):
						t.Errorf("it does not report a pod: %v", err)
					case !test.bad.isHarmless() && test.bad != some && changed > first:
						t.Errorf("%d pods have the change, want at most %d", changed, first)
					}
				})
			})
		}
	}
}
