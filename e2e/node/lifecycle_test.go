// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStartupProbe checks that a sidecar's startupProbe holds the app back: the app fails at once if the
// sidecar is not ready, and never has to be started again.
func TestStartupProbe(t *testing.T) {
	installed(t)
	ns := optedInNamespace(t)
	applyTemplate(t, ns, "slow")
	template := podOf(`"-serve=:8000", "-needs=http://127.0.0.1:9901/"`, "")
	bare(t, ns, "web", strings.Replace(template, "{metadata: {", "{metadata: {annotations: {pillion.dev/templates: slow}, ", 1))
	pod := readyPods(t, ns, "app=web", 1)[0]
	if s := status(&pod, "app"); s.RestartCount != 0 {
		t.Errorf("the app was started %d times", s.RestartCount+1)
	}
	held := at(t, &pod, "app", "start").Sub(at(t, &pod, "slow", "start"))
	if held < 3*time.Second {
		t.Errorf("the app started %s after the sidecar, which is ready after 3 s", held)
	}
	figure(t, "the app starts after the sidecar, which is ready after 3 s", held)
}

// TestShutdownOrder checks that the sidecar is stopped only after the app has ended.
func TestShutdownOrder(t *testing.T) {
	installed(t)
	ns := optedInNamespace(t)
	bare(t, ns, "web", podOf(`"-serve=:8000", "-linger=2s"`, ""))
	pod := readyPods(t, ns, "app=web", 1)[0]
	app, helper := openLog(t, &pod, "app"), openLog(t, &pod, "helper") // the kubelet deletes them with the pod
	kubectl(t, "-n", ns, "delete", "pod", "web")
	signal, end, stopped := app.at(t, "signal"), app.at(t, "end"), helper.at(t, "signal")
	if end.Sub(signal) < 2*time.Second || stopped.Before(end) {
		t.Errorf("the app got its signal, ended %s later, and the sidecar got its signal %s after that", end.Sub(signal), stopped.Sub(end))
	}
	figure(t, "from the app's signal to its end", end.Sub(signal))
	figure(t, "from the app's end to the sidecar's signal", stopped.Sub(end))
}

// TestDebug adds an ephemeral container to an injected pod, as kubectl debug does.
func TestDebug(t *testing.T) {
	installed(t)
	ns := optedInNamespace(t)
	bare(t, ns, "web", podOf(`"-serve=:8000"`, ""))
	before := readyPods(t, ns, "app=web", 1)[0]
	started := time.Now()
	kubectl(t, "-n", ns, "debug", "pod/web", "--image="+StandIn, "--container=debugger", "--target=app", "--profile=general", "--attach=false")
	eventually(t, "the ephemeral container runs", func(ctx context.Context) error {
		pod, err := env.Client.CoreV1().Pods(ns).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, s := range pod.Status.EphemeralContainerStatuses {
			if s.Name == "debugger" && s.State.Running != nil {
				wantUntouched(t, &before, pod, "app", "helper")
				return nil
			}
		}
		return fmt.Errorf("%+v", pod.Status.EphemeralContainerStatuses)
	})
	figure(t, "kubectl debug: the container runs after", time.Since(started))
}

// TestResize changes the memory of the app and of the sidecar in place.
func TestResize(t *testing.T) {
	installed(t)
	ns := optedInNamespace(t)
	bare(t, ns, "web", podOf(`"-serve=:8000"`, ""))
	before := readyPods(t, ns, "app=web", 1)[0]
	for _, c := range []struct{ name, list string }{{"app", "containers"}, {"helper", "initContainers"}} {
		pid, started := pidOf(t, &before, c.name), time.Now()
		kubectl(t, "-n", ns, "patch", "pod", "web", "--subresource=resize", "--patch",
			fmt.Sprintf(`{"spec": {%q: [{"name": %q, "resources": {"requests": {"memory": "48Mi"}, "limits": {"memory": "48Mi"}}}]}}`, c.list, c.name))
		eventually(t, "the cgroup of "+c.name+" has the new limit", func(ctx context.Context) error {
			pod, err := env.Client.CoreV1().Pods(ns).Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			limit, err := memoryLimit(pid)
			if err == nil && limit != 48<<20 {
				err = fmt.Errorf("it has %d", limit)
			}
			wantUntouched(t, &before, pod, "app", "helper")
			return err
		})
		figure(t, "resize of "+c.name+" in place takes", time.Since(started))
	}
}

// wantUntouched checks that these containers were not started again.
func wantUntouched(t *testing.T, before, after *corev1.Pod, names ...string) {
	t.Helper()
	for _, name := range names {
		was, is := status(before, name), status(after, name)
		if is.ContainerID != was.ContainerID || is.RestartCount != was.RestartCount {
			t.Errorf("%s was started again: %s", name, stateOf(after))
		}
	}
}

// containerLog is the open log of a container. It can be read after its pod is deleted.
type containerLog struct {
	file *os.File
	name string
}

func openLog(t *testing.T, pod *corev1.Pod, container string) *containerLog {
	t.Helper()
	path := env.path("pod-logs", pod.Namespace+"_"+pod.Name+"_"+string(pod.UID), container, "0.log")
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &containerLog{file: f, name: container}
}

// text returns the beginning of the log.
func (l *containerLog) text(t *testing.T) string {
	t.Helper()
	text, err := io.ReadAll(io.NewSectionReader(l.file, 0, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// at returns the time that the container logged with this word.
func (l *containerLog) at(t *testing.T, word string) time.Time {
	t.Helper()
	text := l.text(t)
	for line := range strings.Lines(text) {
		// The log has the runtime's time, the stream and a tag before what the program printed.
		if fields := strings.Fields(line); len(fields) == 5 && fields[4] == word {
			if nanoseconds, err := strconv.ParseInt(fields[3], 10, 64); err == nil {
				return time.Unix(0, nanoseconds)
			}
		}
	}
	t.Fatalf("%s has not logged %q:\n%s", l.name, word, text)
	return time.Time{}
}

func at(t *testing.T, pod *corev1.Pod, container, word string) time.Time {
	t.Helper()
	return openLog(t, pod, container).at(t, word)
}

// pidOf returns the process ID of a container's program.
func pidOf(t *testing.T, pod *corev1.Pod, container string) int {
	t.Helper()
	s := status(pod, container)
	if s == nil || s.State.Running == nil {
		t.Fatalf("%s does not run: %s", container, stateOf(pod))
	}
	_, id, _ := strings.Cut(s.ContainerID, "://")
	var pid int
	eventually(t, "the process of "+container, func(context.Context) error {
		text, err := os.ReadFile(env.path("containerd-state", "io.containerd.runtime.v2.task", "k8s.io", id, "init.pid"))
		if err != nil {
			return err
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid <= 1 {
			err = errors.New("it has no process")
		}
		return err
	})
	return pid
}

// memoryLimit returns the memory limit of the process's cgroup.
func memoryLimit(pid int) (int64, error) {
	groups, err := cgroupsOf(pid)
	if err != nil {
		return 0, err
	}
	if groups.version() == 1 {
		return number(filepath.Join(cgroupMount, "memory", groups["memory"], "memory.limit_in_bytes"))
	}
	return number(filepath.Join(cgroupMount, groups[""], "memory.max"))
}
