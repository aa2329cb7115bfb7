// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestNamespaceMistakes checks which labels and annotations of a namespace are said to mean nothing.
func TestNamespaceMistakes(t *testing.T) {
	t.Parallel()
	injector := parsed(t, `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: agent}, spec: {params: [{name: level, type: string, default: info, overridableBy: [Pod, Namespace]}], pod: {metadata: {annotations: {a: b}}}}}`)
	for key, want := range map[string]struct{ label, annotation string }{
		"pillion.dev/inject":      {"", "the annotation pillion.dev/inject of the namespace means nothing; set it as a label"},
		"pillion.dev/rollout":     {"", "the annotation pillion.dev/rollout of the namespace means nothing; set it as a label"},
		"pillion.dev/injct":       {`the label pillion.dev/injct of the namespace means nothing; did you mean pillion.dev/inject?`, `the annotation pillion.dev/injct of the namespace means nothing; did you mean pillion.dev/inject?`},
		"pilion.dev/inject":       {"the label pilion.dev/inject of the namespace means nothing to Pillion; did you mean pillion.dev/inject?", "the annotation pilion.dev/inject of the namespace means nothing to Pillion; did you mean the label pillion.dev/inject?"},
		"pillion.io/inject":       {"the label pillion.io/inject of the namespace means nothing to Pillion; did you mean pillion.dev/inject?", "the annotation pillion.io/inject of the namespace means nothing to Pillion; did you mean the label pillion.dev/inject?"},
		"agent.pillion.dev/level": {"the label agent.pillion.dev/level of the namespace sets no parameter; set it as an annotation", ""},
		"agent.pilion.dev/level":  {"the label agent.pilion.dev/level of the namespace means nothing to Pillion; did you mean the annotation agent.pillion.dev/level?", "the annotation agent.pilion.dev/level of the namespace means nothing to Pillion; did you mean agent.pillion.dev/level?"},
		"agent.pilion.dev/other":  {},
		"million.dev/owner":       {},
		"pillion.dev/exempt":      {"the label pillion.dev/exempt of the namespace means nothing; set it as a label of pods", "the annotation pillion.dev/exempt of the namespace means nothing; set it as a label of pods"},
		"pilion.dev/rollout":      {"the label pilion.dev/rollout of the namespace means nothing to Pillion; did you mean pillion.dev/rollout?", "the annotation pilion.dev/rollout of the namespace means nothing to Pillion; did you mean the label pillion.dev/rollout?"},
		"pavilion.io/inject":      {},
		"papillon.io/inject":      {},
		"linkerd.io/inject":       {},
		"inject":                  {},
		"/":                       {},
		".dev/inject":             {},
	} {
		for _, of := range []struct {
			ns   request.Namespace
			want string
		}{{request.Namespace{Labels: map[string]string{key: "enabled"}}, want.label}, {request.Namespace{Annotations: map[string]string{key: "enabled"}}, want.annotation}} {
			got := injector.NamespaceMistakes(of.ns)
			if wanted := slices.DeleteFunc([]string{of.want}, func(s string) bool { return s == "" }); !slices.Equal(got, wanted) {
				t.Errorf("%s: %q, want %q", key, got, wanted)
			}
		}
	}
}

// TestNamespaceWarnings checks which values of Pillion's labels of a namespace are said to mean nothing, and that nothing is said about
// a namespace that cannot opt in.
func TestNamespaceWarnings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, key, value, want string }{
		{"shop", inject.LabelInject, "enabled", ""},
		{"shop", inject.LabelInject, "shadow", ""},
		{"shop", inject.LabelInject, "true", "the label pillion.dev/inject: true of the namespace means nothing; the value must be enabled, disabled or shadow"},
		{"shop", inject.LabelInject, "", "the label pillion.dev/inject of the namespace has no value; the value must be enabled, disabled or shadow"},
		{"shop", inject.LabelRollout, "disabled", ""},
		{"shop", inject.LabelRollout, "shadow", "the label pillion.dev/rollout: shadow of the namespace means nothing; the value must be enabled or disabled"},
		{"shop", "pillion.dev/injct", "enabled", "the label pillion.dev/injct of the namespace means nothing; did you mean pillion.dev/inject?"},
		{"istio-system", inject.LabelInject, "true", ""},
		{"kube-system", "pillion.dev/injct", "enabled", ""},
	} {
		injector := inject.New(templates.NewSet(nil), "istio-system")
		got := strings.Join(injector.NamespaceWarnings(request.Namespace{Name: c.name, Known: true, Labels: map[string]string{c.key: c.value}}), "\n")
		if got != c.want {
			t.Errorf("%s with %s: %q: %q, want %q", c.name, c.key, c.value, got, c.want)
		}
	}
}

// TestMisplacedInForeignKinds checks that annotations in the metadata of a workload are found in kinds that Pillion does not know.
func TestMisplacedInForeignKinds(t *testing.T) {
	t.Parallel()
	injector := parsed(t, `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: agent}, spec: {params: [{name: level, type: string, default: info}], pod: {metadata: {annotations: {a: b}}}}}`)
	for _, of := range [][2]string{{"argoproj.io/v1alpha1", "Rollout"}, {"apps.kruise.io/v1alpha1", "CloneSet"}, {"serving.knative.dev/v1", "Service"}} {
		object, err := jsontree.Parse([]byte(`{"metadata":{"name":"web","annotations":{"agent.pillion.dev/level":"debug"}},"spec":{"template":{"spec":{"containers":[{"name":"app","image":"a"}]}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		found := injector.Misplaced(of[0], of[1], object)
		if len(found) != 1 || found[0].Code != inject.CodeMisplaced || found[0].Message != of[1]+"/web has agent.pillion.dev/level in metadata; Pillion reads spec.template.metadata" {
			t.Errorf("%s: %+v", of[1], found)
		}
	}
}
