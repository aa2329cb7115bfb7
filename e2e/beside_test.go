// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

// Other injectors change all containers of a pod, also Pillion's. These tests try what such injectors do, in each order
// and with each reinvocationPolicy, beside templates that protect nothing and templates that protect everything.

// besideCase is another injector beside a template, in a namespace of its own.
type besideCase struct {
	behavior string
	after    bool // it runs after Pillion
	policy   admissionregistrationv1.ReinvocationPolicyType
	template string // loose or strict

	denied bool
}

func (c *besideCase) namespace() string {
	order := "before"
	if c.after {
		order = "after"
	}
	return strings.ToLower(strings.Join([]string{"beside", c.behavior, order, string(c.policy), c.template}, "-"))
}

func (c *besideCase) webhook() string {
	return map[bool]string{false: "a-", true: "z-"}[c.after] + c.namespace()
}

// damages reports whether the other injector removes the restartPolicy of Pillion's sidecar and has the last word.
func (c *besideCase) damages() bool {
	return c.behavior == "strips" && c.after && c.policy == ifNeeded
}

// besideCases returns every combination, or in the quick size those with every pair of two properties.
func besideCases() (all []*besideCase) {
	n := 0
	for _, behavior := range slices.Sorted(maps.Keys(otherInjectors())) {
		for _, after := range []bool{false, true} {
			for _, policy := range []admissionregistrationv1.ReinvocationPolicyType{never, ifNeeded} {
				for _, template := range []string{"loose", "strict"} {
					c := &besideCase{behavior: behavior, after: after, policy: policy, template: template}
					odd := after != (policy == ifNeeded) != (template == "strict")
					if fullSize() || odd == (n%2 == 0) || c.damages() {
						all = append(all, c)
					}
				}
			}
		}
		n++
	}
	return all
}

// otherSidecars are the containers that the other injectors add: a native sidecar and one beside the app.
func otherSidecars() (first, last corev1.Container) {
	port := []corev1.ContainerPort{{ContainerPort: 15001, Name: "other"}}
	first = corev1.Container{Name: "other-init", Image: "registry.example/other:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Args: []string{"init"}}
	last = corev1.Container{Name: "other-agent", Image: "registry.example/other:1", Args: []string{"run", "--all"}, Ports: port, Env: []corev1.EnvVar{{Name: "OTHER", Value: "yes"}}}
	return first, last
}

// otherInjectors returns what other injectors do with a pod. Each adds its sidecars if the pod lacks them.
func otherInjectors() map[string]func(*corev1.Pod) {
	return map[string]func(*corev1.Pod){
		"adds":     func(p *corev1.Pod) { addSidecars(p, true); addToAll(p) },
		"first":    func(p *corev1.Pod) { addSidecars(p, true) },
		"last":     func(p *corev1.Pod) { addSidecars(p, false) },
		"strips":   func(p *corev1.Pod) { addSidecars(p, true); stripRestartPolicies(p) },
		"sorts":    func(p *corev1.Pod) { addSidecars(p, false); addToAll(p); sortLists(p) },
		"defaults": func(p *corev1.Pod) { addSidecars(p, false); setDefaults(p) },
		"all":      func(p *corev1.Pod) { addSidecars(p, true); addToAll(p); setDefaults(p); sortLists(p) },
	}
}

func editContainers(p *corev1.Pod, do func(*corev1.Container)) {
	for i := range p.Spec.InitContainers {
		do(&p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		do(&p.Spec.Containers[i])
	}
}

func addSidecars(p *corev1.Pod, first bool) {
	add := func(list []corev1.Container, c corev1.Container) []corev1.Container {
		switch {
		case slices.Contains(containerNames(list), c.Name):
			return list
		case first:
			return slices.Insert(list, 0, c)
		}
		return append(list, c)
	}
	native, beside := otherSidecars()
	p.Spec.InitContainers, p.Spec.Containers = add(p.Spec.InitContainers, native), add(p.Spec.Containers, beside)
}

// addToAll adds a volume, and a mount and a variable to each container that lacks them.
func addToAll(p *corev1.Pod) {
	if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "other-secrets" }) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "other-secrets", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}})
	}
	editContainers(p, func(c *corev1.Container) {
		if !slices.Contains(mountPaths(*c), "/vault/secrets") {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "other-secrets", MountPath: "/vault/secrets"})
		}
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "REGION" }) {
			c.Env = slices.Insert(c.Env, 0, corev1.EnvVar{Name: "REGION", Value: "eu"})
		}
	})
}

