// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// explained is what the tests read of `pillion explain -o json`.
type explained struct {
	Reports []struct {
		Object    struct{ Name string }
		Called    *bool
		Answered  *bool
		Templates []struct{ Template, Code string }
		Patch     json.RawMessage
		Final     struct{ Verdict string }
		Misfits   []string
		Original  []string
		Misplaced []string
	}
}

const (
	// comparedPods is how many pods, at least, TestExplainAgrees has Pillion called for and compares.
	comparedPods = 1200
	// generatedPods and fewPods are how many it makes in a namespace that is opted in, and in another one. Kubernetes does
	// not take all of them.
	generatedPods, fewPods = 330, 60
)

// TestExplainAgrees checks for generated pods in all kinds of namespaces that explain reports what the API
// server and the real webhook did: whether Pillion was called, every decision, every operation, and the
// verdict.
func TestExplainAgrees(t *testing.T) {
	t.Parallel()
	enabled := withLabel(injectLabel, "enabled")
	kinds := map[string]struct {
		pods    int
		options []namespaceOption
	}{
		"enabled":     {generatedPods, []namespaceOption{enabled}},
		"parameters":  {generatedPods, []namespaceOption{enabled, withAnnotation("logger.pillion.dev/level", "debug"), withAnnotation("echo.pillion.dev/text", "all of us")}},
		"wrong":       {generatedPods, []namespaceOption{enabled, withAnnotation("logger.pillion.dev/level", "loud")}},
		"otherwise":   {generatedPods, []namespaceOption{enabled, withLabel("team", "shop")}},
		"silent":      {fewPods, nil},
		"disabled":    {fewPods, []namespaceOption{withLabel(injectLabel, "disabled")}},
		"its own way": {fewPods, []namespaceOption{withLabel("team", "shop")}},
	}
	random := rand.New(rand.NewPCG(20261120, 5))
	var called, others, deniedPods atomic.Int64
	t.Run("namespace", func(t *testing.T) {
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			ns, generated := plainNamespace(t, kinds[kind].options...), make([]*corev1.Pod, kinds[kind].pods)
			for i := range generated {
				generated[i] = generatedPod(random, fmt.Sprint("pod-", i))
			}
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				made := createGenerated(t, ns, generated)
				wantExplained(t, ns, made)
				for _, m := range made {
					isCalled := len(m.event.Calls(pillionConfiguration)) > 0
					called.Add(count(isCalled))
					others.Add(count(!isCalled))
					deniedPods.Add(count(m.denied))
				}
			})
		}
	})
	t.Logf("compared %d pods that Pillion was called for, of which %d were denied, and %d others", called.Load(), deniedPods.Load(), others.Load())
	if called.Load() <= comparedPods || deniedPods.Load() < comparedPods/40 || others.Load() < comparedPods/40 {
		t.Errorf("want more than %d of the first, and %[2]d and %[2]d of the others", comparedPods, comparedPods/40)
	}
}

