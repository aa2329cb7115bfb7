// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

const (
	// The policies of the tests go by labels of their own, so that they and the webhook each have
	// namespaces that the other does not see.
	mutatingLabel   = "e2e.example.com/policy-injects"
	validatingLabel = "e2e.example.com/policy-checks"
	// podsOnly is the label's value where pods opt in by themselves.
	podsOnly = "pods"
	// servesMutating is for needsKubernetes.
	servesMutating = "serves MutatingAdmissionPolicies"
)

// policyTemplates are those that are injected by policies. The set that they come from has others.
func policyTemplates() []string {
	return []string{
		"logger", "proxy", "gpu", "bare", "tokenless", "echo", "host", "seen", "guard", "keeper", "device", "medley",
		"fluent-bit", "opentelemetry-collector", "oauth2-proxy",
	}
}

// TestPolicyInjects checks that a policy changes a pod in the same way as the webhook.
func TestPolicyInjects(t *testing.T) {
	t.Parallel()
	needsKubernetes(t, 36, servesMutating)
	var args []string
	args = append(args, "--templates", env.templates[0])
	for _, name := range policyTemplates() {
		args = append(args, "--template", name)
		// Only these, because no policy can be written if another template of the library may set the same variable.
		if file := filepath.Join(env.templates[1], name+".yaml"); libraryParams()[name] != nil {
			args = append(args, "--templates", file)
		}
	}
	installPolicies(t, mutatingLabel, append(args, "--as", "mutating")...)
	for _, c := range slices.Concat(shapes(), policyCases()) {
		if c.name == "brings its own logger" {
			continue // see carefulCases
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			served := optedInNamespace(t)
			alone := policyNamespace(t, "enabled", like(t, served))
			want, got := createPod(t, served, newPod("web", c.edit)), createPod(t, alone, newPod("web", c.edit))
			wantSamePod(t, "policy", want, got)
			again := createPod(t, alone, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "again", Labels: got.Labels, Annotations: got.Annotations},
				Spec:       *got.Spec.DeepCopy(),
			})
			wantSamePod(t, "second look", got, again)
		})
	}
	for _, c := range carefulCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			unseen, alone := plainNamespace(t, withLabel(injectLabel, "disabled")), policyNamespace(t, "enabled")
			wantSamePod(t, "policy", createPod(t, unseen, newPod("web", c.edit)), createPod(t, alone, newPod("web", c.edit)))
		})
	}
	t.Run("a later webhook adds a container", func(t *testing.T) {
		t.Parallel()
		ns := policyNamespace(t, "enabled")
		installWebhook(t, ns, "z", testwebhook.Webhook{
			Reinvocation: never, Mutate: testwebhook.AddContainer(corev1.Container{Name: "late", Image: "registry.example/late:1"}),
		})
		pod := createPod(t, ns, newPod("web"))
		wantLogger(t, pod)
		if late := container(t, pod, "late"); !slices.Contains(mountPaths(late), "/var/log/app") || len(late.Env) != 1 {
			t.Errorf("the container of the webhook has only %v and %v", late.VolumeMounts, late.Env)
		}
	})
	t.Run("own container with a record", func(t *testing.T) {
		t.Parallel()
		own := corev1.Container{Name: "logger", Image: "registry.example/mine:1"}
		pod := createPod(t, policyNamespace(t, "enabled"), newPod("web", overrides("logger", "injected", "000000000000"), func(p *corev1.Pod) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, own)
		}))
		if got := container(t, pod, "logger"); got.Image != own.Image || got.RestartPolicy != nil || len(got.Args) > 0 {
			t.Errorf("the pod's own container was filled in: %v", got)
		}
		if !slices.Contains(mountPaths(container(t, pod, "web")), "/var/log/app") {
			t.Error("the rest of the template is not there")
		}
	})
	t.Run("pod opts in", func(t *testing.T) {
		t.Parallel()
		optedIn := func(p *corev1.Pod) { p.Labels[injectLabel] = "enabled" }
		served, alone := plainNamespace(t), policyNamespace(t, podsOnly)
		want, got := createPod(t, served, newPod("web", optedIn)), createPod(t, alone, newPod("web", optedIn))
		wantLogger(t, got)
		wantSamePod(t, "policy", want, got)
		wantNoLogger(t, createPod(t, alone, newPod("other")))
	})
	for name, values := range map[string]string{"namespace's parameter": "warn", "namespace's parameter is not valid": "loud"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := withAnnotation("logger.pillion.dev/level", values)
			served, alone := optedInNamespace(t, set), policyNamespace(t, "enabled", set)
			wantSamePod(t, "policy", createPod(t, served, newPod("web")), createPod(t, alone, newPod("web")))
		})
	}
	t.Run("not opted in", func(t *testing.T) {
		t.Parallel()
		wantNoLogger(t, createPod(t, plainNamespace(t, withLabel(injectLabel, "disabled")), newPod("web")))
	})
}

