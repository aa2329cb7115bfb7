// SPDX-License-Identifier: Apache-2.0

package workloads

import (
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// TestPodIn checks where objects of each kind have their pod, and that the group of a kind counts.
func TestPodIn(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"v1 Pod": "", "v1 PodTemplate": "template", "v1 ReplicationController": "spec.template",
		"apps/v1 Deployment": "spec.template", "apps/v1 ReplicaSet": "spec.template", "apps/v1 StatefulSet": "spec.template", "apps/v1 DaemonSet": "spec.template",
		"extensions/v1beta1 Deployment": "spec.template", "extensions/v1beta1 ReplicaSet": "spec.template", "extensions/v1beta1 DaemonSet": "spec.template",
		"batch/v1 Job": "spec.template", "batch/v1beta1 CronJob": "spec.jobTemplate.spec.template",
		"apps/v1 Pod": "none", "v1 Deployment": "none", "apps/v1 Job": "none", "argoproj.io/v1alpha1 Rollout": "none", "v1 Service": "none", "apps Deployment": "none",
	} {
		apiVersion, name, _ := strings.Cut(kind, " ")
		path, ok := PodIn(apiVersion, name)
		if got := strings.Join(path, "."); ok != (want != "none") || ok && got != want {
			t.Errorf("%s: %s %v, want %s", kind, got, ok, want)
		}
	}
}

// TestPodTemplates checks which parts of an object are pod templates, and how users write their paths.
func TestPodTemplates(t *testing.T) {
	t.Parallel()
	const pod = `{"spec":{"containers":[{"name":"a"},{"image":"b"}]}}`
	for name, c := range map[string]struct{ apiVersion, kind, object, want string }{
		"a known kind":             {"apps/v1", "Deployment", `{"spec":{"template":` + pod + `,"other":` + pod + `}}`, "spec.template"},
		"a known kind without one": {"apps/v1", "Deployment", `{"spec":{}}`, "spec.template (nil)"},
		"another kind":             {"x.example/v1", "Other", `{"spec":{"a":{"b":` + pod + `}}}`, "spec.a.b"},
		"several":                  {"x.example/v1", "Other", `{"spec":{"jobs":[{"template":` + pod + `},{"n":1},{"template":` + pod + `}]}}`, "spec.jobs[0].template spec.jobs[2].template"},
		"none inside of another":   {"x.example/v1", "Other", `{"a":{"spec":{"containers":[{"name":"a"}],"inner":` + pod + `}}}`, "a"},
		"a container without name": {"x.example/v1", "Other", `{"a":{"spec":{"containers":[{"name":"a"},{"args":[]}]}}}`, ""},
		"a pattern":                {"x.example/v1", "Other", `{"a":{"spec":{"containers":[{"name":"*"}]}}}`, ""},
		"a pattern of an image":    {"x.example/v1", "Other", `{"a":{"spec":{"containers":[{"name":"a","image":"?:1"}]}}}`, ""},
		"no containers":            {"x.example/v1", "Other", `{"a":{"spec":{"containers":[]}}}`, ""},
		"no kind":                  {"", "", `{"a":` + pod + `}`, ""},
		"a template of Pillion":    {"pillion.dev/v1alpha1", "ClusterSidecarTemplate", `{"a":` + pod + `}`, ""},
		"a policy":                 {"x.example/v1", "SomePolicy", `{"a":` + pod + `}`, ""},
		"a constraint":             {"constraints.gatekeeper.sh/v1", "Allowed", `{"a":` + pod + `}`, ""},
	} {
		object, err := jsontree.Parse([]byte(c.object))
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, found := range PodTemplates(c.apiVersion, c.kind, object) {
			where := found.Where()
			switch {
			case found.Node == nil:
				where += " (nil)"
			case object.Kind() == jsontree.Object && found.Node.At("spec", "containers") == nil:
				t.Errorf("%s: %s is no pod template", name, found.Node)
			}
			all = append(all, where)
		}
		if got := strings.Join(all, " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestClaims checks the names of the volumes that a StatefulSet makes.
func TestClaims(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{"spec":{"volumeClaimTemplates":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}}`: {"a", "b"},
		`{"spec":{}}`: nil, `{}`: nil,
	} {
		object, err := jsontree.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := Claims(object); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
