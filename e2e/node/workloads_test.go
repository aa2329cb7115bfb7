// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podOf returns the template of a pod: an app with these arguments, and further fields of the spec.
func podOf(args, fields string) string {
	return fmt.Sprintf(`{metadata: {labels: {app: web}}, spec: {terminationGracePeriodSeconds: 5, %s containers: [{name: app,
    image: "registry.example/standin:1", args: [%s], resources: {requests: {cpu: 1m, memory: 16Mi}, limits: {memory: 32Mi}}}]}}`, fields, args)
}

// TestWorkloads runs every kind of workload. Apps that end do so although their sidecar would run
// forever.
func TestWorkloads(t *testing.T) {
	installed(t)
	for name, run := range map[string]func(*testing.T, string){
		"Deployment":             testDeployment,
		"StatefulSet":            testStatefulSet,
		"DaemonSet":              testDaemonSet,
		"Job":                    testJob,
		"failing Job":            testFailingJob,
		"CronJob":                testCronJob,
		"pod that succeeds once": testNeverSucceeds,
		"pod that fails once":    testNeverFails,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, optedInNamespace(t))
		})
	}
}

func testDeployment(t *testing.T, ns string) {
	started := time.Now()
	apply(t, ns, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: `+podOf(`"-serve=:8000"`, "")+`}`)
	wantPods(t, ns, 3, started)
	kubectl(t, "-n", ns, "rollout", "restart", "deployment/web")
	kubectl(t, "-n", ns, "rollout", "status", "deployment/web", "--timeout=120s")
	wantPods(t, ns, 3, started)
}

func testStatefulSet(t *testing.T, ns string) {
	started := time.Now()
	apply(t, ns, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec: {replicas: 2, serviceName: web, selector: {matchLabels: {app: web}}, template: `+podOf(`"-serve=:8000"`, "")+`}`)
	wantPods(t, ns, 2, started)
}

func testDaemonSet(t *testing.T, ns string) {
	started := time.Now()
	apply(t, ns, `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, template: `+podOf(`"-serve=:8000"`, "")+`}`)
	wantPods(t, ns, 1, started)
}

// wantPods waits for n pods, each with a running app and sidecar.
func wantPods(t *testing.T, ns string, n int, started time.Time) {
	t.Helper()
	found := readyPods(t, ns, "app=web", n)
	for i := range found {
		wantSidecar(t, &found[i])
	}
	figure(t, fmt.Sprintf("%d pods with sidecars are ready after", n), time.Since(started))
}

const jobHead = `
apiVersion: batch/v1
kind: Job
metadata: {name: web}
spec: {`

func testJob(t *testing.T, ns string) {
	apply(t, ns, jobHead+`completions: 2, parallelism: 2, template: `+podOf(`"-for=1s"`, "restartPolicy: OnFailure,")+`}`)
	job := finishedJob(t, ns, "web", batchv1.JobComplete)
	if job.Status.Succeeded != 2 || job.Status.Failed != 0 {
		t.Errorf("%d pods succeeded and %d failed, want 2 and 0", job.Status.Succeeded, job.Status.Failed)
	}
	figure(t, "the Job is complete after", job.Status.CompletionTime.Sub(job.CreationTimestamp.Time))
	for _, pod := range podsIn(t, ns) {
		wantEnded(t, &pod, corev1.PodSucceeded, 0)
	}
}

func testFailingJob(t *testing.T, ns string) {
	apply(t, ns, jobHead+`backoffLimit: 1, template: `+podOf(`"-for=500ms", "-exit=3"`, "restartPolicy: Never,")+`}`)
	job := finishedJob(t, ns, "web", batchv1.JobFailed)
	found := podsIn(t, ns)
	if job.Status.Failed != 2 || len(found) != 2 {
		t.Errorf("%d of %d pods failed, want 2: one and its retry", job.Status.Failed, len(found))
	}
	for _, pod := range found {
		wantEnded(t, &pod, corev1.PodFailed, 3)
	}
	figure(t, "pods of the Job that failed, each with a sidecar", len(found))
}

