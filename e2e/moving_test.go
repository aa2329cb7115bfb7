// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

const (
	movingPage  = "manifests/docs/moving.md"
	linkerdPage = "manifests/docs/from-linkerd.md"
	awsPage     = "manifests/docs/from-aws.md"

	// The names of the configurations that the other injectors have. API servers call them in this order: Linkerd's,
	// Pillion's, that of AWS.
	linkerdConfiguration = "linkerd-proxy-injector-webhook-config"
	awsConfiguration     = "pod-identity-webhook"
)

// move is a namespace of a cluster that moves from another injector to Pillion.
type move struct {
	*user
	template      string
	configuration string // of the other injector
}

// newMove installs Pillion and a fake of the other injector. No namespace has opted in. Pillion has one replica: what one
// pod shows, all later pods get.
func newMove(t *testing.T, template string, injector testwebhook.Webhook) *move {
	t.Helper()
	i := &installed{Cluster: newCluster(t), namespace: "shop"}
	i.apply(t, "self-signed")
	m := &move{user: i.newOperator(t), template: template, configuration: injector.Name}
	m.runCommand(t, "kubectl -n pillion-system scale deployment pillion --replicas=1")
	if err := i.deploy(t); err != nil {
		t.Fatal(err)
	}
	m.runCommand(t, "kubectl create namespace "+m.namespace)
	if err := m.WaitForPods(testContext(t), m.namespace); err != nil {
		t.Fatal(err)
	}
	m.nodes(t, m.namespace)

	server, err := testwebhook.NewServer(m.Authority)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	if err := server.Install(testContext(t), m.Client, injector); err != nil {
		t.Fatal(err)
	}
	if err := m.WaitForWebhook(testContext(t), m.namespace, cluster.Called(injector.Name)); err != nil {
		t.Fatal(err)
	}
	return m
}

// runCommand runs a command that must succeed, and returns its output.
func (m *move) runCommand(t *testing.T, line string) string {
	t.Helper()
	out, code, err := m.run(testContext(t), line)
	if err != nil || code != 0 {
		t.Fatalf("%s: exit code %d, %v\n%s", line, code, err, out)
	}
	return out
}

// applyWorkloads applies the objects of a file of templates/from, except the namespace.
func (m *move) applyWorkloads(t *testing.T, path string) {
	t.Helper()
	var objects []string
	for doc := range strings.SplitSeq(page(t, path), "\n---\n") {
		if !strings.Contains("\n"+doc, "\nkind: Namespace\n") {
			objects = append(objects, doc)
		}
	}
	if _, err := m.RunKubectl(testContext(t), []byte(strings.Join(objects, "\n---\n")), "apply", "-n", m.namespace, "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// dryRun creates a pod as the controller of the Deployment would, as a dry run, and returns the pod and the warnings.
func (m *move) dryRun(ctx context.Context, deployment string) (*corev1.Pod, []string, error) {
	d, err := m.Client.AppsV1().Deployments(m.namespace).Get(ctx, deployment, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	client, warnings, err := clientWithWarnings(m.Config)
	if err != nil {
		return nil, nil, err
	}
	pod := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: d.Spec.Template.Spec}
	pod.GenerateName = deployment + "-"
	created, err := client.CoreV1().Pods(m.namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	warnings.mu.Lock()
	defer warnings.mu.Unlock()
	return created, slices.Clone(warnings.text), err
}

// waitForDryRun waits until a new pod of the Deployment web and its warnings are as wanted.
func (m *move) waitForDryRun(t *testing.T, what string, check func(*corev1.Pod, []string) error) {
	t.Helper()
	eventually(t, what, func(ctx context.Context) error {
		pod, warnings, err := m.dryRun(ctx, "web")
		if err != nil {
			return err
		}
		return check(pod, warnings)
	})
}

// restartDeployment restarts the Deployment, and returns the one pod that it has in the end, with the event of its creation.
func (m *move) restartDeployment(t *testing.T, deployment string) (*corev1.Pod, cluster.Event) {
	t.Helper()
	m.runCommand(t, fmt.Sprintf("kubectl -n %s rollout restart deploy/%s", m.namespace, deployment))
	return m.waitForRollout(t, deployment)
}

// waitForRollout waits until the Deployment has only pods of its present template, which is one, and returns it.
func (m *move) waitForRollout(t *testing.T, deployment string) (*corev1.Pod, cluster.Event) {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, "the Deployment "+deployment+" is rolled out", func(ctx context.Context) error {
		out, code, err := m.run(ctx, fmt.Sprintf("kubectl -n %s rollout status deploy/%s --watch=false", m.namespace, deployment))
		if err != nil || code != 0 || !strings.Contains(out, "successfully rolled out") {
			return errors.Join(err, fmt.Errorf("exit code %d: %s", code, out))
		}
		pods, err := m.Client.CoreV1().Pods(m.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + deployment})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].DeletionTimestamp != nil {
			return fmt.Errorf("there are %d pods", len(pods.Items))
		}
		pod = &pods.Items[0]
		return nil
	})
	event, err := m.Audit.Wait(testContext(t), func(e cluster.Event) bool { return e.CreatesPod(m.namespace, pod.Name) })
	if err != nil {
		t.Fatal(err)
	}
	return pod, event
}

