// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// TestOneHung stops the process of the replica that the API server calls: its connections stay open and get no
// answer. The kubelet starts it again when it has not been live for 30 s and its grace period is over.
func TestOneHung(t *testing.T) {
	installed(t)
	disrupt(t, true, func(t *testing.T, l *load) { sendSignal(t, unix.SIGSTOP, busiest(t, l)) })
}

// TestAllHung stops the processes of all replicas.
func TestAllHung(t *testing.T) {
	installed(t)
	disrupt(t, true, func(t *testing.T, _ *load) {
		sendSignal(t, unix.SIGSTOP, readyPods(t, pillionNamespace, pillionSelector, 2)...)
	})
}

// busiest returns the replica that answers most requests. An API server keeps its connections, so without other
// API servers a replica can be without requests, and nothing happens if it fails.
func busiest(t *testing.T, l *load) corev1.Pod {
	t.Helper()
	found := readyPods(t, pillionNamespace, pillionSelector, 2)
	before := []float64{answered(t, &found[0]), answered(t, &found[1])}
	l.more(t, 5)
	if answered(t, &found[0])-before[0] > answered(t, &found[1])-before[1] {
		return found[0]
	}
	return found[1]
}

// answered returns how many requests a replica has answered.
func answered(t *testing.T, pod *corev1.Pod) (sum float64) {
	t.Helper()
	text, err := admin(testContext(t), pod, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 && strings.HasPrefix(line, "pillion_webhook_requests_total{") {
			n, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// sendSignal sends a signal to the processes of replicas, and waits until the kubelet has started them again.
func sendSignal(t *testing.T, s unix.Signal, replicas ...corev1.Pod) {
	t.Helper()
	before := map[string]int32{}
	for _, pod := range replicas {
		before[pod.Name] = pod.Status.ContainerStatuses[0].RestartCount
		if err := unix.Kill(pidOf(t, &pod, "pillion"), s); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the kubelet starts the replicas again", func(ctx context.Context) error {
		found, err := pods(ctx, pillionNamespace, pillionSelector)
		if err != nil {
			return err
		}
		for _, pod := range found {
			if was, ok := before[pod.Name]; ok && pod.Status.ContainerStatuses[0].RestartCount <= was {
				return errors.New(stateOf(&pod))
			}
		}
		return nil
	})
	readyPods(t, pillionNamespace, pillionSelector, 2)
}