func count(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// generatedResult is a pod that was sent, and what became of it.
type generatedResult struct {
	name   string
	denied bool // by the validating webhook
	event  cluster.Event
}

// createGenerated sends the pods one after the other. A combination that Kubernetes does not take is left out; what a
// template rejects is not, though it is never stored.
func createGenerated(t *testing.T, ns string, pods []*corev1.Pod) []generatedResult {
	t.Helper()
	var made []generatedResult
	for _, pod := range pods {
		_, err := env.Client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
		switch {
		case apierrors.IsInvalid(err):
		case err != nil && !strings.Contains(err.Error(), "validate.pillion.dev"):
			t.Fatalf("%s: %v", pod.Name, err)
		default:
			made = append(made, generatedResult{name: pod.Name, denied: err != nil})
		}
	}
	for i := range made {
		made[i].event = creation(t, ns, made[i].name)
	}
	return made
}

// generatedPod has a random choice of everything that the rules and the planner read.
func generatedPod(random *rand.Rand, name string) *corev1.Pod {
	some := func(edits ...func(*corev1.Pod)) func(*corev1.Pod) { return edits[random.IntN(len(edits))] }
	nothing := func(*corev1.Pod) {}
	annotate := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations[key] = value }
	}
	volume := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}})
		}
	}
	shapes := shapes()
	pod := newPod(name)
	for _, edit := range []func(*corev1.Pod){
		some(nothing, nothing, shapes[random.IntN(len(shapes))].edit),
		func(p *corev1.Pod) {
			if p.Labels == nil {
				p.Labels = map[string]string{}
			}
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
		},
		some(nothing, nothing, func(p *corev1.Pod) { p.Labels[injectLabel] = "disabled" }, func(p *corev1.Pod) { p.Labels[injectLabel] = "enabled" }),
		some(nothing, requests("+proxy"), requests("proxy,echo"), requests("-logger"), requests(""), requests("+echo,-logger"), requests("nobody"), requests("guard"), requests("+guard,watch")),
		some(nothing, nothing, nothing, annotate("guard.pillion.dev/level", "loud"), annotate("guard.pillion.dev/levl", "info"), annotate("guard.pillion.dev/injected", "000000000000"), ownGuard),
		some(nothing, nothing, annotate("logger.pillion.dev/level", "warn"), annotate("logger.pillion.dev/level", "x"), annotate("logger.pillion.dev/levl", "warn"), annotate("logger.pillion.dev/cpu", "0.3")),
		some(nothing, nothing, nothing, volume("app-logs"), func(p *corev1.Pod) { p.Spec.Containers[0].Name = "logger" }),
		some(nothing, nothing, nothing, func(p *corev1.Pod) { p.Spec.HostNetwork = true }, func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }),
	} {
		edit(pod)
	}
	pod.Name, pod.GenerateName = name, ""
	return pod
}

// ownGuard takes the name of the container that the template guard protects.
func ownGuard(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "guard", Image: "registry.example/mine:1"})
}

// wantExplained compares what happened to the pods with what explain says of them: of the requests as
// they were sent, and of objects that the cluster has.
func wantExplained(t *testing.T, ns string, made []generatedResult) {
	t.Helper()
	var reviews bytes.Buffer
	var called []generatedResult
	for _, m := range made {
		if len(m.event.Calls(pillionConfiguration)) == 0 {
			continue
		}
		called = append(called, m)
		sent := env.webhooks.Calls(recorder, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: m.name}})
		if len(sent) == 0 {
			t.Fatalf("the recorder was not called for pod %s", m.name)
		}
		fmt.Fprintf(&reviews, `---
{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x","operation":"CREATE","namespace":%q,"userInfo":{"username":"admin"},
"resource":{"group":"","version":"v1","resource":"pods"},"object":%s}}
`, ns, sent[0].Object)
	}
	if len(called) > 0 {
		wantSameDecisions(t, ns, called, reviews.Bytes())
	}
	wantSameCalls(t, ns, made)
}

func wantSameDecisions(t *testing.T, ns string, made []generatedResult, reviews []byte) {
	t.Helper()
	namespace, err := env.Client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-f", "-"}
	for _, path := range env.templates {
		args = append(args, "--templates", path)
	}
	for key, value := range namespace.Labels {
		args = append(args, "--namespace-label", key+"="+value)
	}
	for key, value := range namespace.Annotations {
		args = append(args, "--namespace-annotation", key+"="+value)
	}
	reports := explain(t, reviews, args...).Reports
	if len(reports) != len(made) {
		t.Fatalf("%d reports for %d pods", len(reports), len(made))
	}
	for i, m := range made {
		said := m.event.Reasons()
		for _, d := range reports[i].Templates {
			code, _, _ := strings.Cut(said[d.Template], ":")
			if d.Code == "present" {
				d.Code = "injected" // which read alike there
			}
			if code != d.Code {
				t.Errorf("%s: %s is explained as %s, and was %s", m.name, d.Template, d.Code, said[d.Template])
			}
		}
		if diff := cmp.Diff(operations(t, m.event.Patch(pillionConfiguration, "round_0")), operations(t, reports[i].Patch)); diff != "" {
			t.Errorf("%s: operations of the webhook and of explain (-webhook +explain):\n%s", m.name, diff)
		}
		verdict, _, _ := strings.Cut(m.event.Judgement()[finalVerdict], " ")
		if m.denied {
			verdict = denied // the audit log has nothing where Pillion is not sure
		}
		if reports[i].Final.Verdict != verdict {
			t.Errorf("%s: the verdict is explained as %s, and was %s: %v", m.name, reports[i].Final.Verdict, verdict, m.event.Judgement())
		}
	}
}

