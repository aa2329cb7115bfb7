// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// TestGenerated checks that the CustomResourceDefinitions are what "make generate" writes.
func TestGenerated(t *testing.T) {
	t.Parallel()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./generate", "-into", into)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"clustersidecartemplates.yaml", "sidecartemplates.yaml"} {
		got, err := os.ReadFile(filepath.Join(into, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(root, "manifests", "crds", name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s: run make generate:\n%s", name, diff)
		}
	}
}
