// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const wouldGet = "shadow: with the namespace label pillion.dev/inject=enabled the pod would "

// shadowedNamespace returns when Pillion knows it: before that it says nothing.
func shadowedNamespace(t *testing.T) string {
	t.Helper()
	ns := plainNamespace(t, withLabel(injectLabel, "shadow"))
	eventually(t, "Pillion speaks", func(ctx context.Context) error {
		if warnings, err := tryPod(ctx, t, ns, newPod("probe")); err != nil || len(warnings) == 0 {
			return fmt.Errorf("it says nothing: %w", err)
		}
		return nil
	})
	return ns
}

// tryPod creates it as a dry run, and returns the warnings.
func tryPod(ctx context.Context, t *testing.T, ns string, pod *corev1.Pod) ([]string, error) {
	t.Helper()
	client, warnings := warnedClient(t)
	_, err := client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	warnings.mu.Lock()
	defer warnings.mu.Unlock()
	return slices.Clone(warnings.text), err
}

// TestShadow checks that in a namespace that is only shadowed, the author of a pod and readers of the
// audit log learn what would happen to it, while the pod stays unchanged. With the other label it is
// injected.
func TestShadow(t *testing.T) {
	t.Parallel()
	ns, plain := shadowedNamespace(t), plainNamespace(t)
	client, warnings := warnedClient(t)
	pod, err := client.CoreV1().Pods(ns).Create(testContext(t), newPod("web"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantSamePod(t, "shadow", createPod(t, plain, newPod("web")), pod)
	wantWarning(t, warnings, wouldGet+"get logger")
	event := creation(t, ns, "web")
	wantCalls(t, event)
	said := event.Foretold()
	if !strings.HasPrefix(said["logger"], "would be injected: revision ") || !strings.HasPrefix(said[finalVerdict], "would be allowed ") || len(event.Judgement()) > 0 {
		t.Errorf("the audit annotations are %v", event.Annotations)
	}
	optIn := func(p *corev1.Pod) { p.Labels[injectLabel] = "enabled" }
	wantNoLogger(t, createPod(t, ns, newPod("opts-in", optIn)))

	r := statusOf(t, 0, env.templates, ns)
	if n := r.Namespaces[0]; n.Pods != 2 || n.NotWanted != 2 || len(r.Outside) != 1 || r.Outside[0].Code != "shadow" {
		t.Errorf("the status is %+v", r)
	}
	wantShadowExplained(t, ns)

	labelNamespace(t, ns, map[string]any{injectLabel: "enabled"})
	eventually(t, "pods are injected", func(ctx context.Context) error {
		if warnings, err := tryPod(ctx, t, ns, newPod("probe")); err != nil || len(warnings) > 0 {
			return fmt.Errorf("warnings %q, %w", warnings, err)
		}
		return nil
	})
	wantLogger(t, createPod(t, ns, newPod("later")))
}

func wantShadowExplained(t *testing.T, ns string) {
	t.Helper()
	if _, err := env.Client.AppsV1().Deployments(ns).Create(testContext(t), newDeployment("none", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	args := []string{"--kubeconfig", env.Kubeconfig, "-n", ns, "deploy/none"}
	for _, path := range env.templates {
		args = append(args, "--templates", path)
	}
	r := explain(t, nil, args...).Reports[0]
	for _, template := range r.Templates {
		if template.Template == "logger" && template.Code != "not_opted_in" || template.Code == "injected" {
			t.Errorf("explained as %+v", template)
		}
	}
	if r.Called == nil || *r.Called || len(r.Patch) > 0 || r.Final.Verdict != allowed {
		t.Errorf("explained as %+v", r)
	}
}

// TestShadowForetells checks pods of every shape. Shadow reports what happens to the same pod in a
// namespace that opted in, including a denial.
func TestShadowForetells(t *testing.T) {
	t.Parallel()
	shadowed, enabled := shadowedNamespace(t), optedInNamespace(t)
	cases := append(shapes(),
		podCase{"conflict", takenContainer},
		podCase{"denied", func(p *corev1.Pod) {
			requests("guard")(p)
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "guard", Image: "registry.example/mine:1"})
		}},
		podCase{"more", requests("+proxy,echo")},
		podCase{"mistake", overrides("logger", "level", "loud")},
		podCase{"out", func(p *corev1.Pod) { p.Labels[injectLabel] = "disabled" }},
	)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pod := newPod(fmt.Sprint("pod-", i), c.edit)
			pod.Name, pod.GenerateName = fmt.Sprint("pod-", i), ""
			_, denial := tryPod(testContext(t), t, enabled, pod)
			warnings, err := tryPod(testContext(t), t, shadowed, pod)
			if apierrors.IsInvalid(denial) && apierrors.IsInvalid(err) {
				t.Skip("no API server takes it")
			}
			if err != nil {
				t.Fatal(err)
			}
			foretold := slices.Contains(warnings, wouldGet+"be denied")
			if foretold != (denial != nil) {
				t.Errorf("denied: %v; foretold: %q", denial, warnings)
			}
			came, said := creation(t, enabled, pod.Name), creation(t, shadowed, pod.Name).Foretold()
			for template, reason := range came.Reasons() {
				if got := said[template]; got != reason && got != "would be "+reason && !strings.HasPrefix(got, "present: ") {
					t.Errorf("%s: foretold is %q, and it came %q", template, got, reason)
				}
			}
			if got, want := said[finalVerdict], "would be "+came.Judgement()[finalVerdict]; !strings.HasPrefix(got, want) {
				t.Errorf("foretold is %q, and it came %q", got, want)
			}
		})
	}
}
