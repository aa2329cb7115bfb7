// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// rehearsal is a template that knows dry runs.
const rehearsal = "rehearsal"

// TestDryRunInTemplate checks that conditions and expressions can distinguish `kubectl create --dry-run=server`
// from a real creation, in both webhooks. The validating webhook denies neither pod.
func TestDryRunInTemplate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		dryRun bool
		label  string
		code   string
		args   []string // of the sidecar; nil if there is none
	}{
		{"real", false, "", "injected", []string{"--dry-run=false"}},
		{"dry-run", true, "", "condition_false", nil},
		{"real-with-label", false, "rehearsed", "injected", []string{"--dry-run=false"}},
		{"dry-run-with-label", true, "rehearsed", "injected", []string{"--dry-run=true"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t)
			object, err := json.Marshal(newPod(c.name, requests(rehearsal), func(p *corev1.Pod) {
				if c.label != "" {
					p.Labels[c.label] = "yes"
				}
			}))
			if err != nil {
				t.Fatal(err)
			}
			args := []string{"create", "-n", ns, "-o", "json", "-f", "-"}
			if c.dryRun {
				args = append(args, "--dry-run=server")
			}
			out, err := env.RunKubectl(testContext(t), object, args...)
			if err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{}
			if err := json.Unmarshal(out, pod); err != nil {
				t.Fatal(err)
			}
			switch sidecar := findContainer(pod, rehearsal); {
			case sidecar == nil && c.args != nil:
				t.Errorf("%s is not in %v", rehearsal, containerNames(pod.Spec.InitContainers))
			case sidecar != nil && !slices.Equal(sidecar.Args, c.args):
				t.Errorf("%s has the arguments %q, want %q", rehearsal, sidecar.Args, c.args)
			}
			event := creation(t, ns, c.name)
			wantReason(t, event, rehearsal, c.code)
			if verdict := event.Judgement()[finalVerdict]; !strings.HasPrefix(verdict, allowed) {
				t.Errorf("the verdict is %q", verdict)
			}
			wantExplainedDryRun(t, event, c.dryRun, c.code)
		})
	}
}

// wantExplainedDryRun checks that pillion explain gives the same decision for the review.
func wantExplainedDryRun(t *testing.T, event cluster.Event, dryRun bool, code string) {
	t.Helper()
	object, err := json.Marshal(event.Request())
	if err != nil {
		t.Fatal(err)
	}
	review, err := json.Marshal(map[string]any{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"request": map[string]any{
			"uid": "1", "operation": "CREATE", "namespace": event.ObjectRef.Namespace, "dryRun": dryRun,
			"resource": map[string]string{"version": "v1", "resource": "pods"}, "object": json.RawMessage(object),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-f", "-"}
	for _, path := range env.templates {
		args = append(args, "--templates", path)
	}
	for _, said := range explain(t, review, args...).Reports[0].Templates {
		if said.Template == rehearsal && said.Code != code {
			t.Errorf("explained as %s, and was %s", said.Code, code)
		}
	}
}
