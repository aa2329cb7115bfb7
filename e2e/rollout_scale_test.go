// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

var rolloutPods = flag.Int("rollout-pods", 0, "how many pods TestRolloutScale updates; 0 skips it")

const (
	// scaleQPS is the limit of requests per second.
	scaleQPS = 200
	// podsOfOwner is how many pods a ReplicaSet has.
	podsOfOwner = 100
)

// TestRolloutScale measures what a rollout of many pods costs: the time and memory of the plan, the requests for each pod, and those
// per second, which must stay within the limit. The pods belong to ReplicaSets. No kubelet runs them.
func TestRolloutScale(t *testing.T) {
	if *rolloutPods == 0 {
		t.Skip("it takes long; use -args -rollout-pods=10000")
	}
	r := &rolling{installed: install(t, newCluster(t), "self-signed")}
	r.waitForInjection(t)
	const ns = "scale"
	r.template(t, ns, "agent:1", "32Mi", "info")
	config := rest.CopyConfig(r.Config)
	config.QPS, config.Burst = -1, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	newKubelet(client).follow(t, ns)
	for i := range *rolloutPods / podsOfOwner {
		name := fmt.Sprintf("web-%d", i)
		_, err := client.AppsV1().ReplicaSets(ns).Create(t.Context(), &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       appsv1.ReplicaSetSpec{Replicas: new(int32(podsOfOwner)), Selector: appSelector(name), Template: simpleTemplate(name)},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	eventuallyWithin(t, 10*time.Minute, "all pods are ready", func(ctx context.Context) error {
		list, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err == nil && len(list.Items) < *rolloutPods {
			err = fmt.Errorf("%d", len(list.Items))
		}
		return err
	})
	r.template(t, ns, "agent:2", "32Mi", "info")
	r.measure(t, ns, "plan", "--dry-run")
	before, start := r.requests(t), time.Now()
	r.measure(t, ns, "rollout", "--yes", "--bake", "0s", "--parallel", "200", "--qps", fmt.Sprint(scaleQPS))
	took := time.Since(start).Seconds()
	n := float64(r.requests(t) - before)
	t.Logf("%.0f requests (%.1f for each pod), %.0f a second", n, n/float64(*rolloutPods), n/took)
	if n < 2*float64(*rolloutPods) || n > 4.2*float64(*rolloutPods) || n/took > scaleQPS*1.1 {
		t.Errorf("%.0f requests for %d pods, %.0f a second; want 2 to 4 for each pod, and at most %d a second", n, *rolloutPods, n/took, scaleQPS)
	}
	r.measure(t, ns, "second plan", "--dry-run")
}

// TestRolloutControllerScale measures the memory of the controller while it plans a rollout of many pods. No kubelet runs
// them, so the rollout waits for the first one. They are created with their sidecars, without Pillion, because that is faster.
func TestRolloutControllerScale(t *testing.T) {
	if *rolloutPods == 0 {
		t.Skip("it takes long; use -args -rollout-pods=10000")
	}
	const ns = "scale"
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := install(t, newCluster(t), "self-signed")
	r := &selfRolling{rolling: &rolling{installed: i, settings: "strategy: InPlace"}, controlled: &controlled{i.Cluster}}
	r.waitForInjection(t)
	r.kubectl(t, "", "apply", "--server-side", "-f", filepath.Join(root, "manifests", "components", "rollout", "rbac.yaml"))
	config := rest.CopyConfig(r.Config)
	config.QPS, config.Burst = -1, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	r.kubectl(t, "", "create", "namespace", ns)
	if err := i.WaitForPods(testContext(t), ns); err != nil {
		t.Fatal(err)
	}
	var creators errgroup.Group
	creators.SetLimit(20)
	for i := range *rolloutPods {
		creators.Go(func() error {
			_, err := client.CoreV1().Pods(ns).Create(t.Context(), injectedPod(fmt.Sprintf("web-%05d", i)), metav1.CreateOptions{})
			return err
		})
	}
	if err := creators.Wait(); err != nil {
		t.Fatal(err)
	}
	r.kubectl(t, "", "label", "namespace", ns, injectLabel+"=enabled")
	r.template(t, ns, "agent:2", "32Mi", "info")
	c := r.begin(t)
	r.wantCondition(t, "Progressing", "False Complete")
	idle, err := c.PeakMemory()
	if err != nil {
		t.Fatal(err)
	}
	r.allow(t, ns)
	eventuallyWithin(t, 10*time.Minute, "the rollout begins", func(context.Context) error {
		const path = `{range .status.conditions[?(@.type=="Progressing")]}{.message}{end}`
		got := r.field(t, "clustersidecartemplate/agent", path) //nolint:contextcheck // kubectl has the test's context
		if !strings.HasSuffix(got, fmt.Sprintf("Before it, 0 of %d pods were done.", *rolloutPods)) {
			return errors.New(got)
		}
		return nil
	})
	peak, err := c.PeakMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the controller uses up to %d MiB before the plan of %d pods, and %d MiB with it", idle>>20, *rolloutPods, peak>>20)
}

// injectedPod is a pod with a sidecar of an older image. It is as large as usual ones.
func injectedPod(name string) *corev1.Pod {
	template := simpleTemplate("web")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: template.Labels, Annotations: map[string]string{"agent.pillion.dev/injected": "0123456789ab"}}, Spec: template.Spec}
	for i := range 30 {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: "a value of an app"})
	}
	memory := resource.MustParse("32Mi")
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "agent", Image: "agent:1", Args: []string{"--level=info"}, RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: memory}, Limits: corev1.ResourceList{corev1.ResourceMemory: memory}},
	}}
	return pod
}

