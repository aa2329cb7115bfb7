// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// TestChange changes the pods of two workloads in place, with four requests for each pod.
func TestChange(t *testing.T) {
	t.Parallel()
	c := newFake(t, 4)
	events := c.runRollout(t, func(r *executor.Rollout) { r.Limits = newLimits(t, "25%", 10*time.Second) })
	for name, pod := range c.pods {
		if p := c.plan(t, pod); p.Action != rollout.None || p.State != explain.Current {
			t.Errorf("pod %s is %s afterwards and needs %s", name, p.State, p.Action)
		}
	}
	const dryRun = "patch resize dry run"
	want, tried := []string{"claim", "patch", "patch resize", "patch"}, 0
	for name := range c.pods {
		var got []string
		for _, call := range c.calls {
			if of, ok := strings.CutSuffix(call, " "+name); ok && of == dryRun {
				tried++
			} else if ok {
				got = append(got, of)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("requests about %s: %q, want %q", name, got, want)
		}
	}
	if tried != 2 { // pods change one after the other, and the first one of each workload shows whether a resize is accepted
		t.Errorf("%d pods of 2 workloads have a dry run of the resize: %q", tried, c.calls)
	}
	if last := events[len(events)-1]; last.Done != 4 || last.Total != 4 {
		t.Errorf("the last event is %+v", last)
	}
}

// TestEachFailure lets each request fail once, and checks that another run completes the rollout: with
// the error before the request took effect, and after.
func TestEachFailure(t *testing.T) {
	t.Parallel()
	base := newFake(t, 2)
	base.runRollout(t, nil)
	for _, after := range []bool{false, true} {
		for n := range len(base.calls) {
			t.Run(fmt.Sprintf("call %d, after %t", n, after), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := newFake(t, 2)
					c.failAt, c.failAfter = n, after
					if err := c.tryRun(t, nil); err == nil {
						t.Log("the failure was tolerated")
					}
					c.failAt = -1
					c.runRollout(t, func(r *executor.Rollout) { r.Limits.Timeout = time.Minute }) // a claim that is left counts for 30 s
					for name, pod := range c.pods {
						if p := c.plan(t, pod); p.Action != rollout.None || p.State != explain.Current {
							t.Errorf("pod %s is %s afterwards and needs %s (%s)", name, p.State, p.Action, p.Why)
						}
					}
				})
			})
		}
	}
}

// TestStops checks that a container that does not start ends the rollout after the first pod, with the
// reason and what is half done, and that the old template repairs the pod.
func TestStops(t *testing.T) {
	t.Parallel()
	for what, happens := range map[string]func(*corev1.Pod){
		"ImagePullBackOff": func(p *corev1.Pod) {
			p.Status.InitContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no agent:2"}}
		},
		"CrashLoopBackOff": func(p *corev1.Pod) {
			p.Status.InitContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		},
		"cannot pull": func(p *corev1.Pod) { // the status of a sidecar does not say so
			p.Status.InitContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		},
		"cannot resize": func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: "too big"})
		},
		"not done after": func(p *corev1.Pod) {
			p.Status.InitContainerStatuses[0].Ready = false
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := newFake(t, 4)
			c.kubelet = happens
			if what == "cannot pull" {
				c.event = "Failed: cannot pull agent:2"
			}
			err := c.tryRun(t, func(r *executor.Rollout) { firstWorkload(t, r); r.Limits.Timeout = 50 * time.Millisecond })
			if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "half done: pod web-0") {
				t.Fatalf("got %v, want %s and what is half done", err, what)
			}
			for _, name := range []string{"web-1", "web-2", "web-3"} {
				if image := c.image(t, name); image != "agent:1" {
					t.Errorf("pod %s has the image %s", name, image)
				}
			}
			c.kubelet, c.event = nil, ""
			c.planner.Injector = c.old
			c.runRollout(t, nil)
			if image := c.image(t, "web-0"); image != "agent:1" {
				t.Errorf("after a run with the old template, the image is %s", image)
			}
		})
	}
}

// TestBudget checks that no more pods are changed at a time than a PodDisruptionBudget allows, and that
// pods that are not ready do not count.
func TestBudget(t *testing.T) {
	t.Parallel()
	c := newFake(t, 6)
	c.budgets = []executor.Budget{{Name: "web", Selector: labels.Everything(), Allowed: 1}}
	c.hold = 3 // polls until a pod is ready again
	c.runRollout(t, nil)
	if c.most != 1 {
		t.Errorf("%d pods were changed at the same time, want 1", c.most)
	}

	c = newFake(t, 2)
	c.budgets = []executor.Budget{{Name: "web", Selector: labels.Everything(), Allowed: 0}}
	var events []executor.Event
	err := c.tryRun(t, func(r *executor.Rollout) { r.Limits.Timeout, r.Patience = 20*time.Millisecond, time.Nanosecond }, &events)
	if err == nil || !strings.Contains(err.Error(), "PodDisruptionBudget web") {
		t.Errorf("got %v", err)
	}
	if !slices.ContainsFunc(events, func(e executor.Event) bool {
		return e.Type == "waiting" && e.Pod != "" && e.Message == "the PodDisruptionBudget web to allow a disruption"
	}) {
		t.Errorf("nothing says what a pod waits for: %+v", events)
	}
	if image := c.image(t, "web-0"); image != "agent:1" {
		t.Errorf("a pod was changed, although the budget allows no disruption")
	}
	c.unready()
	c.runRollout(t, nil)
	if image := c.image(t, "web-0"); image != "agent:2" {
		t.Errorf("a pod that was not ready was not changed: %s", image)
	}
}