// stripRestartPolicies does what a program does whose API types are older than native sidecars.
func stripRestartPolicies(p *corev1.Pod) {
	native, _ := otherSidecars()
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name != native.Name {
			c.RestartPolicy = nil
		}
	}
}

func sortLists(p *corev1.Pod) {
	byName := func(a, b corev1.Container) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(p.Spec.Containers, byName)
	slices.SortFunc(p.Spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	editContainers(p, func(c *corev1.Container) {
		slices.SortFunc(c.Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(c.VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.MountPath, b.MountPath) })
	})
}

// setDefaults sets what a container lacks, as policy engines do.
func setDefaults(p *corev1.Pod) {
	editContainers(p, func(c *corev1.Container) {
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		s := c.SecurityContext
		if s.AllowPrivilegeEscalation == nil {
			s.AllowPrivilegeEscalation = new(false)
		}
		if s.ReadOnlyRootFilesystem == nil {
			s.ReadOnlyRootFilesystem = new(true)
		}
		if s.Capabilities == nil {
			s.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
		}
		if s.SeccompProfile == nil {
			s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
		}
		if c.Resources.Limits == nil {
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
		}
		c.ImagePullPolicy = corev1.PullAlways
		c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	})
}

// beside is a control plane with a namespace for each case, and one without another injector for each template.
type beside struct {
	*rolling
	cases      []*besideCase
	references map[string]*corev1.Pod
}

const besideLabel = "e2e.example.com/beside"

func besideTemplate(name, image string) string {
	return fmt.Sprintf(`
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: %[1]s}
spec:
  default: true
  required: %[3]t
  match: {namespaceSelector: {matchLabels: {%[4]s: %[1]s}}}
  pod:
    spec:
      initContainers:
      - name: agent
        image: "%[2]s"
        args: [--level=info]
        restartPolicy: Always
        env: [{name: ZONE, value: b}, {name: MODE, value: fast}]
        resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 32Mi}}
        volumeMounts: [{name: logs, mountPath: /logs}, {name: data, mountPath: /data}]
      containers:
      - name: helper
        image: "%[2]s"
        securityContext: {runAsNonRoot: true}
        ports: [{containerPort: 9090, name: metrics}]
      volumes: [{name: logs, emptyDir: {}}, {name: data, emptyDir: {}}]
  forEachContainer:
  - add:
      env: [{name: LOG_DIR, value: /var/log/app}]
      volumeMounts: [{name: logs, mountPath: /var/log/app}]
---
`, name, image, name == "strict", besideLabel)
}

// use applies both templates, and returns when each namespace gets them.
func (b *beside) use(t *testing.T, image string) {
	t.Helper()
	if out, err := b.RunKubectl(t.Context(), []byte(besideTemplate("loose", image)+besideTemplate("strict", image)), "apply", "-f", "-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for template := range b.references {
		eventually(t, "Pillion knows the template "+template, func(ctx context.Context) error {
			for range 4 * len(b.replicas) {
				pod, err := b.Client.CoreV1().Pods("beside-"+template).Create(ctx, newPod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err != nil {
					return err
				}
				if images := sidecarImages(pod); !slices.Contains(images, image) {
					return fmt.Errorf("a pod gets %q", images)
				}
			}
			return nil
		})
	}
}

func besidePod() *corev1.Pod {
	return newPod("bare", func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "REGION", Value: "of the app"})
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1000))}
	})
}

func (b *beside) addNamespace(t *testing.T, name, template string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{injectLabel: "enabled", besideLabel: template}}}
	if _, err := b.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestBeside compares pods, verdicts, calls and plans of rollout beside other injectors.