// measure runs the command, and logs its time and memory.
func (r *rolling) measure(t *testing.T, ns, what string, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := r.command(t.Context(), ns, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// The resource usage of a process that has ended contains the memory of the one that started it. So the memory is read before.
	var peak int64
	var err error
	for tick, runs := time.Tick(50*time.Millisecond), true; runs; {
		select {
		case err = <-ended:
			runs = false
		case <-tick:
			if now, err := cluster.PeakMemory(cmd.Process.Pid); err == nil {
				peak = max(peak, now)
			}
		}
	}
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	t.Logf("%s of %d pods: %s, CPU %s, memory %d MiB, %d lines", what, *rolloutPods, time.Since(start).Round(time.Millisecond),
		(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Round(time.Millisecond), peak>>20, bytes.Count(out.Bytes(), []byte("\n")))
}

// requestPattern matches the number of requests of the command: gets and patches of pods, and lists of budgets. The
// simulated kubelet sends others.
var requestPattern = regexp.MustCompile(`(?m)^apiserver_request_total\{.*(?:resource="pods".*verb="(?:GET|PATCH)"|resource="poddisruptionbudgets".*verb="LIST").*\} (\S+)$`)

// requests reads how many requests of the command the API server has answered.
func (r *rolling) requests(t *testing.T) (n int) {
	t.Helper()
	text, err := r.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range requestPattern.FindAllSubmatch(text, -1) {
		count, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		n += int(count)
	}
	return n
}

// follow is for many pods: it reads each change instead of listing all pods.
func (k *kubelet) follow(t *testing.T, ns string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	informer := informers.NewSharedInformerFactoryWithOptions(k.client, 0, informers.WithNamespace(ns)).Core().V1().Pods().Informer()
	queue := workqueue.NewTyped[string]()
	add := func(object any) { queue.Add(object.(*corev1.Pod).Name) }
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, object any) { add(object) }}); err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(ctx)
	go func() { <-ctx.Done(); queue.ShutDown() }()
	for range 8 {
		go func() {
			for {
				name, end := queue.Get()
				if end {
					return
				}
				if object, ok, err := informer.GetStore().GetByKey(ns + "/" + name); err == nil && ok {
					pod := object.(*corev1.Pod).DeepCopy()
					k.mu.Lock()
					changed := k.report(pod)
					k.mu.Unlock()
					if changed { // after a conflict, there is another event
						_, _ = k.client.CoreV1().Pods(ns).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
					}
				}
				queue.Done(name)
			}
		}()
	}
}