// TestPolicyGoldens checks that the API server accepts all policies in the golden files of the unit
// tests.
func TestPolicyGoldens(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../inject/policy/testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, name := range []string{"mutating", "validating"} {
		t.Run(name, func(t *testing.T) {
			if name == "mutating" {
				needsKubernetes(t, 36, servesMutating)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				_, objects, ok := strings.Cut(string(text), "-- "+name+".yaml --\n")
				if !ok {
					continue
				}
				objects, _, _ = strings.Cut(objects, "\n-- ")
				if _, err := env.RunKubectl(testContext(t), []byte(objects), "apply", "--dry-run=server", "-f", "-"); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		})
	}
}

// like gives a namespace the annotations of another.
func like(t *testing.T, name string) namespaceOption {
	t.Helper()
	other, err := env.Client.CoreV1().Namespaces().Get(testContext(t), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return func(ns *corev1.Namespace) { maps.Copy(ns.Annotations, other.Annotations) }
}

// wantSamePod compares two pods, apart from what the API server chooses for each pod.
func wantSamePod(t *testing.T, what string, want, got *corev1.Pod) {
	t.Helper()
	token := regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	text := func(pod *corev1.Pod) string {
		return strings.ReplaceAll(token.ReplaceAllString(podText(t, pod), "kube-api-access-ANY"), pod.Namespace, "NAMESPACE")
	}
	if diff := cmp.Diff(text(want), text(got)); diff != "" {
		t.Errorf("the pods differ (-without +by the %s):\n%s", what, diff)
	}
}

// policyNamespace makes a namespace that the webhook does not see but the injecting policies do.
func policyNamespace(t *testing.T, optIn string, options ...namespaceOption) string {
	t.Helper()
	return plainNamespace(t, append(options, withLabel(injectLabel, "disabled"), withLabel(mutatingLabel, optIn))...)
}

// runPolicy runs `pillion policy` and returns what it printed to stdout.
func runPolicy(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(testContext(t), env.binary, append([]string{"policy"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("pillion policy: %v\n%s", err, stderr.String())
	}
	return out
}

// installPolicies applies what `pillion policy` prints, with the label that namespaces opt in by
// replaced, and waits until the API server evaluates all of it.
func installPolicies(t *testing.T, label string, args ...string) {
	t.Helper()
	var objects []byte
	for doc := range bytes.SplitSeq(runPolicy(t, args...), []byte("\n---\n")) {
		objects = append(append(objects, relabelled(t, doc, label)...), "\n---\n"...)
	}
	if _, err := env.RunKubectl(testContext(t), objects, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := env.RunKubectl(cleanupContext(), objects, "delete", "--wait=false", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	if label == mutatingLabel {
		eventually(t, "the policies inject", func(ctx context.Context) error { return missingTemplates(ctx, t) })
	}
}

// relabelled changes the namespaces of a binding.
func relabelled(t *testing.T, doc []byte, label string) []byte {
	t.Helper()
	var object struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Spec       map[string]any    `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(doc, &object); err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	if !strings.HasSuffix(object.Kind, "Binding") {
		return doc
	}
	expressions := object.Spec["matchResources"].(map[string]any)["namespaceSelector"].(map[string]any)["matchExpressions"].([]any)
	first := expressions[0].(map[string]any)
	switch first["operator"] {
	case "In":
		first["key"] = label
	case "DoesNotExist":
		expressions[0] = map[string]any{"key": label, "operator": "In", "values": []any{podsOnly}}
	default:
		t.Fatalf("the binding selects namespaces by %v", first)
	}
	out, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// missingTemplates fails until every policy has injected into a pod that asks for all of them.
func missingTemplates(ctx context.Context, t *testing.T) error {
	t.Helper()
	for _, optIn := range []string{"enabled", podsOnly} {
		ns, err := env.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "policy-probe-", Labels: map[string]string{mutatingLabel: optIn, injectLabel: "disabled"},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if err := env.WaitForPods(ctx, ns.Name); err != nil {
			return err
		}
		for _, name := range policyTemplates() {
			probe := newPod("probe", requests(name), func(p *corev1.Pod) {
				p.Labels[injectLabel], p.Labels["accelerator"] = "enabled", "yes"
				for template, values := range libraryParams() {
					for param, value := range values {
						overrides(template, param, value)(p)
					}
				}
			})
			pod, err := env.Client.CoreV1().Pods(ns.Name).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err
			}
			if pod.Annotations[name+".pillion.dev/injected"] == "" {
				return fmt.Errorf("the policy of %s does not inject yet", name)
			}
		}
	}
	return nil
}
