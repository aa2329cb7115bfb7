// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// setOf has templates with these IDs, each with its order after "=".
func setOf(t *testing.T, ids ...string) (*templates.Set, problem.Problems) {
	t.Helper()
	var text strings.Builder
	for _, id := range ids {
		id, order, _ := strings.Cut(id, "=")
		kind, metadata := "ClusterSidecarTemplate", "name: "+id
		if namespace, name, ok := strings.Cut(id, "/"); ok {
			kind, metadata = "SidecarTemplate", fmt.Sprintf("name: %s, namespace: %q", name, namespace)
		}
		fmt.Fprintf(&text, "---\n{apiVersion: pillion.dev/v1alpha1, kind: %s, metadata: {%s}, spec: {order: %s, pod: {metadata: {annotations: {a: b}}}}}\n", kind, metadata, cmp.Or(order, "0"))
	}
	return templates.CompileValid(templates.File{Path: "set.yaml", Data: []byte(text.String())})
}

func idsOf(set *templates.Set) string {
	var ids []string
	for _, t := range set.Templates {
		ids = append(ids, t.ID())
	}
	return strings.Join(ids, " ")
}

// TestSetFor checks which templates the pods of a namespace get, and that a template of the cluster takes precedence over one of a
// namespace with the same name.
func TestSetFor(t *testing.T) {
	t.Parallel()
	set, problems := setOf(t, "y/d", "x/c=5", "x/a=9", "b=7", "a=8", "y/a", "xx/e")
	if len(problems) != 2 || !strings.Contains(problems.Error(), "the ClusterSidecarTemplate of this name takes precedence (set.yaml:") {
		t.Errorf("the problems are %v", problems)
	}
	// Those of the cluster come first, whatever their order.
	if got := idsOf(set); got != "b a x/c xx/e y/d" {
		t.Errorf("the set is %s", got)
	}
	if got := strings.Join(set.Namespaces(), " "); got != "x xx y" {
		t.Errorf("the namespaces are %s", got)
	}
	for namespace, want := range map[string]string{"": "b a", "x": "b a x/c", "xx": "b a xx/e", "y": "b a y/d", "z": "b a"} {
		view := set.For(namespace)
		if got := idsOf(view); got != want || len(view.Namespaces()) != 0 {
			t.Errorf("%q sees %s, and the namespaces %v", namespace, got, view.Namespaces())
		}
		if same := view.Revision == set.OfCluster().Revision; same != (want == "b a") {
			t.Errorf("%q has the revision of the cluster: %t", namespace, same)
		}
	}
	// Two namespaces may use the same name.
	twins, problems := setOf(t, "x/a", "y/a")
	if idsOf(twins) != "x/a y/a" || len(problems) > 0 {
		t.Errorf("%s: %v", idsOf(twins), problems)
	}
	if twins.For("x").Revision == twins.For("y").Revision {
		t.Error("the sets of two namespaces have the same revision")
	}
}

// TestRevisionOfSpec checks that only the spec decides about the revision, so that an object has the
// revision of its file.
func TestRevisionOfSpec(t *testing.T) {
	t.Parallel()
	revision := func(text string) string {
		found, problems := templates.Parse("t.yaml", []byte(text))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return found[0].Revision
	}
	const spec = "spec: {pod: {metadata: {annotations: {a: b}}}}\n"
	file := revision("apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: a}\n" + spec)
	object := revision("apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: a, uid: x, annotations: {b: c}}\nstatus: {revision: x}\n" + spec)
	other := revision("apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: a}\n" + strings.Replace(spec, "b}", "c}", 1))
	if file != object || file == other {
		t.Errorf("the file has %s, the object %s, another spec %s", file, object, other)
	}
}
