// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// wellPod is a pod with a sidecar after a change that has taken effect.
func wellPod() *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Generation: 2},
		Spec: corev1.PodSpec{InitContainers: []corev1.Container{
			{Name: "setup", Image: "setup:2"}, {Name: "agent", Image: "agent:2", RestartPolicy: &always, Resources: limits},
		}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, ObservedGeneration: 2,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			InitContainerStatuses: []corev1.ContainerStatus{
				{Name: "setup", Image: "setup:1", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
				{Name: "agent", Image: "docker.io/library/agent:2", Ready: true, Resources: &limits, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			},
		},
	}
}

// checkTrimmed is [rollout.Check], which must say the same about pods of which only a part is kept.
func checkTrimmed(t *testing.T, now, before *corev1.Pod, own []string, ready bool) rollout.Health {
	t.Helper()
	whole := rollout.Check(now, before, own, ready)
	now = rollout.Trim(now)
	if before != nil {
		before = rollout.Trim(before)
	}
	if h := rollout.Check(now, before, own, ready); h != whole {
		t.Errorf("after Trim, the health is %+v, and not %+v", h, whole)
	}
	return whole
}

// TestCheck checks what a pod's status says after a change.
func TestCheck(t *testing.T) {
	t.Parallel()
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	agent := func(p *corev1.Pod) *corev1.ContainerStatus { return &p.Status.InitContainerStatuses[1] }
	condition := func(kind corev1.PodConditionType, reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message})
		}
	}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		failed string
		waits  string
	}{
		"well":           {change: func(*corev1.Pod) {}},
		"old generation": {func(p *corev1.Pod) { p.Status.ObservedGeneration = 1 }, "", "the kubelet to notice"},
		"old kubelet":    {change: func(p *corev1.Pod) { p.Status.ObservedGeneration = 0 }},
		"old image": {func(p *corev1.Pod) {
			agent(p).Image = "agent:1"
			p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: rollout.Manager, Time: new(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
		}, "", "to run the image agent:2"},
		"other name of the image": {change: func(p *corev1.Pod) {
			agent(p).Image = "sha256:123"
			agent(p).State.Running.StartedAt = metav1.NewTime(time.Now().Add(time.Minute))
			p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: rollout.Manager, Time: new(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
		}},
		"not ready":     {func(p *corev1.Pod) { agent(p).Ready = false }, "", "the container agent to be ready"},
		"pod not ready": {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, "", "the pod to become Ready"},
		"old memory": {func(p *corev1.Pod) {
			agent(p).Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}}
		}, "", "to get its resources"},
		"pull":        {func(p *corev1.Pod) { agent(p).State = waiting("ErrImagePull", "no agent:2") }, "agent does not start: ErrImagePull: no agent:2", ""},
		"crash":       {func(p *corev1.Pod) { agent(p).State = waiting("CrashLoopBackOff", "") }, "CrashLoopBackOff", ""},
		"starts":      {func(p *corev1.Pod) { agent(p).State = waiting("PodInitializing", "") }, "", "the container agent to start"},
		"infeasible":  {condition(corev1.PodResizePending, "Infeasible", "too big"), "the node cannot resize it: too big", ""},
		"deferred":    {condition(corev1.PodResizePending, "Deferred", "no room"), "", "room for the resize: no room"},
		"in progress": {condition(corev1.PodResizeInProgress, "", ""), "", "the kubelet to resize it"},
		"failed":      {func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }, "the pod has failed: Evicted", ""},
		"ended":       {change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"no node yet": {change: func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}}
		}},
		"a node, but not started": {func(p *corev1.Pod) {
			p.Spec.NodeName = "n"
			p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}}
		}, "", "the container agent to start"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := wellPod()
			test.change(p)
			h := checkTrimmed(t, p, wellPod(), []string{"setup", "agent"}, true)
			if h.Done != (test.failed+test.waits == "") || !strings.Contains(h.Failed, test.failed) || !strings.Contains(h.Waits, test.waits) || (h.Failed == "") != (test.failed == "") {
				t.Errorf("got %+v, want failed %q, waits %q", h, test.failed, test.waits)
			}
		})
	}
}

// TestCheckUntried checks that a back-off from before a change is no failure of it, whatever the state was then.
func TestCheckUntried(t *testing.T) {
	t.Parallel()
	changed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		started time.Duration
		fails   bool
	}{{-time.Second, false}, {time.Second, true}} {
		before, now := wellPod(), wellPod()
		ended := &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(changed.Add(c.started))}
		before.Status.InitContainerStatuses[1].State = corev1.ContainerState{Terminated: ended}
		now.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: rollout.Manager, Time: new(metav1.NewTime(changed)), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
		agent := &now.Status.InitContainerStatuses[1]
		agent.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		agent.LastTerminationState.Terminated = ended
		if h := checkTrimmed(t, now, before, []string{"agent"}, false); h.Done || (h.Failed != "") != c.fails {
			t.Errorf("started %s after the change: %+v", c.started, h)
		}
	}
}

