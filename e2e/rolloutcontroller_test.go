// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// rollingLimit is for the controller, which tries again after a minute, and for a Lease that expires.
const rollingLimit = 2 * time.Minute

// selfRolling is a cluster whose controller updates pods.
type selfRolling struct {
	*rolling
	*controlled
	component string
}

// TestRolloutController checks that the controller updates running pods by itself on a real API server, if the
// template, the namespace and its rights allow it.
func TestRolloutController(t *testing.T) {
	t.Parallel()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := install(t, newCluster(t), "self-signed")
	r := &selfRolling{rolling: &rolling{installed: i}, controlled: &controlled{i.Cluster}, component: filepath.Join(root, "manifests", "components", "rollout")}
	r.kubelet = startKubelet(t, i.Client)
	r.waitForInjection(t)
	first := r.begin(t)
	eventually(t, "it leads", func(context.Context) error {
		if len(first.Logged("this replica leads")) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	for _, test := range []struct {
		name string
		run  func(*testing.T, string)
	}{
		{"rights", r.rights},
		{"label", r.label},
		{"paused", r.paused},
		{"failure", r.failure},
		{"undo", r.undoes},
		{"restart", r.restarts},
		{"budget", r.withinBudget},
		{"together", r.together},
		{"canary", r.canary},
		{"hostile", r.hostile},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name != "rights" { // which tries without them first
				r.grantRights(t)
			}
			ns := "budget-" + test.name // the kubelet counts pods of such namespaces that are not ready
			test.run(t, ns)
			r.kubectl(t, "", "label", "namespace", ns, "pillion.dev/rollout-") // later templates are for other namespaces
			r.kubectl(t, "", "delete", "clustersidecartemplate", "agent")
		})
	}
	t.Run("killed", func(t *testing.T) {
		r.grantRights(t)
		r.killed(t, "killed", first)
	})
}

func (r *selfRolling) begin(t *testing.T) *cluster.Pillion {
	t.Helper()
	return r.start(t, "--rollout-min-ready=0s")
}

// grantRights gives the controller the rights for rollouts.
func (r *selfRolling) grantRights(t *testing.T) {
	t.Helper()
	r.kubectl(t, "", "apply", "--server-side", "-f", filepath.Join(r.component, "policy.yaml"), "-f", filepath.Join(r.component, "rbac.yaml"))
}

// settle applies the template with settings of its rollout.
func (r *selfRolling) settle(t *testing.T, ns, settings, image string) {
	t.Helper()
	r.settings = settings
	r.template(t, ns, image, "32Mi", "info")
}

// allow labels a namespace.
func (r *selfRolling) allow(t *testing.T, ns string) {
	t.Helper()
	r.kubectl(t, "", "label", "namespace", ns, "pillion.dev/rollout=enabled")
}

// wantCondition waits until a condition has a status and a reason for the present generation, and returns its message.
func (r *selfRolling) wantCondition(t *testing.T, kind, want string) (message string) {
	t.Helper()
	eventuallyWithin(t, rollingLimit, kind+" is "+want, func(context.Context) error {
		path := fmt.Sprintf(`{.metadata.generation} {range .status.conditions[?(@.type=="%s")]}{.observedGeneration} {.status} {.reason} {.message}{end}`, kind)
		got := r.field(t, "clustersidecartemplate/agent", path) //nolint:contextcheck // kubectl has the test's context
		generation, rest, _ := strings.Cut(got, " ")
		text, ok := strings.CutPrefix(rest, generation+" "+want+" ")
		if message = text; !ok {
			return errors.New(r.field(t, "clustersidecartemplate/agent", "{.metadata.generation} {.status}")) //nolint:contextcheck // the same
		}
		return nil
	})
	return message
}

// with counts the pods that have an image.
func (r *selfRolling) with(t *testing.T, ns, image string) (n int) {
	t.Helper()
	for _, p := range r.rolling.pods(t, ns) {
		if p.Spec.InitContainers[0].Image == image {
			n++
		}
	}
	return n
}

