// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestInjected checks every way to create a pod. Each pod gets its sidecar with one call, and equals
// the result of `pillion inject`.
func TestInjected(t *testing.T) {
	t.Parallel()
	ways := []struct {
		name   string
		create func(t *testing.T, ns string) *corev1.Pod
	}{
		{"Deployment", deploymentPod},
		{"StatefulSet", statefulSetPod},
		{"DaemonSet", daemonSetPod},
		{"Job", jobPod},
		{"CronJob", cronJobPod},
		{"bare pod", barePod},
		{"generateName", generateNamePod},
		{"server-side apply", appliedPod},
		{"dry run", dryRunPod},
		{"protobuf", protobufPod},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t)
			pod := way.create(t, ns)
			wantLogger(t, pod)
			wantCalls(t, creation(t, ns, pod.Name), calledOnce)
			wantSameAsCommand(t, pod)
		})
	}
}

// TestNewNamespace checks that a pod is injected even if it is created right after its namespace,
// before Pillion knows the namespace.
func TestNewNamespace(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	for i := range 20 {
		ns, err := env.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "brand-new-", Labels: map[string]string{injectLabel: "enabled"},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // sooner than the controller
		if _, err := env.Client.CoreV1().ServiceAccounts(ns.Name).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		wantLogger(t, createPod(t, ns.Name, newPod(fmt.Sprintf("web-%d", i))))
	}
}

// TestManyAtOnce checks that of many pods created at once, each gets its sidecar.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	ns, ctx := optedInNamespace(t), testContext(t)
	var crowd errgroup.Group
	crowd.SetLimit(50)
	for i := range 300 {
		crowd.Go(func() error {
			pod, err := env.Client.CoreV1().Pods(ns).Create(ctx, newPod(fmt.Sprintf("web-%d", i)), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && pod.Annotations["logger.pillion.dev/injected"] == "" {
				err = fmt.Errorf("pod %s was not injected", pod.Name)
			}
			return err
		})
	}
	if err := crowd.Wait(); err != nil {
		t.Error(err)
	}
}

func podTemplate() corev1.PodTemplateSpec {
	pod := newPod("")
	return corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
}

func workloadMeta() metav1.ObjectMeta { return metav1.ObjectMeta{Name: "web"} }

func webSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

// onlyPod waits for a controller to make a pod.
func onlyPod(t *testing.T, ns string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, "the controller makes a pod", func(ctx context.Context) error {
		pods, err := env.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(pods.Items) == 0 {
			return errors.New("no pod" + eventMessages(ctx, ns))
		}
		pod = &pods.Items[0]
		return nil
	})
	return pod
}

// eventMessages is why a controller could not make a pod, if it said so.
func eventMessages(ctx context.Context, ns string) string {
	events, err := env.Client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return ""
	}
	text := ""
	for _, e := range events.Items {
		text += "; " + e.InvolvedObject.Kind + ": " + e.Message
	}
	return text
}

func deploymentPod(t *testing.T, ns string) *corev1.Pod {
	_, err := env.Client.AppsV1().Deployments(ns).Create(testContext(t), &appsv1.Deployment{
		ObjectMeta: workloadMeta(),
		Spec:       appsv1.DeploymentSpec{Selector: webSelector(), Template: podTemplate()},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return onlyPod(t, ns)
}

func statefulSetPod(t *testing.T, ns string) *corev1.Pod {
	_, err := env.Client.AppsV1().StatefulSets(ns).Create(testContext(t), &appsv1.StatefulSet{
		ObjectMeta: workloadMeta(),
		Spec:       appsv1.StatefulSetSpec{Selector: webSelector(), Template: podTemplate()},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return onlyPod(t, ns)
}

// daemonSetPod needs a node; that nothing runs on it does not matter to the controller.
func daemonSetPod(t *testing.T, ns string) *corev1.Pod {
	ctx := testContext(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + ns, Labels: map[string]string{"for": ns}}}
	if _, err := env.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	template := podTemplate()
	template.Spec.NodeSelector = node.Labels
	template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // it never gets ready
	_, err := env.Client.AppsV1().DaemonSets(ns).Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: workloadMeta(),
		Spec:       appsv1.DaemonSetSpec{Selector: webSelector(), Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return onlyPod(t, ns)
}

func jobSpec() batchv1.JobSpec {
	template := podTemplate()
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobSpec{Template: template}
}

func jobPod(t *testing.T, ns string) *corev1.Pod {
	_, err := env.Client.BatchV1().Jobs(ns).Create(testContext(t), &batchv1.Job{ObjectMeta: workloadMeta(), Spec: jobSpec()}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return onlyPod(t, ns)
}

// cronJobPod does not wait for the clock: a job that has missed a run is started at once.
func cronJobPod(t *testing.T, ns string) *corev1.Pod {
	ctx := testContext(t)
	jobs := env.Client.BatchV1().CronJobs(ns)
	cron, err := jobs.Create(ctx, &batchv1.CronJob{
		ObjectMeta: workloadMeta(),
		Spec:       batchv1.CronJobSpec{Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: jobSpec()}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"lastScheduleTime": time.Now().AddDate(-1, -1, 0).UTC().Format(time.RFC3339)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Patch(ctx, cron.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	return onlyPod(t, ns)
}

func barePod(t *testing.T, ns string) *corev1.Pod { return createPod(t, ns, newPod("web")) }

func generateNamePod(t *testing.T, ns string) *corev1.Pod {
	return createPod(t, ns, newPod("", func(p *corev1.Pod) { p.GenerateName = "web-" }))
}

func appliedPod(t *testing.T, ns string) *corev1.Pod {
	pod := newPod("web")
	config, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	applied, err := env.Client.CoreV1().Pods(ns).Patch(testContext(t), pod.Name, types.ApplyPatchType, config,
		metav1.PatchOptions{FieldManager: "e2e", Force: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

// dryRunPod uses kubectl, as a user would who wants to see what injection will do.
func dryRunPod(t *testing.T, ns string) *corev1.Pod {
	ctx := testContext(t)
	input, err := json.Marshal(newPod("web"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := env.RunKubectl(ctx, input, "create", "--namespace", ns, "--dry-run=server", "-o", "json", "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Client.CoreV1().Pods(ns).Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the dry run stored the pod: %v", err)
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(out, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func protobufPod(t *testing.T, ns string) *corev1.Pod {
	config := rest.CopyConfig(env.Config)
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := client.CoreV1().Pods(ns).Create(testContext(t), newPod("web"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}
