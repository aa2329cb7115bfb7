// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPolicyChecks checks that the API server denies pods without a required template, without any
// webhook.
func TestPolicyChecks(t *testing.T) {
	t.Parallel()
	installPolicies(t, validatingLabel, "--templates", "testdata/policy")
	probes := checkedNamespace(t)
	eventually(t, "the policies check", func(ctx context.Context) error {
		_, err := env.Client.CoreV1().Pods(probes).Create(ctx, newPod("web"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("a pod without the sidecar is allowed")
		}
		return nil
	})
	for _, c := range checkCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := checkedNamespace(t, c.namespace...)
			_, err := env.Client.CoreV1().Pods(ns).Create(testContext(t), newPod("web", c.edits...), metav1.CreateOptions{})
			wantDenied(t, err, c.denied)
		})
	}
	t.Run("no warnings of the type checker", func(t *testing.T) {
		needsControllerManager(t, checksTypes)
		for _, template := range []string{"sentry", "greeter"} {
			eventually(t, template, func(ctx context.Context) error { return typeWarnings(ctx, "pillion-"+template) })
		}
	})
	t.Run("Warn", warnedByPolicy)
	t.Run("Deployment", deniedByPolicy)
	t.Run("agrees with the webhook", policyAgrees)
	t.Run("pod opts in", func(t *testing.T) {
		t.Parallel()
		ns := checkedNamespace(t, withLabel(validatingLabel, podsOnly))
		createPod(t, ns, newPod("quiet"))
		_, err := env.Client.CoreV1().Pods(ns).Create(testContext(t), newPod("web", func(p *corev1.Pod) { p.Labels[injectLabel] = "enabled" }), metav1.CreateOptions{})
		wantDenied(t, err, "this pod has no init container sentry")
	})
	t.Run("another namespace", func(t *testing.T) {
		t.Parallel()
		createPod(t, plainNamespace(t), newPod("web"))
	})
	t.Run("later requests", func(t *testing.T) {
		t.Parallel()
		ns := checkedNamespace(t)
		pod := createPod(t, ns, newPod("web", sentry("")))
		pod.Labels["changed"] = "yes"
		if _, err := env.Client.CoreV1().Pods(ns).Update(testContext(t), pod, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	})
}

type checkCase struct {
	name      string
	namespace []namespaceOption
	edits     []func(*corev1.Pod)
	denied    string // a part of the message, or "" if the pod is allowed
}

func checkCases() []checkCase {
	const version, tier, none = "sentry.pillion.dev/version", "sentry.pillion.dev/tier", "this pod has no init container sentry"
	edits := func(all ...func(*corev1.Pod)) []func(*corev1.Pod) { return all }
	return []checkCase{
		{"there", nil, edits(sentry("")), ""},
		{"absent", nil, nil, none + " in spec.initContainers (image registry.example/sentry:2.1)."},
		{"no init containers at all", nil, edits(func(p *corev1.Pod) { p.Spec.InitContainers = nil }), none},
		{"wrong list", nil, edits(func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "sentry", Image: "registry.example/sentry:2.1"})
		}), "the container sentry is in spec.containers, not in spec.initContainers. Move it there"},
		{"no sidecar", nil, edits(sentry(""), func(p *corev1.Pod) { p.Spec.InitContainers[0].RestartPolicy = nil }), "the init container sentry has no restartPolicy: Always"},
		{"another image", nil, edits(sentry("0.1")), "the init container sentry has another image: registry.example/sentry:0.1, not registry.example/sentry:2.1."},
		{"the namespace's image", []namespaceOption{withAnnotation(version, "3.0")}, edits(sentry("3.0")), ""},
		{"not the namespace's image", []namespaceOption{withAnnotation(version, "3.0")}, edits(sentry("")), "not registry.example/sentry:3.0."},
		{"the namespace's value is not allowed", []namespaceOption{withAnnotation(version, "latest")}, edits(sentry("")), `parameter version is not allowed: "latest". Set the namespace's annotation ` + version},
		{"the pod may not choose the image", nil, edits(sentry("0.1"), overrides("sentry", "version", "0.1")), "the pod's annotation " + version + " sets a parameter that a pod may not set"},
		{"the pod's value is not allowed", nil, edits(sentry(""), overrides("sentry", "tier", "none")), `parameter tier is not allowed: "none". Set the annotation ` + tier + " to one of web, batch."},
		{"opted out by label", nil, edits(func(p *corev1.Pod) { p.Labels[injectLabel] = "disabled" }), none},
		{"opted out by name", nil, edits(requests("-sentry")), none},
		{"only its record", nil, edits(overrides("sentry", "injected", "000000000000")), none},
		{"own container with another image", nil, edits(sentry("0.1"), overrides("sentry", "customize", "true")), "has another image"},
		{"condition false", nil, edits(func(p *corev1.Pod) { p.Labels["tier"] = "batch" }), ""},
		{"condition false by parameter", nil, edits(overrides("sentry", "tier", "batch")), ""},
		{"no labels and annotations", nil, edits(func(p *corev1.Pod) { p.Labels, p.Annotations = nil, nil }), none},
		{"host network", nil, edits(func(p *corev1.Pod) { p.Spec.HostNetwork = true }), ""},
		{"Windows", nil, edits(func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }), ""},
	}
}