// wantUpdated waits until all pods are current, and checks that they are the same pods.
func (r *selfRolling) wantUpdated(t *testing.T, ns, image string, n int) {
	t.Helper()
	eventuallyWithin(t, rollingLimit, "all pods have "+image, func(context.Context) error {
		if got := r.with(t, ns, image); got != n { //nolint:contextcheck // it has the test's context
			return fmt.Errorf("%d of %d; %s", got, n, r.field(t, "clustersidecartemplate/agent", "{.status}")) //nolint:contextcheck // the same
		}
		return nil
	})
	pods := r.ready(t, ns, n)
	if app := restarted(pods, "app"); app != 0 {
		t.Errorf("the apps have %d restarts", app)
	}
	r.wantCondition(t, "Progressing", "False Complete")
	r.wantCondition(t, "Degraded", "False AsExpected")
	r.wantCurrent(t, ns, pods)
}

// rights checks that nothing happens without the component, and that the status has the reason. With the component, the rollout begins.
func (r *selfRolling) rights(t *testing.T, ns string) {
	r.settle(t, ns, "strategy: InPlace", "agent:1")
	r.allow(t, ns)
	r.deployment(t, ns, 2)
	r.ready(t, ns, 2)
	r.settle(t, ns, "strategy: InPlace", "agent:2")
	if message := r.wantCondition(t, "Progressing", "False CannotPlan"); !strings.Contains(message, `cannot list resource "namespaces"`) || !strings.Contains(message, "The component rollout has the rights") {
		t.Errorf("the message is %s", message)
	}
	if n := r.with(t, ns, "agent:1"); n != 2 {
		t.Errorf("%d of 2 pods are as they were", n)
	}
	r.grantRights(t)
	r.settle(t, ns, "strategy: InPlace, maxUnavailable: 1", "agent:2") // the controller tries again by itself, but after a minute
	r.wantUpdated(t, ns, "agent:2", 2)
}

// label checks that no pod of a namespace without the label is updated. With the label, all its pods are.
func (r *selfRolling) label(t *testing.T, ns string) {
	r.settle(t, ns, "strategy: InPlace", "agent:1")
	n := r.everyKind(t, ns)
	before := uids(r.ready(t, ns, n))
	r.settle(t, ns, "strategy: InPlace", "agent:2")
	r.wantCondition(t, "Progressing", "False Complete")
	if got := r.with(t, ns, "agent:1"); got != n {
		t.Errorf("%d of %d pods are as they were", got, n)
	}
	r.allow(t, ns)
	r.wantUpdated(t, ns, "agent:2", n)
	for _, p := range r.rolling.pods(t, ns) {
		if before[p.Name] != p.UID {
			t.Errorf("pod %s is another one", p.Name)
		}
	}
	eventually(t, "the numbers of pods", func(context.Context) error {
		const path = "{.status.pods.current} {.status.pods.updated}"
		if got, want := r.field(t, "clustersidecartemplate/agent", path), fmt.Sprintf("%d %[1]d", n); got != want { //nolint:contextcheck // kubectl has the test's context
			return fmt.Errorf("%s, want %s", got, want)
		}
		return nil
	})
	eventually(t, "an Event of each wave", func(ctx context.Context) error {
		events, err := r.installed.Client.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, wave := range []string{"Wave 1 of 3: ", "Wave 2 of 3: ", "Wave 3 of 3: "} {
			if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
				return e.Reason == "RolloutWave" && strings.HasPrefix(e.Note, wave) && strings.Contains(e.Note, ns+" ")
			}) {
				return fmt.Errorf("there is none of %s", wave)
			}
		}
		return nil
	})
}

// paused checks that no pod changes until the rollout is resumed. If it is paused in the middle, a few more pods may change.
func (r *selfRolling) paused(t *testing.T, ns string) {
	const n, slow = 6, "strategy: InPlace, maxUnavailable: 1"
	r.settle(t, ns, slow, "agent:1")
	r.allow(t, ns)
	r.deployment(t, ns, n)
	r.ready(t, ns, n)
	r.settle(t, ns, slow+", paused: true", "agent:2")
	r.wantCondition(t, "Paused", "True Paused")
	if got := r.with(t, ns, "agent:1"); got != n {
		t.Errorf("%d of %d pods are as they were", got, n)
	}
	r.takeTime(math.MaxInt) // so that the pause comes before the second pod
	defer r.takeTime(0)
	r.settle(t, ns, slow, "agent:2")
	eventuallyWithin(t, rollingLimit, "a pod has changed", func(context.Context) error {
		if r.with(t, ns, "agent:2") == 0 { //nolint:contextcheck // it has the test's context
			return errors.New("none")
		}
		return nil
	})
	r.settle(t, ns, slow+", paused: true", "agent:2")
	r.takeTime(3) // the controller completes the first pod, and may see the pause a moment later
	r.wantCondition(t, "Progressing", "False Paused")
	if got := r.with(t, ns, "agent:2"); got == n {
		t.Error("all pods have changed although the rollout was paused")
	}
	r.takeTime(0)
	r.settle(t, ns, slow, "agent:2")
	r.wantCondition(t, "Paused", "False NotPaused")
	r.wantUpdated(t, ns, "agent:2", n)
	if got := restarted(r.rolling.pods(t, ns), "agent"); got != n {
		t.Errorf("the sidecars have %d restarts, want %d", got, n)
	}
}