func TestBeside(t *testing.T) {
	t.Parallel()
	b := &beside{rolling: &rolling{installed: install(t, newCluster(t), "self-signed")}, cases: besideCases(), references: map[string]*corev1.Pod{"loose": nil, "strict": nil}}
	b.kubelet = startKubelet(t, b.Client)
	b.waitForInjection(t)
	for template := range b.references {
		b.addNamespace(t, "beside-"+template, template)
	}
	for _, c := range b.cases {
		b.addNamespace(t, c.namespace(), c.template)
		err := env.webhooks.Install(t.Context(), b.Client, testwebhook.Webhook{
			Name: c.webhook(), Namespaces: map[string]string{corev1.LabelMetadataName: c.namespace()}, Reinvocation: c.policy, Mutate: testwebhook.Edit(otherInjectors()[c.behavior]),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	b.use(t, "agent:1")
	for template := range b.references {
		b.references[template] = b.createIn(t, "beside-"+template)
	}
	for _, c := range b.cases {
		b.create(t, c)
	}
	b.wantPlan(t, "after the creation", "")

	b.cases = slices.DeleteFunc(b.cases, func(c *besideCase) bool {
		if c.damages() { // the rollout would stop there
			b.remove(t, c.namespace())
		}
		return c.damages()
	})
	b.use(t, "agent:2")
	b.wantPlan(t, "after a change of the image", "in place")
	b.update(t)
	b.wantPlan(t, "after the rollout", "")
	b.wantWarning(t)
}

// remove deletes the workloads of a namespace.
func (b *beside) remove(t *testing.T, ns string) {
	t.Helper()
	if out, err := b.RunKubectl(t.Context(), nil, "delete", "deployments,pods", "--all", "-n", ns, "--force"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// wantWarning applies a template that would deny pods because of what others add to them. The apply warns. A replica knows
// only pods that it has processed, so the apply is repeated until the API server calls one that knows some.
func (b *beside) wantWarning(t *testing.T) {
	t.Helper()
	strict := strings.Replace(besideTemplate("strict", "agent:2"), "  required: true\n", "  required: true\n  validate: {protect: [all, env, volumeMounts]}\n", 1)
	eventually(t, "the apply warns about pods that would be denied", func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, env.Kubectl, "--kubeconfig", b.Kubeconfig, "apply", "--dry-run=server", "-f", "-")
		cmd.Stdin = strings.NewReader(strict)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if !bytes.Contains(out, []byte("would be denied if they were created again: ")) || !bytes.Contains(out, []byte("strict: altered at /spec/")) {
			return fmt.Errorf("it prints %s", out)
		}
		t.Logf("%s", out)
		return nil
	})
}

func (b *beside) createIn(t *testing.T, ns string) *corev1.Pod {
	t.Helper()
	if err := b.WaitForPods(testContext(t), ns); err != nil {
		t.Fatal(err)
	}
	pod, err := b.Client.CoreV1().Pods(ns).Create(testContext(t), besidePod(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// create creates the pods of a case, and checks the verdict, the pod and the calls.
func (b *beside) create(t *testing.T, c *besideCase) {
	t.Helper()
	ns := c.namespace()
	eventually(t, "the other injector is called in "+ns, func(ctx context.Context) error {
		if err := b.WaitForPods(ctx, ns); err != nil {
			return err
		}
		probe := newPod("probe")
		_, _ = b.Client.CoreV1().Pods(ns).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}) // it may be denied
		probe.Namespace = ns
		if len(env.webhooks.Calls(c.webhook(), probe)) == 0 {
			return errors.New("it was not called")
		}
		return nil
	})
	pod, err := b.Client.CoreV1().Pods(ns).Create(testContext(t), besidePod(), metav1.CreateOptions{})
	wantDenied := c.damages() && c.template == "strict"
	if c.denied = err != nil; c.denied != wantDenied {
		t.Errorf("%s: the create is answered with %v", ns, err)
	}
	b.wantFewCalls(t, c)
	if c.denied {
		if wantDenied && !strings.Contains(err.Error(), `strict: missing at /spec/initContainers/`) {
			t.Errorf("%s: the error is %v", ns, err)
		}
		return
	}
	b.wantSidecars(t, c, pod)
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: appSelector("deployed"), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "deployed"}}, Spec: besidePod().Spec},
	}}
	if _, err := b.Client.AppsV1().Deployments(ns).Create(testContext(t), web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// wantFewCalls checks how often the API server calls the webhooks.
func (b *beside) wantFewCalls(t *testing.T, c *besideCase) {
	t.Helper()
	ns := c.namespace()
	event, err := b.Audit.Wait(testContext(t), func(e cluster.Event) bool { return e.CreatesPod(ns, "bare") })
	if err != nil {
		t.Fatal(err)
	}
	own, other := event.Calls(pillionConfiguration), event.Calls(c.webhook())
	want := map[admissionregistrationv1.ReinvocationPolicyType]int{never: 1, ifNeeded: 2}[c.policy]
	if len(own) != 2 || len(other) != want { // Kubernetes mounts the token into the other injector's containers, so Pillion is called again
		t.Errorf("%s: calls are %v and %v, want 2 and %d", ns, own, other, want)
	}
}

// wantSidecars checks that a pod has all that its author, Pillion and the other injector have set.
func (b *beside) wantSidecars(t *testing.T, c *besideCase, pod *corev1.Pod) {
	t.Helper()
	want := b.references[c.template].DeepCopy()
	native, last := otherSidecars()
	want.Spec.InitContainers = append(want.Spec.InitContainers, native)
	want.Spec.Containers = append(want.Spec.Containers, last)
	if c.behavior == "defaults" || c.behavior == "all" { // which sets these two everywhere
		editContainers(want, func(c *corev1.Container) { c.ImagePullPolicy, c.TerminationMessagePolicy = "", "" })
	}
	for _, of := range []struct{ want, got []corev1.Container }{{want.Spec.InitContainers, pod.Spec.InitContainers}, {want.Spec.Containers, pod.Spec.Containers}} {
		if len(of.want) != len(of.got) {
			t.Errorf("%s: the containers are %v, want %v in any order", c.namespace(), containerNames(of.got), containerNames(of.want))
		}
		for _, w := range of.want {
			if w.Name == "agent" && c.damages() {
				w.RestartPolicy = nil
			}
			if lacks := missingIn(toObject(t, w), toObject(t, container(t, pod, w.Name)), w.Name); lacks != "" {
				t.Errorf("%s: %s", c.namespace(), lacks)
			}
		}
	}
	app := container(t, pod, "worker")
	if !slices.Contains(mountPaths(app), "/var/log/app") || !slices.Contains(mountPaths(container(t, pod, "other-agent")), "/var/log/app") {
		t.Errorf("%s: the mounts of worker are %v", c.namespace(), mountPaths(app))
	}
	if c.behavior != "adds" && c.behavior != "all" && c.behavior != "sorts" || !c.after && c.policy == never {
		return
	}
	if agent := container(t, pod, "agent"); !slices.Contains(mountPaths(agent), "/vault/secrets") || !slices.Contains(agent.Env, corev1.EnvVar{Name: "REGION", Value: "eu"}) {
		t.Errorf("%s: the agent has not what the other injector adds: %v, %v", c.namespace(), mountPaths(agent), agent.Env)
	}
}

func toObject(t *testing.T, of any) (object map[string]any) {
	t.Helper()
	text, err := json.Marshal(of)
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// missingIn returns what got lacks of want, or "". Lists of objects are compared by their keys, in any order.
func missingIn(want, got any, at string) string {
	switch want := want.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if lacks := missingIn(want[key], object[key], at+"."+key); lacks != "" {
				return lacks
			}
		}
		return ""
	case []any:
		list, _ := got.([]any)
		for _, item := range want {
			object, ok := item.(map[string]any)
			if !ok {
				break
			}
			i := slices.IndexFunc(list, func(other any) bool { return keyOf(other) == keyOf(object) })
			switch {
			case i < 0:
				return fmt.Sprintf("%s lacks %v", at, object)
			case strings.HasPrefix(fmt.Sprint(object["name"]), "kube-api-access-"): // a random name
				continue
			}
			if lacks := missingIn(object, list[i], at+"."+keyOf(object)); lacks != "" {
				return lacks
			}
		}
		if _, ok := want[0].(map[string]any); ok {
			return ""
		}
	}
	if fmt.Sprint(want) != fmt.Sprint(got) {
		return fmt.Sprintf("%s is %v, want %v", at, got, want)
	}
	return ""
}