// sentry gives a pod the container that testdata/policy/sentry.yaml requires.
func sentry(version string) func(*corev1.Pod) {
	if version == "" {
		version = "2.1"
	}
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append([]corev1.Container{{
			Name: "sentry", Image: "registry.example/sentry:" + version, RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		}}, p.Spec.InitContainers...)
	}
}

// checkedNamespace makes a namespace that the policies see and the webhook does not.
func checkedNamespace(t *testing.T, options ...namespaceOption) string {
	t.Helper()
	return plainNamespace(t, append([]namespaceOption{withLabel(injectLabel, "disabled"), withLabel(validatingLabel, "enabled")}, options...)...)
}

func wantDenied(t *testing.T, err error, part string) {
	t.Helper()
	switch {
	case part == "" && err != nil:
		t.Errorf("denied: %v", err)
	case part == "":
	case err == nil:
		t.Errorf("allowed; want it denied with %q", part)
	case !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), part):
		t.Errorf("denied with\n%v\nwant\n%s", err, part)
	}
}

// typeWarnings fails while Kubernetes' own check of the policy's expressions, by the schema of pods, is
// not done, or has found something.
func typeWarnings(ctx context.Context, policy string) error {
	found, err := env.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, policy, metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case found.Status.ObservedGeneration != found.Generation || found.Status.TypeChecking == nil:
		return fmt.Errorf("%s: its types are not checked yet", policy)
	case len(found.Status.TypeChecking.ExpressionWarnings) > 0:
		warnings, _ := json.MarshalIndent(found.Status.TypeChecking.ExpressionWarnings, "", "  ")
		return fmt.Errorf("%s: %s", policy, warnings)
	}
	return nil
}

func warnedByPolicy(t *testing.T) {
	t.Parallel()
	ns := checkedNamespace(t)
	client, warnings := warnedClient(t)
	_, err := client.CoreV1().Pods(ns).Create(testContext(t), newPod("web", sentry(""), func(p *corev1.Pod) { p.Labels["greets"] = "yes" }), metav1.CreateOptions{})
	wantDenied(t, err, "")
	wantWarning(t, warnings, "Pillion's template greeter is required here, but this pod has no container greeter in spec.containers")
}

// deniedByPolicy checks that the user who applied the Deployment finds the reason in an event.
func deniedByPolicy(t *testing.T) {
	t.Parallel()
	ns, ctx := checkedNamespace(t), testContext(t)
	_, err := env.Client.AppsV1().Deployments(ns).Create(ctx, &appsv1.Deployment{
		ObjectMeta: workloadMeta(), Spec: appsv1.DeploymentSpec{Selector: webSelector(), Template: podTemplate()},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "Pillion's template sentry is required here, but this pod has no init container sentry in spec.initContainers (image registry.example/sentry:2.1)."
	eventually(t, "the event of the ReplicaSet", func(ctx context.Context) error {
		events, err := env.Client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreate,involvedObject.kind=ReplicaSet"})
		if err != nil {
			return err
		}
		for i := range events.Items {
			if strings.Contains(events.Items[i].Message, want) {
				t.Log(events.Items[i].Message)
				return nil
			}
		}
		return fmt.Errorf("%d events, and none with %q", len(events.Items), want)
	})
}