// record is the annotation with which Pillion records an injection.
func (m *move) record(pod *corev1.Pod) string {
	return pod.Annotations[m.template+".pillion.dev/injected"]
}

// wantShadowed checks that Pillion has left a pod unchanged, and reported a decision about the template.
func (m *move) wantShadowed(t *testing.T, pod *corev1.Pod, event cluster.Event, reported string) {
	t.Helper()
	if m.record(pod) != "" || len(event.Calls(pillionConfiguration)) > 0 {
		t.Errorf("in shadow, the pod %s has %v, and the calls are %v", pod.Name, pod.Annotations, event.Calls(pillionConfiguration))
	}
	wantCallsOf(t, event, m.configuration, "round_0 "+m.configuration+"/test.e2e.example.com mutated=true")
	if got := event.Foretold()[m.template]; !strings.HasPrefix(got, reported) {
		t.Errorf("about the pod %s, the audit log has %q, want %q", pod.Name, got, reported)
	}
}

// wantExplained checks what `pillion explain` prints about a pod that the other injector has changed.
func (m *move) wantExplained(t *testing.T, pod *corev1.Pod, want string) {
	t.Helper()
	out := m.runCommand(t, "pillion explain -n "+m.namespace+" pod/"+pod.Name)
	if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
		t.Errorf("explain does not print %q about the pod %s:\n%s", want, pod.Name, out)
	}
}

// wantSameInjection checks that Pillion has injected the pod, and that it runs what a pod of the other injector runs:
// nothing is missing, and nothing is there twice.
func (m *move) wantSameInjection(t *testing.T, before, after *corev1.Pod) {
	t.Helper()
	if m.record(after) == "" {
		t.Errorf("Pillion has not injected the pod %s: %v", after.Name, after.Annotations)
	}
	if diff := cmp.Diff(runningParts(before), runningParts(after)); diff != "" {
		t.Errorf("the pod of Pillion runs something else (-other injector +Pillion):\n%s", diff)
	}
}

// wantStatus compares what `pillion status` counts.
func (m *move) wantStatus(t *testing.T, want string) {
	t.Helper()
	eventually(t, "pillion status reports "+want, func(ctx context.Context) error {
		out, _, err := m.run(ctx, "pillion status "+m.namespace)
		if err == nil && !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			err = errors.New(out)
		}
		return err
	})
}