// deployThree creates a Deployment of three pods with the image agent:1, in a namespace in which the controller may change pods. It
// returns the pods.
func (r *selfRolling) deployThree(t *testing.T, ns, rollout string) map[string]types.UID {
	t.Helper()
	r.settle(t, ns, rollout, "agent:1")
	r.allow(t, ns)
	r.deployment(t, ns, 3)
	return uids(r.ready(t, ns, 3))
}

// failure checks that no other pod changes after one has failed, until the template changes.
func (r *selfRolling) failure(t *testing.T, ns string) {
	const slow = "strategy: InPlace, maxUnavailable: 1"
	before := r.deployThree(t, ns, slow)
	r.settle(t, ns, slow, "agent:bad")
	message := r.wantCondition(t, "Degraded", "True Failed")
	failed := r.field(t, "clustersidecartemplate/agent", "{.status.failed[0].namespace} {.status.failed[0].workload} {.status.failed[0].pod}")
	pod, _ := strings.CutPrefix(failed, ns+" Deployment/web ")
	if before[pod] == "" || !strings.Contains(message, "pod "+pod+" in the namespace "+ns) || !strings.Contains(message, "ImagePullBackOff") || !strings.Contains(message, "half done") {
		t.Errorf("%q has failed: %s", failed, message)
	}
	r.wantCondition(t, "Progressing", "False Stopped")
	r.wantEvent(t, "default", "agent", "Warning RolloutStopped "+message)
	if got := r.with(t, ns, "agent:bad"); got != 1 {
		t.Errorf("%d pods have the bad image, want 1", got)
	}
	r.settle(t, ns, slow, "agent:1")
	r.wantUpdated(t, ns, "agent:1", 3)
	for _, p := range r.rolling.pods(t, ns) {
		if before[p.Name] != p.UID {
			t.Errorf("pod %s is another one", p.Name)
		}
	}
}

// undoes checks that a proved pod and a failed one both go back to the previous image, which is not the first one. Nothing else
// changes until the template changes, even if the pod that has failed is deleted.
func (r *selfRolling) undoes(t *testing.T, ns string) {
	const slow = "strategy: InPlace, maxUnavailable: 1, onFailure: Undo"
	before := r.deployThree(t, ns, slow)
	r.settle(t, ns, slow, "agent:2")
	r.wantUpdated(t, ns, "agent:2", 3)
	was := r.field(t, "clustersidecartemplate/agent", "{.status.revision}")
	r.settle(t, ns, slow, "agent:once")
	message := r.wantCondition(t, "Degraded", "True Undone")
	if !strings.HasPrefix(message, "2 pods were put back to the content before the rollout, because of this failure: pod web-") || !strings.Contains(message, "ImagePullBackOff") {
		t.Error(message)
	}
	r.wantCondition(t, "Progressing", "False Stopped")
	r.wantEvent(t, "default", "agent", "Normal RolloutUndone "+message)
	if got := r.field(t, "clustersidecartemplate/agent", "{.status.failed[0].undo}"); got != `{"done":true,"pods":2}` {
		t.Error(got)
	}
	for _, p := range r.ready(t, ns, 3) {
		if before[p.Name] != p.UID || p.Spec.InitContainers[0].Image != "agent:2" || p.Annotations["agent.pillion.dev/injected"] != was {
			t.Errorf("pod %s (%s) has the image %s and %v", p.Name, p.UID, p.Spec.InitContainers[0].Image, p.Annotations)
		}
	}
	if app := restarted(r.rolling.pods(t, ns), "app"); app != 0 {
		t.Errorf("the apps have %d restarts", app)
	}
	failed := r.field(t, "clustersidecartemplate/agent", "{.status.failed[0].pod}")
	r.kubectl(t, "", "delete", "pod", failed, "-n", ns, "--wait=false")
	eventually(t, "there is a new pod", func(context.Context) error {
		if n := r.with(t, ns, "agent:once"); n != 1 { //nolint:contextcheck // it has the test's context
			return fmt.Errorf("%d pods have the content of the template", n)
		}
		return nil
	})
	r.wantCondition(t, "Degraded", "True Undone")
	r.settle(t, ns, slow, "agent:3")
	r.wantUpdated(t, ns, "agent:3", 3)
}