// TestUnavailable checks the limit of pods that change at a time.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"1", "3", "50%"} {
		c := newFake(t, 6)
		c.hold = 5
		c.runRollout(t, func(r *executor.Rollout) {
			r.Limits.MaxUnavailable = newLimits(t, n, 0).MaxUnavailable
		})
		want := map[string]int{"1": 1, "3": 3, "50%": 3}[n]
		if c.most > want || want > 1 && c.most < 2 {
			t.Errorf("--max-unavailable %s: %d pods were changed at the same time", n, c.most)
		}
	}
}

// TestInterrupt stops a rollout while it changes a pod: the pod is completed, no other one begins, and
// the next run continues.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	c := newFake(t, 4)
	stop := make(chan struct{})
	var once sync.Once
	c.kubelet = func(*corev1.Pod) { once.Do(func() { close(stop) }) }
	err := c.tryRun(t, func(r *executor.Rollout) { r.Stop = stop })
	if !errors.Is(err, executor.ErrStopped) {
		t.Fatalf("got %v", err)
	}
	var done []string
	for name, pod := range c.pods {
		switch p := c.plan(t, pod); {
		case p.Action == rollout.None:
			done = append(done, name)
		case c.image(t, name) != "agent:1":
			t.Errorf("pod %s is half done", name)
		}
	}
	if len(done) != 1 {
		t.Errorf("%v are done, want one", done)
	}
	c.runRollout(t, nil)
	for name := range c.pods {
		if image := c.image(t, name); image != "agent:2" {
			t.Errorf("after the second run, pod %s has the image %s", name, image)
		}
	}
}

// TestPause checks that a pause can end a rollout between two waves.
func TestPause(t *testing.T) {
	t.Parallel()
	c := newFake(t, 4)
	var asked []int
	err := c.tryRun(t, func(r *executor.Rollout) {
		firstWorkload(t, r)
		r.Pause = func(_ context.Context, wave int, next []rollout.Part) error {
			asked = append(asked, wave, len(next))
			return executor.ErrStopped
		}
	})
	if !errors.Is(err, executor.ErrStopped) || !slices.Equal(asked, []int{2, 1}) {
		t.Errorf("got %v, asked %v", err, asked)
	}
	if c.image(t, "web-0") != "agent:2" || c.image(t, "web-3") != "agent:1" {
		t.Errorf("the first wave was not exactly what was changed: %s, %s", c.image(t, "web-0"), c.image(t, "web-3"))
	}
}

// TestMeanwhile checks that a change of somebody else between two requests stays.
func TestMeanwhile(t *testing.T) {
	t.Parallel()
	c := newFake(t, 1)
	c.meanwhile = func(pod *corev1.Pod) {
		pod.Spec.InitContainers[0].Image = "agent:mine"
		pod.ManagedFields = []metav1.ManagedFieldsEntry{owner("kubectl-edit", metav1.NewTime(time.Now().Add(time.Minute)))}
	}
	var events []executor.Event
	if err := c.tryRun(t, nil, &events); err != nil {
		t.Fatal(err)
	}
	last := events[len(events)-1]
	if image := c.image(t, "web-0"); image != "agent:mine" || last.Type != "skipped" || !strings.Contains(last.Message, `"kubectl-edit" has changed the image of agent`) && !strings.Contains(last.Message, `whether "kubectl-edit" has changed`) {
		t.Errorf("the image is %s, and the last event %+v", image, last)
	}
}

// TestMessages checks that no message asks users to run a command again. The command says so itself, and the
// controller, which tries again, reports the same messages.
func TestMessages(t *testing.T) {
	t.Parallel()
	advice := regexp.MustCompile(`(?i)\bcommand\b|\brun\b.*\bagain\b|\brun pillion\b`)
	for _, dir := range []string{".", "../../../inject/rollout"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		must(t, err)
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			must(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				text, ok := n.(*ast.BasicLit)
				if ok && text.Kind == token.STRING && !strings.HasSuffix(name, "_test.go") && advice.MatchString(text.Value) {
					t.Errorf("%s: %s", name, text.Value)
				}
				return true
			})
		}
	}
}