// runningParts returns what a pod runs, without what API servers and controllers add to each pod, and what each injector
// records.
func runningParts(pod *corev1.Pod) *corev1.Pod {
	parts := &corev1.Pod{Spec: *pod.Spec.DeepCopy()}
	parts.Labels, parts.Annotations = map[string]string{}, map[string]string{}
	for key, value := range pod.Labels {
		if key != "pod-template-hash" {
			parts.Labels[key] = value
		}
	}
	for key, value := range pod.Annotations {
		if !strings.Contains(key, "pillion.dev/") && key != "kubectl.kubernetes.io/restartedAt" {
			parts.Annotations[key] = value
		}
	}
	isOwn := func(name string) bool { return strings.HasPrefix(name, "kube-api-access-") }
	parts.Spec.Volumes = slices.DeleteFunc(parts.Spec.Volumes, func(v corev1.Volume) bool { return isOwn(v.Name) })
	for _, list := range [][]corev1.Container{parts.Spec.InitContainers, parts.Spec.Containers} {
		for i := range list {
			list[i].VolumeMounts = slices.DeleteFunc(list[i].VolumeMounts, func(m corev1.VolumeMount) bool { return isOwn(m.Name) })
			slices.SortFunc(list[i].Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
		}
	}
	return parts
}

// linkerdInjector adds what Linkerd's injector adds to the pods of the Deployment web: what the expected pod of the
// template's tests has, and the label with the owner. It reads no annotation of the pod except that which the other
// Deployment has, and it does not support that one.
func linkerdInjector(t *testing.T) testwebhook.Mutate {
	t.Helper()
	expected := corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(page(t, "templates/from/linkerd/tests/linkerd.yaml")), &expected); err != nil {
		t.Fatal(err)
	}
	return testwebhook.Edit(func(p *corev1.Pod) {
		if slices.Contains(containerNames(p.Spec.InitContainers), "linkerd-proxy") {
			return
		}
		maps.Copy(p.Annotations, expected.Annotations)
		for key, value := range expected.Labels {
			if strings.HasPrefix(key, "linkerd.io/") {
				p.Labels[key] = value
			}
		}
		if len(p.OwnerReferences) > 0 {
			p.Labels["linkerd.io/proxy-deployment"] = p.Labels["app"]
		}
		p.Spec.InitContainers = append(slices.Clone(expected.Spec.InitContainers[:2]), p.Spec.InitContainers...)
		p.Spec.Volumes = append(p.Spec.Volumes, expected.Spec.Volumes...)
	})
}

// TestMoveFromLinkerd moves a namespace from Linkerd's injector to Pillion and back, by the commands of the pages.
func TestMoveFromLinkerd(t *testing.T) {
	t.Parallel()
	m := newMove(t, "linkerd", testwebhook.Webhook{
		Name: linkerdConfiguration, Mutate: linkerdInjector(t), Reinvocation: admissionregistrationv1.NeverReinvocationPolicy,
		Change: func(w *admissionregistrationv1.MutatingWebhook) {
			w.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "config.linkerd.io/admission-webhooks", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"disabled"}},
				{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{"shop"}},
			}}
		},
	})
	m.applyWorkloads(t, "templates/from/linkerd/tests/web.yaml")
	m.runCommand(t, `kubectl create deployment debug -n shop --image=registry.example/debug:1 && kubectl patch deployment debug -n shop -p '{"spec":{"template":{"metadata":{"annotations":{"config.linkerd.io/proxy-log-level":"debug"}}}}}'`)
	byLinkerd, _ := m.waitForRollout(t, "web")

	m.createLinkerdRoots(t)
	m.doesAsWritten(t, linkerdPage, "trust-roots -o", nil)

	m.doesAsWritten(t, movingPage, "pillion.dev/inject=shadow", nil)
	m.waitForDryRun(t, "Pillion reports what it would do", func(_ *corev1.Pod, warnings []string) error {
		if !slices.Contains(warnings, wouldGet+"get linkerd") {
			return fmt.Errorf("the warnings are %q", warnings)
		}
		return nil
	})
	m.wantExplained(t, byLinkerd, "a new pod gets 1 of the 17 templates")
	pod, event := m.restartDeployment(t, "web")
	m.wantShadowed(t, pod, event, "would be injected: ")
	pod, event = m.restartDeployment(t, "debug")
	m.wantShadowed(t, pod, event, "conflict: ")
	m.wantExplained(t, pod, "linkerd: conflict at spec.initContainers[1]: the container linkerd-proxy differs from the template in env")

	m.doesAsWritten(t, linkerdPage, "admission-webhooks=disabled", nil)
	m.doesAsWritten(t, movingPage, "pillion.dev/inject=enabled", map[string]func(){
		"kubectl -n shop rollout restart": func() {
			m.waitForDryRun(t, "Pillion injects, and Linkerd does not", func(pod *corev1.Pod, _ []string) error {
				if m.record(pod) == "" {
					return fmt.Errorf("the annotations are %v", pod.Annotations)
				}
				return nil
			})
		},
	})
	pod, event = m.waitForRollout(t, "web")
	wantCallsOf(t, event, m.configuration)
	wantCallsOf(t, event, pillionConfiguration, calledOnce)
	m.wantSameInjection(t, byLinkerd, pod)
	other, _ := m.waitForRollout(t, "debug")
	if got := environmentOf(container(t, other, "linkerd-proxy"))["LINKERD2_PROXY_LOG"]; !strings.HasPrefix(got, "debug") || m.record(other) == "" {
		t.Errorf("the proxy of the Deployment debug logs %q", got)
	}
	m.wantStatus(t, "shop 2 2 2 0 0 0")

	m.runCommand(t, "kubectl label namespace shop pillion.dev/inject=disabled config.linkerd.io/admission-webhooks- --overwrite")
	m.waitForDryRun(t, "Linkerd injects, and Pillion does not", func(pod *corev1.Pod, _ []string) error {
		if m.record(pod) != "" || !slices.Contains(containerNames(pod.Spec.InitContainers), "linkerd-proxy") {
			return fmt.Errorf("the annotations are %v, and the init containers are %v", pod.Annotations, containerNames(pod.Spec.InitContainers))
		}
		return nil
	})
	pod, _ = m.restartDeployment(t, "web")
	if diff := cmp.Diff(runningParts(byLinkerd), runningParts(pod)); diff != "" || m.record(pod) != "" {
		t.Errorf("the pod is not as before the move: %s", diff)
	}
}

