// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
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
// same revision.
func (a *authors) roundTrip(t *testing.T) {
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, pattern := range []string{"templates/library/*.yaml", "templates/from/*/*.yaml", "templates/testdata/good/*.yaml", "examples/*/*.yaml", "e2e/testdata/templates/*.yaml", "e2e/demo/templates/*.yaml", "e2e/bench/heavy/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			revisions := revisionsOf(t, file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for doc := range strings.SplitSeq(string(text), "\n---\n") {
				var object unstructured.Unstructured
				if err := yaml.Unmarshal([]byte(doc), &object.Object); err != nil || !strings.HasSuffix(object.GetKind(), "SidecarTemplate") || len(revisions) == 0 {
					continue // it is no template, or a broken example
				}
				count++
				a.roundTripOf(t, file, doc, &object, revisions)
			}
		}
	}
	t.Logf("%d templates", count)
	if count < 50 {
		t.Errorf("only %d templates", count)
	}
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

func (a *authors) roundTripOf(t *testing.T, file, doc string, object *unstructured.Unstructured, want map[string]string) {
	t.Helper()
	kind, id := "cst", object.GetName()
	var in []string
	if namespace := object.GetNamespace(); namespace != "" {
		kind, id, in = "sct", namespace+"/"+id, []string{"-n", namespace}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if _, err := a.Client.CoreV1().Namespaces().Create(testContext(t), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if _, err := a.RunKubectl(testContext(t), []byte(doc), "create", "--validate=strict", "-f", "-"); err != nil {
		t.Errorf("%s: %v", file, err)
		return
	}
	for _, format := range []string{"json", "yaml"} {
		out, err := a.RunKubectl(testContext(t), nil, slices.Concat([]string{"get", kind, object.GetName(), "-o", format}, in)...)
		if err != nil {
			t.Error(err)
			continue
		}
		back := filepath.Join(t.TempDir(), "back."+format)
		if err := os.WriteFile(back, out, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := revisionsOf(t, back); want[id] == "" || got[id] != want[id] {
			t.Errorf("%s: %s is %q, and comes back as %s as %q", file, id, want[id], format, got[id])
		}
	}
	if _, err := a.RunKubectl(testContext(t), nil, slices.Concat([]string{"delete", kind, object.GetName(), "--wait=false"}, in)...); err != nil {
		t.Error(err)
	}
}