func keyOf(item any) string {
	object, _ := item.(map[string]any)
	for _, key := range []string{"mountPath", "name"} {
		if value, ok := object[key].(string); ok {
			return value
		}
	}
	return ""
}

// wantPlan checks the plan of a rollout of all namespaces, and that status agrees: pods are current if they are in no plan.
func (b *beside) wantPlan(t *testing.T, when string, want string) {
	t.Helper()
	accepted := slices.DeleteFunc(slices.Clone(b.cases), func(c *besideCase) bool { return c.denied })
	for _, c := range accepted {
		b.ready(t, c.namespace(), 2)
	}
	out, err := b.everywhere(t, "--dry-run").Output()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	plan, reasons := map[string][]string{}, map[string]string{}
	for line := range bytes.Lines(out) {
		var e struct {
			rolloutEvent
			Changes json.RawMessage
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Type == "plan" {
			plan[e.Namespace] = append(plan[e.Namespace], e.Workload+" "+e.Way)
			reasons[e.Namespace] += e.Message + string(e.Changes)
		}
	}
	for _, c := range accepted {
		var ways []string
		way := want
		if c.damages() {
			way = "cannot" // new pods would be damaged, too
		}
		if way != "" {
			ways = []string{"Deployment/web " + way, "Pod/bare " + way}
		}
		got := plan[c.namespace()]
		if slices.Sort(got); !slices.Equal(got, ways) {
			t.Errorf("%s, the plan for %s is %q, want %q: %s", when, c.namespace(), got, ways, reasons[c.namespace()])
		}
	}
}

// everywhere is the command for a rollout of all namespaces.
func (b *beside) everywhere(t *testing.T, args ...string) *exec.Cmd {
	args = append([]string{"rollout", "--kubeconfig", b.Kubeconfig, "-A", "--yes", "--min-ready", "0s", "--bake", "0s", "-o", "json"}, args...)
	return exec.CommandContext(t.Context(), env.binary, args...)
}

// update runs the rollout, and checks that only images and records of Pillion's containers change.
func (b *beside) update(t *testing.T) {
	t.Helper()
	before := map[string][]corev1.Pod{}
	for _, c := range b.cases {
		before[c.namespace()] = b.pods(t, c.namespace())
	}
	begin := time.Now()
	out, err := b.everywhere(t).CombinedOutput()
	t.Logf("rollout: %v in %s", err, time.Since(begin).Round(time.Millisecond))
	if !bytes.Contains(out, []byte(`"type":"done"`)) {
		t.Errorf("rollout: %v: %s", err, out[max(0, len(out)-2000):])
	}
	for _, c := range b.cases {
		if c.denied || c.damages() {
			continue
		}
		after := b.pods(t, c.namespace())
		for i := range after {
			was, is := before[c.namespace()][i].DeepCopy(), after[i].DeepCopy()
			editContainers(was, func(c *corev1.Container) {
				if c.Name == "agent" || c.Name == "helper" {
					c.Image = "agent:2"
				}
			})
			if was.UID != is.UID || toText(t, was.Spec) != toText(t, is.Spec) {
				t.Errorf("%s: the pod\n%s changes to\n%s", c.namespace(), toText(t, was.Spec), toText(t, is.Spec))
			}
		}
	}
}

func toText(t *testing.T, of any) string {
	t.Helper()
	text, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
