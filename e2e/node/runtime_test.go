// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestConfinement checks what the kernel enforces on the processes of Pillion and of a sidecar, not what
// their manifests ask for.
func TestConfinement(t *testing.T) {
	installed(t)
	ns := optedInNamespace(t)
	apply(t, ns, web)
	web := readyPods(t, ns, "app=web", 1)[0]
	wantConfined(t, "helper", pidOf(t, &web, "helper"))
	for _, pod := range readyPods(t, pillionNamespace, "", 3) {
		pid := pidOf(t, &pod, pod.Spec.Containers[0].Name)
		wantConfined(t, pod.Name, pid)
		file := filepath.Join("/proc", fmt.Sprint(pid), "root", "file")
		if err := os.WriteFile(file, nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: the root is not read-only: %v", pod.Name, err)
		}
	}
	figure(t, "confined: user, no privileges, no capabilities, seccomp", "3 containers of Pillion (with a read-only root), 1 sidecar")
}

// wantConfined checks the state of a process in the kernel.
func wantConfined(t *testing.T, name string, pid int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			has[key] = strings.Join(strings.Fields(value), " ")
		}
	}
	const none, filtered = "0000000000000000", "2"
	for key, want := range map[string]string{
		"Uid": "65532 65532 65532 65532", "NoNewPrivs": "1", "Seccomp": filtered,
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
	} {
		if has[key] != want {
			t.Errorf("%s: %s is %q, want %q", name, key, has[key], want)
		}
	}
}

// TestUsage measures the memory and the CPU of Pillion's containers in their cgroups, at rest and while as
// many pods as possible are created.
func TestUsage(t *testing.T) {
	installed(t)
	ns := optedInNamespace(t)
	const window = 10 * time.Second
	all := readyPods(t, pillionNamespace, "", 3)
	pids, version := map[string]int{}, 0
	for _, pod := range all {
		pids[pod.Name] = pidOf(t, &pod, pod.Spec.Containers[0].Name)
		groups, err := cgroupsOf(pids[pod.Name])
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: counted by cgroup v%d", pod.Name, groups.version())
		version = groups.version()
	}
	figure(t, "the kernel counts memory and CPU with", fmt.Sprintf("cgroup v%d", version))
	rest := measure(t, pids, func() { <-time.After(window) })
	var created atomic.Int64
	busy := measure(t, pids, func() {
		ctx, cancel := context.WithTimeout(t.Context(), window)
		defer cancel()
		created.Store(createMany(ctx, t, ns))
	})
	var perPod time.Duration
	for _, pod := range all {
		r, b := rest[pod.Name], busy[pod.Name]
		figure(t, pod.Name+": memory at rest, under load, peak", fmt.Sprintf("%d, %d, %d MiB", r.Memory>>20, b.Memory>>20, b.Peak>>20))
		figure(t, pod.Name+": CPU at rest, under load", fmt.Sprintf("%.1f, %.0f millicores", millicores(r.CPU, window), millicores(b.CPU, window)))
		if pod.Spec.Containers[0].Name == "pillion" {
			perPod += b.CPU
		}
		if limit := pod.Spec.Containers[0].Resources.Limits.Memory().Value(); b.Peak >= limit {
			t.Errorf("%s used %d of %d bytes of memory", pod.Name, b.Peak, limit)
		}
	}
	figure(t, "created pods, CPU of all replicas for each", fmt.Sprintf("%d, %.1f ms", created.Load(), float64(perPod.Microseconds())/1000/float64(created.Load())))
	for _, pod := range readyPods(t, pillionNamespace, "", 3) {
		if pids[pod.Name] != pidOf(t, &pod, pod.Spec.Containers[0].Name) {
			t.Errorf("%s was started again", pod.Name)
		}
	}
}

// measure returns the usage after f, and the CPU during f.
func measure(t *testing.T, pids map[string]int, f func()) map[string]Usage {
	t.Helper()
	read := func() map[string]Usage {
		all := map[string]Usage{}
		for name, pid := range pids {
			u, err := UsageOf(pid)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = u
		}
		return all
	}
	before := read()
	f()
	after := read()
	for name, u := range after {
		u.CPU -= before[name].CPU
		after[name] = u
	}
	return after
}

func millicores(cpu, in time.Duration) float64 { return 1000 * cpu.Seconds() / in.Seconds() }

// createMany creates pods, none of which is stored, until ctx is done. It returns how many.
func createMany(ctx context.Context, t *testing.T, ns string) int64 {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: StandIn}}},
	}
	var n atomic.Int64
	var workers sync.WaitGroup
	for range 4 * runtime.NumCPU() {
		workers.Go(func() {
			for ctx.Err() == nil {
				_, err := env.Client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				switch {
				case err == nil:
					n.Add(1)
				case ctx.Err() == nil:
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	return n.Load()
}

// TestTermination checks that the kubelet waits for the preStop hook, and that Pillion then ends by itself,
// long before its grace period is over.
func TestTermination(t *testing.T) {
	installed(t)
	pod := readyPods(t, pillionNamespace, pillionSelector, 2)[0]
	ctx := testContext(t)
	events, err := env.Client.CoreV1().Pods(pillionNamespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + pod.Name}) // from now, because an API server forgets old versions
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	log := openLog(t, &pod, "pillion")
	started := time.Now()
	if err := env.Client.CoreV1().Pods(pillionNamespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var last *corev1.Pod
	for event := range events.ResultChan() {
		last, _ = event.Object.(*corev1.Pod)
		if event.Type == watch.Deleted {
			break
		}
	}
	took := time.Since(started)
	preStop := time.Duration(pod.Spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
	grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	if last == nil || last.Status.ContainerStatuses[0].State.Terminated == nil {
		t.Fatalf("the pod's end was not seen: %v", last)
	}
	end := last.Status.ContainerStatuses[0].State.Terminated
	if end.ExitCode != 0 || took < preStop || took >= grace {
		t.Errorf("it ended with %d after %s, want 0 after %s and before %s; its log:\n%s", end.ExitCode, took, preStop, grace, log.text(t))
	}
	figure(t, fmt.Sprintf("preStop takes %s of the %s; the pod is gone after", preStop, grace), took)
	readyPods(t, pillionNamespace, pillionSelector, 2)
}
