// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The templates of the two replicas differ while new ones are rolled out. What one of them has injected, the
// other may have to judge.

const (
	// forgedEvery is how many good pods there are for each forged one.
	forgedEvery = 10
	// mostCalls is how often the validating webhook is called for one pod, whatever is in it.
	mostCalls = 5
)

// rollout is one change of templates.
type rollout struct {
	name string // of the folder with the new set
	// injected reports whether a pod has what the new set gives it.
	injected func(*corev1.Pod) bool
}

func rollouts() []rollout {
	hasExtra := func(p *corev1.Pod) bool { return findContainer(p, "extra") != nil }
	return []rollout{
		{"image", func(p *corev1.Pod) bool { return findContainer(p, "shield").Image == "registry.example/shield:2" }},
		{"mount", func(p *corev1.Pod) bool { return slices.Contains(mountPaths(p.Spec.Containers[0]), "/var/shield") }},
		{"optional", hasExtra},
		{"required", hasExtra},
	}
}

// TestReplicas checks that during a rollout of templates no correct pod is denied and no wrong pod is accepted.
// One create costs a bounded number of calls, whatever the pod's annotations are.
func TestReplicas(t *testing.T) {
	t.Parallel()
	for _, r := range rollouts() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			pair := newReplicas(t, "old", r.name)
			t.Run("in each order", func(t *testing.T) { r.inEachOrder(t, pair) })
			t.Run("any order", func(t *testing.T) {
				before := pair.doubts(t)
				pair.crowd(t, 200)
				forged := 200 / forgedEvery * (mostCalls - 1)
				if doubts := pair.doubts(t) - before - forged; doubts <= 0 { // neither ever had the other's templates
					t.Errorf("the replicas doubted %d good pods", doubts)
				} else {
					t.Logf("the API server was redirected %d times about 200 good pods", doubts)
				}
			})
			t.Run("while they change places", func(t *testing.T) {
				revisions := pair.revisions(t.Context(), t)
				var published atomic.Bool
				var users errgroup.Group
				users.Go(func() error {
					for !published.Load() {
						pair.crowd(t, 20)
					}
					return nil
				})
				pair.publish(t, 0, r.name)
				pair.publish(t, 1, "old")
				eventually(t, "both replicas have the other's templates", func(ctx context.Context) error {
					if now := pair.revisions(ctx, t); now[0] != revisions[1] || now[1] != revisions[0] {
						return fmt.Errorf("the revisions were %v and are %v", revisions, now)
					}
					return nil
				})
				published.Store(true)
				_ = users.Wait()
				before := pair.doubts(t)
				pair.crowd(t, 50)
				doubts := pair.doubts(t) - before - 50/forgedEvery*(mostCalls-1)
				if doubts != 0 && r.name != "required" { // which a replica that knows it does not excuse by itself

					t.Errorf("the replicas doubted %d good pods, although both know both sets", doubts)
				}
			})
		})
	}
}

// inEachOrder has one replica called first by each webhook.
func (r *rollout) inEachOrder(t *testing.T, pair *replicas) {
	const isNew = 1 // the replica that has the new set
	for mutate := range pair.pillions {
		for validate := range pair.pillions {
			t.Run(fmt.Sprintf("injected by %d, judged by %d", mutate, validate), func(t *testing.T) {
				for i := range 5 {
					pair.startAt(mutate, validate)
					pod, err := pair.create(testContext(t), newPod(fmt.Sprintf("web-%d-%d-%d", mutate, validate, i)))
					if err != nil {
						t.Fatalf("a good pod is denied: %v", err)
					}
					if got, want := r.injected(pod), mutate == isNew; got != want {
						t.Errorf("injected what is new: %t, want %t", got, want)
					}
					// The new sets are stricter than the old one. Only what is altered differs both ways.
					want := []int{validate}
					if mutate != validate && (validate == isNew || r.name == "image") {
						want = append(want, mutate)
					}
					if asked := pair.validate.Passed(); !slices.Equal(asked, want) {
						t.Errorf("the replicas that were asked to judge are %v, want %v", asked, want)
					}
				}
				pair.startAt(mutate, validate)
				pair.wantForgedDenied(testContext(t), t, fmt.Sprintf("forged-%d-%d", mutate, validate))
				if calls := len(pair.mutate.Passed()); calls != 1 {
					t.Errorf("the mutating webhook was called %d times for a forged pod, want 1", calls)
				}
				if calls := len(pair.validate.Passed()); calls != mostCalls {
					t.Errorf("the validating webhook was called %d times for a forged pod, want %d", calls, mostCalls)
				}
			})
		}
	}
}

// crowd creates that many correct pods at once, and some forged ones among them. Each call reaches any of
// the replicas, so all calls about a pod may reach the one with the older templates. Then the pod is
// denied once, and its controller retries.
func (pair *replicas) crowd(t *testing.T, n int) {
	t.Helper()
	pair.mutate.Any()
	pair.validate.Any()
	ctx := testContext(t)
	var denied atomic.Int64
	var group errgroup.Group
	group.SetLimit(20)
	for i := range n {
		group.Go(func() error {
			name := pair.name()
			_, err := pair.create(ctx, newPod(name))
			for tries := 1; err != nil && tries < mostTries; tries++ {
				denied.Add(1)
				wantForbidden(t, err, "")
				if !strings.Contains(err.Error(), "again") {
					t.Errorf("pod %s is denied, and not to be created again: %v", name, err)
				}
				_, err = pair.create(ctx, newPod(name))
			}
			if err != nil {
				t.Errorf("a good pod is denied again and again: %v", err)
			}
			if i%forgedEvery == 0 {
				pair.wantForgedDenied(ctx, t, pair.name())
			}
			return nil
		})
	}
	_ = group.Wait()
	if most := int64(2 + n/20); denied.Load() > most { // expected: n/64
		t.Errorf("%d of %d good pods were denied at first, want at most %d", denied.Load(), n, most)
	}
}

// mostTries is more than a controller needs.
const mostTries = 30

// forged brings a container of the template's name, and says that it was injected.
func forged(p *corev1.Pod) {
	p.Annotations["shield.pillion.dev/injected"] = "0123456789ab"
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
		Name: "shield", Image: "registry.example/evil:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
	})
}

func (pair *replicas) wantForgedDenied(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	_, err := pair.create(ctx, newPod(name, forged))
	wantForbidden(t, err, "shield: altered at /spec/initContainers/")
}

func (pair *replicas) name() string { return fmt.Sprintf("web-%d", pair.named.Add(1)) }

func (pair *replicas) create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return env.Client.CoreV1().Pods(pair.namespace).Create(ctx, pod, metav1.CreateOptions{})
}

func (pair *replicas) startAt(mutate, validate int) {
	pair.mutate.StartAt(mutate)
	pair.validate.StartAt(validate)
}

// doubts is how often the replicas have redirected the API server.
func (pair *replicas) doubts(t *testing.T) int {
	t.Helper()
	sum := 0.0
	for _, p := range pair.pillions {
		metrics, err := p.Metrics(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		sum += metrics.Counter("pillion_webhook_requests_total", map[string]string{"decision": "doubted"})
	}
	return int(sum)
}

// revisions are those of the sets of templates in use.
func (pair *replicas) revisions(ctx context.Context, t *testing.T) [2]string {
	t.Helper()
	var all [2]string
	for i, p := range pair.pillions {
		metrics, err := p.Metrics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if values := metrics.Label("pillion_templates", "revision"); len(values) == 1 {
			all[i] = values[0]
		}
	}
	return all
}