// createLinkerdRoots creates what a control plane of Linkerd has: the ConfigMap with its trust anchors. They are those of the
// template's tests.
func (m *move) createLinkerdRoots(t *testing.T) {
	t.Helper()
	namespace := corev1.Namespace{}
	doc, _, _ := strings.Cut(page(t, "templates/from/linkerd/tests/web.yaml"), "\n---\n")
	if err := yaml.UnmarshalStrict([]byte(doc), &namespace); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(m.dir, "ca-bundle.crt")
	if err := os.WriteFile(file, []byte(namespace.Annotations["linkerd.pillion.dev/trustAnchors"]), 0o600); err != nil {
		t.Fatal(err)
	}
	m.runCommand(t, "kubectl create namespace linkerd && kubectl -n linkerd create configmap linkerd-identity-trust-roots --from-file=ca-bundle.crt="+file)
}

func environmentOf(c corev1.Container) map[string]string {
	all := map[string]string{}
	for _, e := range c.Env {
		all[e.Name] = e.Value
	}
	return all
}

// awsInjector adds what the Amazon EKS Pod Identity webhook adds to pods of the ServiceAccount orders. Each part is added to
// containers that lack it.
func awsInjector(p *corev1.Pod) {
	const folder = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
	if p.Spec.ServiceAccountName != "orders" {
		return
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			c := &list[i]
			has := environmentOf(*c)
			if _, ok := has["AWS_STS_REGIONAL_ENDPOINTS"]; !ok {
				c.Env = append(c.Env, corev1.EnvVar{Name: "AWS_STS_REGIONAL_ENDPOINTS", Value: "regional"})
			}
			_, role := has["AWS_ROLE_ARN"]
			if _, file := has["AWS_WEB_IDENTITY_TOKEN_FILE"]; !role && !file {
				c.Env = append(c.Env, corev1.EnvVar{Name: "AWS_ROLE_ARN", Value: "arn:aws:iam::123456789012:role/orders"},
					corev1.EnvVar{Name: "AWS_WEB_IDENTITY_TOKEN_FILE", Value: folder + "/token"})
			}
			if !slices.Contains(mountPaths(*c), folder) {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "aws-iam-token", MountPath: folder, ReadOnly: true})
			}
		}
	}
	if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "aws-iam-token" }) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "aws-iam-token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience: "sts.amazonaws.com", ExpirationSeconds: new(int64(86400)), Path: "token",
			}}},
		}}})
	}
}