// TestCheckBefore checks that a failure that was there before the change is not taken for one of the change.
func TestCheckBefore(t *testing.T) {
	t.Parallel()
	before, now := wellPod(), wellPod()
	before.Spec.InitContainers[1].Image = "agent:bad"
	old := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "cannot pull agent:bad"}}
	before.Status.InitContainerStatuses[1].State, now.Status.InitContainerStatuses[1].State = old, old
	if h := checkTrimmed(t, now, before, []string{"agent"}, false); h.Failed != "" || h.Done {
		t.Errorf("right after the change: %+v", h)
	}
	now.Status.InitContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "cannot pull agent:2"}}
	if h := checkTrimmed(t, now, before, []string{"agent"}, false); h.Failed == "" {
		t.Errorf("if the new image cannot be pulled: %+v", h)
	}
	if h := checkTrimmed(t, before, nil, []string{"agent"}, false); h.Failed == "" {
		t.Errorf("if an earlier rollout has changed it: %+v", h)
	}
}

// TestOver checks that a container that has ended counts as done if it does not run again.
func TestOver(t *testing.T) {
	t.Parallel()
	never, onFailure := corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure
	for what, test := range map[string]struct {
		pod       corev1.RestartPolicy
		container *corev1.ContainerRestartPolicy
		rule      corev1.ContainerRestartRuleOnExitCodesOperator // for exit code 3
		code      int32
		ran       bool // before the change
		over      bool
	}{
		"Never":                                    {pod: corev1.RestartPolicyNever, over: true},
		"Never, it failed":                         {pod: corev1.RestartPolicyNever, code: 1, over: true},
		"OnFailure":                                {pod: corev1.RestartPolicyOnFailure, over: true},
		"OnFailure, it failed":                     {pod: corev1.RestartPolicyOnFailure, code: 1},
		"Always":                                   {pod: corev1.RestartPolicyAlways},
		"Always, the container has Never":          {pod: corev1.RestartPolicyAlways, container: &never, over: true},
		"Always, the container has OnFailure":      {pod: corev1.RestartPolicyAlways, container: &onFailure, over: true},
		"a rule for the exit code":                 {pod: corev1.RestartPolicyNever, container: &never, rule: "In", code: 3},
		"a rule for another exit code":             {pod: corev1.RestartPolicyNever, container: &never, rule: "In", code: 1, over: true},
		"a rule for all other exit codes":          {pod: corev1.RestartPolicyNever, container: &never, rule: "NotIn", code: 1},
		"the kubelet replaces it by the new image": {pod: corev1.RestartPolicyNever, ran: true},
	} {
		now := &corev1.Pod{
			Spec: corev1.PodSpec{RestartPolicy: test.pod, Containers: []corev1.Container{{Name: "agent", Image: "agent:2", RestartPolicy: test.container}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "agent", Image: "agent:1", ContainerID: "1", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: test.code}},
			}}},
		}
		if test.rule != "" {
			now.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action: corev1.ContainerRestartRuleActionRestart, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: test.rule, Values: []int32{3}},
			}}
		}
		before := now.DeepCopy()
		before.Spec.Containers[0].Image = "agent:1"
		if test.ran {
			before.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}
		if h := checkTrimmed(t, now, before, []string{"agent"}, true); h.Done != test.over {
			t.Errorf("%s: got %+v, want done %t", what, h, test.over)
		}
		before.Status.ContainerStatuses[0].ContainerID = "0" // it has run with the new image
		if h := checkTrimmed(t, now, before, []string{"agent"}, true); (h.Failed != "") != (test.over && test.code != 0) {
			t.Errorf("%s: with the new image: %+v", what, h)
		}
		if steady := rollout.Steady(now, []string{"agent"}, time.Now()); steady != (test.over || test.ran) {
			t.Errorf("%s: steady %t", what, steady)
		}
	}
}

// TestReplacementIsDeleted checks that each new pod must be proved after an eviction: if somebody deletes the pod that took the place of
// an evicted one, the next one counts.
func TestReplacementIsDeleted(t *testing.T) {
	t.Parallel()
	now := time.Now()
	pod := func(name string) *corev1.Pod {
		p := wellPod()
		p.Name, p.UID, p.CreationTimestamp = name, types.UID(name), metav1.NewTime(now)
		return p
	}
	w := rollout.NewWatch(rollout.Evict, rollout.Rules{Proof: time.Minute}, rollout.NewClaim("", "this", time.Minute, now))
	w.Expect([]*rollout.Pod{{Name: "old", UID: "old"}})
	w.See([]*corev1.Pod{pod("old")}, now)
	w.Evict("old", now)
	for _, name := range []string{"first", "second"} {
		w.See([]*corev1.Pod{pod(name)}, now)
		if open := w.Open(); len(open) != 1 || open[0].Name != name {
			t.Errorf("after the pod %s has taken the place, the rollout waits for %+v", name, open)
		}
	}
}