// restarts checks that a change that needs new pods happens only with the strategy for that.
func (r *selfRolling) restarts(t *testing.T, ns string) {
	r.settings = "strategy: InPlace"
	r.template(t, ns, "agent:1", "32Mi", "info")
	r.allow(t, ns)
	n := r.everyKind(t, ns)
	before := uids(r.ready(t, ns, n))
	r.template(t, ns, "agent:1", "32Mi", "debug")
	eventuallyWithin(t, rollingLimit, "the reason is reported", func(context.Context) error {
		if message := r.wantCondition(t, "Progressing", "False Incomplete"); !strings.Contains(message, "only a new pod gets the change") { //nolint:contextcheck // kubectl has the test's context
			return errors.New(message)
		}
		return nil
	})
	r.settings = "strategy: InPlaceOrRestart"
	r.template(t, ns, "agent:1", "32Mi", "debug")
	eventuallyWithin(t, rollingLimit, "all pods but two are new", func(context.Context) error {
		current := 0
		for _, p := range r.rolling.pods(t, ns) { //nolint:contextcheck // it has the test's context
			if before[p.Name] != p.UID && p.Spec.InitContainers[0].Args[0] == "--level=debug" {
				current++
			}
		}
		if current != n-2 {
			return fmt.Errorf("%d of %d; %s", current, n, r.field(t, "clustersidecartemplate/agent", "{.status}")) //nolint:contextcheck // the same
		}
		return nil
	})
	message := r.wantCondition(t, "Progressing", "False Incomplete")
	if !strings.HasPrefix(message, "2 pods of 2 workloads are not updated, for example Job/job in the namespace "+ns) {
		t.Errorf("the message is %s", message)
	}
}

// withinBudget checks that a PodDisruptionBudget counts that allows fewer unavailable pods than the template.
func (r *selfRolling) withinBudget(t *testing.T, ns string) {
	needsControllerManager(t, "updates PodDisruptionBudgets")
	const fast = "strategy: InPlace, maxUnavailable: 100%"
	r.settle(t, ns, fast, "agent:1")
	r.deployment(t, ns, 4)
	r.ready(t, ns, 4)
	one := intstr.FromInt32(1)
	budgets := r.installed.Client.PolicyV1().PodDisruptionBudgets(ns)
	_, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: appSelector("web")},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the budget allows a disruption", func(ctx context.Context) error {
		b, err := budgets.Get(ctx, "web", metav1.GetOptions{})
		if err == nil && b.Status.DisruptionsAllowed != 1 {
			err = fmt.Errorf("it allows %d", b.Status.DisruptionsAllowed)
		}
		return err
	})
	r.mu.Lock()
	r.most, r.delay = 0, 3
	r.mu.Unlock()
	r.settle(t, ns, fast, "agent:2")
	r.allow(t, ns)
	r.wantUpdated(t, ns, "agent:2", 4)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.delay = 0; r.most != 1 {
		t.Errorf("%d pods were not ready at the same time, want 1", r.most)
	}
}

