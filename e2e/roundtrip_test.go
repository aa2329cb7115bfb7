// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// roundTrip sends all templates of the project through the API server. What comes back compiles to the
// same revision. Templates of the same name take turns.
func (a *authors) roundTrip(t *testing.T) {
	turns, count := templateDocuments(t), 0
	for _, documents := range turns {
		count += len(documents)
		a.roundTripOf(t, documents)
	}
	t.Logf("%d templates in %d turns", count, len(turns))
	if count < 50 {
		t.Errorf("only %d templates", count)
	}
}

// templateDocuments returns the documents of all template files of the project by the template's name, in as few maps
// as possible.
func templateDocuments(t *testing.T) (turns []map[string]string) {
	t.Helper()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"templates/library/*.yaml", "templates/from/*/*.yaml", "templates/testdata/good/*.yaml", "examples/*/*.yaml", "e2e/testdata/templates/*.yaml", "e2e/demo/templates/*.yaml", "e2e/bench/heavy/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(revisionsOf(t, file)) == 0 {
				continue // it has no templates, or is a broken example
			}
			for doc := range strings.SplitSeq(string(text), "\n---\n") {
				var object unstructured.Unstructured
				if err := yaml.Unmarshal([]byte(doc), &object.Object); err != nil || !strings.HasSuffix(object.GetKind(), "SidecarTemplate") {
					continue
				}
				id := object.GetName()
				if namespace := object.GetNamespace(); namespace != "" {
					id = namespace + "/" + id
				}
				turn := slices.IndexFunc(turns, func(taken map[string]string) bool { return taken[id] == "" })
				if turn < 0 {
					turn, turns = len(turns), append(turns, map[string]string{})
				}
				turns[turn][id] = doc
			}
		}
	}
	return turns
}

// revisionsOf returns the revisions of the templates in a file, by NAME or NAMESPACE/NAME. There is none if
// the file has a problem.
func revisionsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), env.binary, "lint", file, "-o", "json").Output()
	var found struct {
		Templates []struct{ Template, Revision string }
	}
	if len(out) == 0 || json.Unmarshal(out, &found) != nil {
		t.Errorf("%s: %v", file, err)
	}
	all := map[string]string{}
	for _, of := range found.Templates {
		all[of.Template] = of.Revision
	}
	return all
}

// roundTripOf creates templates, and compares the revision of each with that of what kubectl prints of it.
func (a *authors) roundTripOf(t *testing.T, documents map[string]string) {
	t.Helper()
	for id := range documents {
		namespace, _, namespaced := strings.Cut(id, "/")
		if !namespaced {
			continue
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if _, err := a.Client.CoreV1().Namespaces().Create(testContext(t), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	sent := filepath.Join(t.TempDir(), "sent.yaml")
	all := strings.Join(slices.Collect(maps.Values(documents)), "\n---\n")
	if err := os.WriteFile(sent, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.RunKubectl(t.Context(), nil, "create", "--validate=strict", "-f", sent); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"json", "yaml"} {
		out, err := a.RunKubectl(t.Context(), nil, "get", "-f", sent, "-o", format)
		if err != nil {
			t.Fatal(err)
		}
		back := objectsOf(t, out)
		for id, document := range documents {
			want := revisionOf(t, id, []byte(document))
			if got := revisionOf(t, id, back[id]); want == "" || got != want {
				t.Errorf("%s is %q, and comes back as %s as %q", id, want, format, got)
			}
		}
	}
	if _, err := a.RunKubectl(t.Context(), nil, "delete", "-f", sent); err != nil {
		t.Fatal(err)
	}
}

// revisionOf returns the revision of one template.
func revisionOf(t *testing.T, id string, document []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "template.yaml")
	if err := os.WriteFile(file, document, 0o600); err != nil {
		t.Fatal(err)
	}
	return revisionsOf(t, file)[id]
}

// objectsOf returns the items of a List, or the only object, by NAME or NAMESPACE/NAME.
func objectsOf(t *testing.T, printed []byte) map[string][]byte {
	t.Helper()
	var one unstructured.Unstructured
	if err := yaml.Unmarshal(printed, &one.Object); err != nil {
		t.Fatal(err)
	}
	items := []unstructured.Unstructured{one}
	if one.IsList() {
		list, err := one.ToList()
		if err != nil {
			t.Fatal(err)
		}
		items = list.Items
	}
	objects := map[string][]byte{}
	for _, item := range items {
		text, err := item.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		id := item.GetName()
		if namespace := item.GetNamespace(); namespace != "" {
			id = namespace + "/" + id
		}
		objects[id] = text
	}
	return objects
}
