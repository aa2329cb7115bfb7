// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/programs"
)

// TestUpgrade installs the previous release, from git, and upgrades to this working tree while pods are created. None of
// them may fail or stay without its sidecar.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	tree, tag := previousRelease(t)
	old := filepath.Join(t.TempDir(), "pillion")
	if err := programs.Build(t.Context(), tree, "./cmd/pillion", nil, "-o", old); err != nil {
		t.Fatal(err)
	}
	for _, overlay := range []string{"cert-manager", "self-signed"} {
		t.Run(overlay, func(t *testing.T) {
			i := &installed{Cluster: newCluster(t), namespace: "shop", binary: old}
			if overlay == "cert-manager" {
				if _, err := i.StartCertManager(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			before := filepath.Join(tree, "manifests", "overlays", overlay)
			i.kubectl(t, "", "apply", "--server-side", "-k", before)
			i.run(t)
			i.waitForInjection(t)
			i.upgrade(t, overlay, tag)
		})
	}
}

// upgrade applies the overlay of this working tree, and replaces one replica after the other.
func (i *installed) upgrade(t *testing.T, overlay, from string) {
	t.Helper()
	fewestCreates, _ := rotationSize()
	l := i.startLoad(t)
	l.more(t, fewestCreates/4)
	i.apply(t, overlay)
	replicas, err := i.Update(t.Context(), i.replicas, env.binary)
	if err != nil {
		t.Fatal(err)
	}
	i.replicas = replicas
	l.more(t, fewestCreates/4)
	l.stop()
	t.Logf("%d pods created during the upgrade from %s", l.created.Load(), from)
	for _, f := range l.failures[:min(len(l.failures), 10)] {
		t.Error(f.err)
	}
	if len(l.failures) > 10 {
		t.Errorf("and %d more", len(l.failures)-10)
	}
}

// previousRelease returns the files of the newest release before HEAD, and its tag.
func previousRelease(t *testing.T) (tree, tag string) {
	t.Helper()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	if shallow, err := git("rev-parse", "--is-shallow-repository"); err != nil || shallow != "false" {
		t.Skip("the history of the repository is not there, so earlier releases are unknown")
	}
	tag, err = git("describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^")
	if err != nil {
		t.Skip("there is no earlier release")
	}
	tree = t.TempDir()
	archive := filepath.Join(t.TempDir(), "release.tar")
	if _, err := git("archive", "--output="+archive, tag); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-x", "-f", archive, "-C", tree).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return tree, tag
}
