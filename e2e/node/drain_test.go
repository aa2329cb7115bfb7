// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// budgetMessage is what kubectl prints if a PodDisruptionBudget does not allow an eviction.
const budgetMessage = "would violate the pod's disruption budget"

// TestDrain drains the node of Pillion's replicas. There is no other node, so the replacement of the first
// replica stays Pending, and the PodDisruptionBudget keeps the second one. It serves all requests. When the
// node is uncordoned, the drain goes on to its end.
func TestDrain(t *testing.T) {
	installed(t)
	t.Cleanup(func() {
		if _, err := env.RunKubectl(context.WithoutCancel(t.Context()), nil, "uncordon", Name); err != nil {
			t.Error(err)
		}
	})
	disrupt(t, false, func(t *testing.T, l *load) {
		before := map[string]bool{}
		for _, pod := range readyPods(t, pillionNamespace, pillionSelector, 2) {
			before[pod.Name] = true
		}
		started := time.Now()
		d := startDrain(t)
		eventually(t, "the budget keeps a replica", func(ctx context.Context) error {
			if !strings.Contains(d.output.String(), budgetMessage) {
				return errors.New(d.output.String())
			}
			return oneReadyOnePending(ctx, before)
		})
		l.more(t, 10)
		if err := oneReadyOnePending(testContext(t), before); err != nil {
			t.Error(err)
		}
		uncordoned := time.Now()
		kubectl(t, "uncordon", Name)
		if err := <-d.done; err != nil {
			t.Fatalf("kubectl drain: %v\n%s", err, &d.output)
		}
		figure(t, "until the budget kept the second replica", uncordoned.Sub(started))
		figure(t, "from kubectl uncordon to the end of kubectl drain", time.Since(uncordoned))
		figure(t, "evictions that the budget did not allow", strings.Count(d.output.String(), budgetMessage))
		for _, pod := range readyPods(t, pillionNamespace, pillionSelector, 2) {
			if before[pod.Name] {
				t.Errorf("%s was not evicted:\n%s", pod.Name, &d.output)
			}
		}
	})
}

// oneReadyOnePending returns an error unless one replica from before is ready, the other one is gone, and its
// replacement waits for a node.
func oneReadyOnePending(ctx context.Context, before map[string]bool) error {
	found, err := pods(ctx, pillionNamespace, pillionSelector)
	if err != nil {
		return err
	}
	if len(found) != 2 {
		return fmt.Errorf("there are %d replicas", len(found))
	}
	for i := range found {
		if old := before[found[i].Name]; old != ready(&found[i]) || !old && found[i].Status.Phase != corev1.PodPending {
			return errors.New(stateOf(&found[i]))
		}
	}
	if before[found[0].Name] == before[found[1].Name] {
		return errors.New("no replica was evicted")
	}
	return nil
}

// drain is a running kubectl drain.
type drain struct {
	output safeBuffer
	done   chan error
}

// startDrain evicts Pillion's replicas, and not the pods of other tests.
func startDrain(t *testing.T) *drain {
	t.Helper()
	d := &drain{done: make(chan error, 1)}
	cmd := exec.CommandContext(testContext(t), env.Kubectl, "drain", Name, "--ignore-daemonsets", "--pod-selector="+pillionSelector)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig)
	cmd.Stdout, cmd.Stderr = &d.output, &d.output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.done <- cmd.Wait() }()
	return d
}

// safeBuffer can be read while a command writes to it.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