// TestMoveFromAWS moves a namespace from the webhook of EKS, which cannot be switched off for a namespace, to Pillion. For a
// while, both inject the same pods.
func TestMoveFromAWS(t *testing.T) {
	t.Parallel()
	m := newMove(t, "aws-irsa", testwebhook.Webhook{
		Name: awsConfiguration, Mutate: testwebhook.Edit(awsInjector), Reinvocation: admissionregistrationv1.IfNeededReinvocationPolicy,
		Namespaces: map[string]string{corev1.LabelMetadataName: "shop"},
		Change: func(w *admissionregistrationv1.MutatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "eks.amazonaws.com/skip-pod-identity-webhook", Operator: metav1.LabelSelectorOpDoesNotExist},
			}}
		},
	})
	m.runCommand(t, "kubectl create serviceaccount orders -n shop && kubectl annotate serviceaccount orders -n shop "+roleAnnotation+"=arn:aws:iam::123456789012:role/orders")
	for _, name := range []string{"web", "plain"} {
		account := map[string]string{"web": "orders", "plain": "default"}[name]
		m.createDeployment(t, name, account)
	}
	byWebhook, _ := m.waitForRollout(t, "web")
	withoutRole, _ := m.waitForRollout(t, "plain")

	m.doesAsWritten(t, awsPage, "kubectl apply -f templates/from/aws", nil)
	m.doesAsWritten(t, movingPage, "pillion.dev/inject=shadow", nil)
	m.waitForDryRun(t, "Pillion reports what it would do", func(_ *corev1.Pod, warnings []string) error {
		if !slices.Contains(warnings, wouldGet+"get aws-irsa") {
			return fmt.Errorf("the warnings are %q", warnings)
		}
		return nil
	})
	m.wantExplained(t, byWebhook, "a new pod gets 1 of the 18 templates")
	pod, event := m.restartDeployment(t, "web")
	m.wantShadowed(t, pod, event, "would be injected: ")

	m.doesAsWritten(t, movingPage, "pillion.dev/inject=enabled", map[string]func(){
		"kubectl -n shop rollout restart": func() {
			m.waitForDryRun(t, "Pillion injects", func(pod *corev1.Pod, _ []string) error {
				if m.record(pod) == "" {
					return fmt.Errorf("the annotations are %v", pod.Annotations)
				}
				return nil
			})
		},
	})
	pod, event = m.waitForRollout(t, "web")
	wantCallsOf(t, event, m.configuration, "round_0 "+m.configuration+"/test.e2e.example.com mutated=false")
	wantCallsOf(t, event, pillionConfiguration, calledOnce)
	m.wantSameInjection(t, byWebhook, pod)
	plain, _ := m.waitForRollout(t, "plain")
	if diff := cmp.Diff(runningParts(withoutRole), runningParts(plain)); diff != "" || m.record(plain) != "" {
		t.Errorf("a pod whose ServiceAccount has no role is changed: %s", diff)
	}
	m.wantStatus(t, "shop 2 1 1 0 0 0")

	m.doesAsWritten(t, awsPage, "skip-pod-identity", nil)
	pod, event = m.waitForRollout(t, "web")
	wantCallsOf(t, event, m.configuration)
	delete(pod.Labels, "eks.amazonaws.com/skip-pod-identity-webhook")
	m.wantSameInjection(t, byWebhook, pod)
}

// createDeployment creates a Deployment whose pods have an init container and two containers.
func (m *move) createDeployment(t *testing.T, name, account string) {
	t.Helper()
	pod := newPod("")
	spec := pod.Spec
	spec.ServiceAccountName = account
	object, err := json.Marshal(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"app": name}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]string{"app": name}}, "spec": spec},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.RunKubectl(testContext(t), object, "apply", "-n", m.namespace, "-f", "-"); err != nil {
		t.Fatal(err)
	}
}