// together checks that the command and the controller share the bound if both update the same pods at the same time.
func (r *selfRolling) together(t *testing.T, ns string) {
	const one = "strategy: InPlace, maxUnavailable: 1"
	r.settle(t, ns, one, "agent:1")
	r.deployment(t, ns, 6)
	before := uids(r.ready(t, ns, 6))
	r.mu.Lock()
	r.most, r.delay = 0, 3
	r.mu.Unlock()
	r.settle(t, ns, one, "agent:2")
	r.allow(t, ns)
	eventually(t, "the controller changes a pod", func(context.Context) error {
		if r.with(t, ns, "agent:2") == 0 { //nolint:contextcheck // it has the test's context
			return errors.New("it does not")
		}
		return nil
	})
	events, _ := r.rollout(t, 0, ns, "--max-unavailable", "1")
	r.wantUpdated(t, ns, "agent:2", 6)
	r.mu.Lock()
	if r.delay = 0; r.most != 1 {
		t.Errorf("%d pods were not ready at the same time, want 1", r.most)
	}
	r.mu.Unlock()
	proved := 0
	for _, e := range events {
		if e.Type == "pod" {
			proved++
		}
	}
	t.Logf("the command has updated %d of 6 pods", proved)
	if after := uids(r.ready(t, ns, 6)); !maps.Equal(after, before) {
		t.Errorf("the pods are %v, and were %v", after, before)
	}
	for _, p := range r.rolling.pods(t, ns) {
		if claim := p.Annotations["pillion.dev/unproved"]; claim != "" {
			t.Errorf("pod %s still has the claim %s", p.Name, claim)
		}
	}
}

// canary checks that the pods get a canary, and lose it right after it is deleted.
func (r *selfRolling) canary(t *testing.T, ns string) {
	const settings = "strategy: InPlace"
	r.settle(t, ns, settings, "agent:1")
	r.allow(t, ns)
	r.deployment(t, ns, 2)
	before := uids(r.ready(t, ns, 2))
	r.kubectl(t, `
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: next}
spec:
  replaces: agent
  match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: `+ns+`}}}
  rollout: {`+atOnce(settings)+`}
  pod: {spec: {initContainers: [{name: agent, image: "agent:2", args: ["--level=info"], restartPolicy: Always, resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 32Mi}}}]}}
`, "apply", "-f", "-")
	eventuallyWithin(t, rollingLimit, "the pods have the canary", func(context.Context) error {
		if n := r.with(t, ns, "agent:2"); n != 2 { //nolint:contextcheck // it has the test's context
			return fmt.Errorf("%d of 2", n)
		}
		return nil
	})
	r.ready(t, ns, 2)
	r.kubectl(t, "", "delete", "clustersidecartemplate", "next")
	r.wantUpdated(t, ns, "agent:1", 2)
	for _, p := range r.rolling.pods(t, ns) {
		if before[p.Name] != p.UID {
			t.Errorf("pod %s is another one", p.Name)
		}
		if value, ok := p.Annotations["next.pillion.dev/injected"]; ok {
			t.Errorf("pod %s has the record of the canary, %s", p.Name, value)
		}
	}
}

// killed checks that the other replica continues after the one that leads was killed in the middle of a wave.
func (r *selfRolling) killed(t *testing.T, ns string, first *cluster.Pillion) {
	const n, slow = 6, "strategy: InPlace, maxUnavailable: 1"
	second := r.begin(t)
	r.settle(t, ns, slow, "agent:1")
	r.allow(t, ns)
	r.deployment(t, ns, n)
	before := uids(r.ready(t, ns, n))
	r.takeTime(math.MaxInt) // so that the rollout is not complete before its end
	defer r.takeTime(0)
	r.settle(t, ns, slow, "agent:2")
	eventuallyWithin(t, rollingLimit, "a pod has changed", func(context.Context) error {
		if r.with(t, ns, "agent:2") == 0 { //nolint:contextcheck // it has the test's context
			return errors.New("none")
		}
		return nil
	})
	first.Kill()
	r.takeTime(0)
	if len(second.Logged("this replica leads")) != 0 {
		t.Error("both replicas lead")
	}
	r.wantUpdated(t, ns, "agent:2", n)
	pods := r.rolling.pods(t, ns)
	for i := range pods {
		if before[pods[i].Name] != pods[i].UID {
			t.Errorf("pod %s is another one", pods[i].Name)
		}
	}
	if got := restarted(pods, "agent"); got != n {
		t.Errorf("the sidecars have %d restarts, want %d", got, n)
	}
	if err := second.Stop(); err != nil {
		t.Errorf("pillion controller after SIGTERM: %v\n%s", err, second.LogTail())
	}
}