func testCronJob(t *testing.T, ns string) {
	apply(t, ns, `
apiVersion: batch/v1
kind: CronJob
metadata: {name: web}
spec: {schedule: "* * * * *", concurrencyPolicy: Forbid, jobTemplate: {spec: {template: `+podOf(`"-for=500ms"`, "restartPolicy: Never,")+`}}}`)
	var name string
	eventually(t, "the CronJob makes a Job", func(ctx context.Context) error {
		jobs, err := env.Client.BatchV1().Jobs(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(jobs.Items) == 0 {
			return errors.New("there is no Job")
		}
		name = jobs.Items[0].Name
		return nil
	})
	job := finishedJob(t, ns, name, batchv1.JobComplete)
	figure(t, "its Job is complete after", job.Status.CompletionTime.Sub(job.CreationTimestamp.Time))
	for _, pod := range podsIn(t, ns) {
		if pod.Status.Phase != corev1.PodPending && pod.Status.Phase != corev1.PodRunning { // of the next minute
			wantEnded(t, &pod, corev1.PodSucceeded, 0)
		}
	}
}

func testNeverSucceeds(t *testing.T, ns string) {
	testNever(t, ns, `"-for=1s"`, corev1.PodSucceeded, 0)
}

func testNeverFails(t *testing.T, ns string) {
	testNever(t, ns, `"-for=1s", "-exit=7"`, corev1.PodFailed, 7)
}

// testNever runs a pod with restartPolicy Never until it ends.
func testNever(t *testing.T, ns, args string, phase corev1.PodPhase, code int32) {
	bare(t, ns, "once", podOf(args, "restartPolicy: Never,"))
	pod := endedPod(t, ns, "once")
	wantEnded(t, pod, phase, code)
	app, helper := status(pod, "app"), status(pod, "helper")
	figure(t, "from the end of the app to the end of the sidecar", helper.State.Terminated.FinishedAt.Sub(app.State.Terminated.FinishedAt.Time))
}

// bare creates a pod without a controller.
func bare(t *testing.T, ns, name, template string) {
	t.Helper()
	rest, _ := strings.CutPrefix(template, "{metadata: {")
	apply(t, ns, "{apiVersion: v1, kind: Pod, metadata: {name: "+name+", "+rest)
}

func finishedJob(t *testing.T, ns, name string, want batchv1.JobConditionType) *batchv1.Job {
	t.Helper()
	var job *batchv1.Job
	eventually(t, "the Job ends", func(ctx context.Context) (err error) {
		if job, err = env.Client.BatchV1().Jobs(ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, c := range job.Status.Conditions {
			if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
				return nil
			}
		}
		return fmt.Errorf("%+v", job.Status)
	})
	for _, c := range job.Status.Conditions {
		if c.Type == want && c.Status == corev1.ConditionTrue {
			return job
		}
	}
	t.Fatalf("the Job is not %s: %+v", want, job.Status)
	return nil
}

func podsIn(t *testing.T, ns string) []corev1.Pod {
	t.Helper()
	found, err := pods(testContext(t), ns, "")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func endedPod(t *testing.T, ns, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, "the pod ends", func(ctx context.Context) (err error) {
		if pod, err = env.Client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			return errors.New(stateOf(pod))
		}
		return nil
	})
	return pod
}

// wantEnded checks that the app ended with this code, and that the sidecar ran and was stopped without an
// error.
func wantEnded(t *testing.T, pod *corev1.Pod, phase corev1.PodPhase, code int32) {
	t.Helper()
	app, helper := status(pod, "app"), status(pod, "helper")
	if pod.Status.Phase != phase || app == nil || app.State.Terminated == nil || app.State.Terminated.ExitCode != code || app.RestartCount != 0 {
		t.Errorf("want phase %s and exit code %d: %s", phase, code, stateOf(pod))
	}
	if helper == nil || helper.State.Terminated == nil || helper.State.Terminated.ExitCode != 0 {
		t.Errorf("the sidecar did not end well: %s", stateOf(pod))
	}
}
