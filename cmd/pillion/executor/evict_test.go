// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// TestEvictOther checks that a pod that has taken the place of a planned one is not evicted.
func TestEvictOther(t *testing.T) {
	t.Parallel()
	c := newRecreating(t, 2)
	c.planned = func() { c.replace("web-0") }
	if err := c.update(t, rollout.Evict, 10*time.Second); err != nil || strings.Join(c.evicted, " ") != "web-1" {
		t.Errorf("evicted %v, %v", c.evicted, err)
	}
}

// TestEvictDenied checks that an eviction is tried again only if a budget denies it, and until the rollout has to stop.
func TestEvictDenied(t *testing.T) {
	t.Parallel()
	c := newRecreating(t, 2)
	c.budget, c.denied = 1<<30, func() error {
		return apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("no right"))
	}
	if err := c.update(t, rollout.Evict, time.Minute); err == nil || !strings.Contains(err.Error(), "it cannot be evicted") || len(c.evicted) > 0 {
		t.Errorf("without the right: evicted %v, %v", c.evicted, err)
	}
	c = newRecreating(t, 2)
	c.stop, c.budget = make(chan struct{}), 1<<30
	c.denied = func() error {
		if c.budget == 1<<30-1 {
			close(c.stop)
		}
		return nil
	}
	if err := c.update(t, rollout.Evict, time.Minute); !errors.Is(err, executor.ErrStopped) || len(c.evicted) > 0 {
		t.Errorf("stopped: evicted %v, %v", c.evicted, err)
	}
}

// TestEvictTerminating checks that it is no failure if a namespace is deleted, which forbids evictions in it.
func TestEvictTerminating(t *testing.T) {
	t.Parallel()
	c := newRecreating(t, 2)
	c.budget, c.denied = 1<<30, func() error {
		err := apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("the namespace is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	}
	if err := c.update(t, rollout.Evict, time.Minute); err != nil || len(c.evicted) > 0 {
		t.Errorf("evicted %v, %v", c.evicted, err)
	}
}

// TestEvictWaits checks that an eviction is complete only if as many pods of the same controller are ready as before:
// pods that are being deleted and those of other controllers do not count.
func TestEvictWaits(t *testing.T) {
	t.Parallel()
	for what, also := range map[string]func(c *recreating, pod *corev1.Pod){
		"the new pod is not ready": nil,
		"the old one ends":         func(_ *recreating, pod *corev1.Pod) { now := metav1.Now(); pod.DeletionTimestamp = &now },
		"another controller's pod": func(_ *recreating, pod *corev1.Pod) { pod.OwnerReferences[0].UID = "other" },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := newRecreating(t, 2)
			c.evicts = func(name string) {
				if also != nil {
					pod := c.pods[name].DeepCopy()
					pod.Name, pod.UID = "also", "also"
					also(c, pod)
					c.pods["also"], c.order = pod, append(c.order, "also")
				}
				c.pods[name].Status.Conditions[0].Status = corev1.ConditionFalse
			}
			err := c.update(t, rollout.Evict, 50*time.Millisecond)
			if err == nil || !strings.Contains(err.Error(), "it replaces web-0, which was evicted: it is not done after 50ms: it waits for the pod to become Ready") || len(c.evicted) != 1 {
				t.Errorf("evicted %v, %v", c.evicted, err)
			}
		})
	}
}

// TestRestartOldPods checks that pods from before a restart cannot make it fail: it may be what fixes them.
func TestRestartOldPods(t *testing.T) {
	t.Parallel()
	c := newRecreating(t, 2)
	for _, pod := range c.pods {
		pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		pod.Status.InitContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no agent:1"}}
	}
	if err := c.update(t, rollout.Restart, 10*time.Second); err != nil {
		t.Error(err)
	}
}