func operations(t *testing.T, patch []byte) []any {
	t.Helper()
	var ops []any
	if len(patch) > 0 {
		if err := json.Unmarshal(patch, &ops); err != nil {
			t.Fatal(err)
		}
	}
	return ops
}

// askedEvery is the number of pods of the cluster for each one that the test explains by name, which takes four requests.
const askedEvery = 4

// wantSameCalls asks about pods in the cluster, by what the cluster says of itself.
func wantSameCalls(t *testing.T, ns string, made []generatedResult) {
	t.Helper()
	args := []string{"--kubeconfig", env.Kubeconfig, "-n", ns}
	for _, path := range env.templates {
		args = append(args, "--templates", path)
	}
	var stored []generatedResult
	for i, m := range made {
		if !m.denied && i%askedEvery == 0 {
			args, stored = append(args, "pod/"+m.name), append(stored, m)
		}
	}
	reports := explain(t, nil, args...).Reports
	for i, m := range stored {
		called := len(m.event.Calls(pillionConfiguration)) > 0
		if reports[i].Object.Name != m.name || reports[i].Called == nil || *reports[i].Called != called {
			t.Errorf("%s: the API server called: %t; explain says %+v", m.name, called, reports[i])
		}
		if called && reports[i].Final.Verdict == denied {
			t.Errorf("%s was let through, and is explained as denied", m.name)
		}
	}
}

func explain(t *testing.T, stdin []byte, args ...string) explained {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), env.binary, append([]string{"explain", "-o", "json"}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && stderr.Len() > 0 { // a denied pod only changes the exit code
		t.Fatalf("pillion explain: %v\n%s", err, stderr.String())
	}
	var e explained
	if err := json.Unmarshal(out, &e); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return e
}

// TestExplainInstalled checks explain with Pillion as shipped. It reports an injection if a pod is
// injected, none if the Deployment excludes the namespace, and a denial if no replica answers.
func TestExplainInstalled(t *testing.T) {
	t.Parallel()
	i := install(t, newCluster(t), "self-signed")
	i.waitForInjection(t)
	pod := shopPod()
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels["app"] = "web"
	_, err := i.Client.AppsV1().Deployments(i.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := func(answered bool, code, verdict string) {
		t.Helper()
		r := explain(t, nil, "--kubeconfig", i.Kubeconfig, "-n", i.namespace, "deploy/web", "--template", "fluent-bit").Reports[0]
		if r.Answered == nil || *r.Answered != answered || r.Templates[0].Code != code || r.Final.Verdict != verdict {
			t.Errorf("it is explained as %+v; want answered %t, %s, %s", r, answered, code, verdict)
		}
	}
	want(true, "injected", "allowed")
	i.explainOtherKinds(t)

	err = i.Client.DiscoveryV1().EndpointSlices(pillionNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want(false, "not_injected", "denied")
	patch := `[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--exclude-namespace=` + i.namespace + `"}]`
	if _, err := i.Client.AppsV1().Deployments(pillionNamespace).Patch(t.Context(), "pillion", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	want(false, "excluded_namespace", "denied")
	eventually(t, "a pod is denied", func(ctx context.Context) error {
		pod := shopPod()
		pod.GenerateName = "late-"
		if _, err := i.Client.CoreV1().Pods(i.namespace).Create(ctx, pod, metav1.CreateOptions{}); err == nil {
			return errors.New("it is not")
		}
		return nil
	})
}
