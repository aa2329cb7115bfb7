// SPDX-License-Identifier: Apache-2.0

package main

import (
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// TestFlags checks that binaries are built with the flags of the Dockerfile.
func TestFlags(t *testing.T) {
	t.Parallel()
	flags := strings.Join(goBuild(), " ")
	command := regexp.MustCompile(`CGO_ENABLED=0 .*build (-.*) -o `).FindStringSubmatch(read(t, "Dockerfile"))
	if command == nil {
		t.Fatal("the Dockerfile builds nothing")
	}
	if want := strings.ReplaceAll(command[1], "'", ""); !strings.Contains(flags, want) {
		t.Errorf("the Dockerfile has the flags %s, and a release %s", want, flags)
	}
}

// small is a repository with what a release reads before it compiles.
func small(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	base := map[string]string{
		"CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n* New: a [page](manifests/docs/x.md#y) and [a site](https://a.example).\n",
		"manifests/overlays/plain/kustomization.yaml": "resources: [pod.yaml]\nimages: [{name: " + imageName + ", newTag: " + version + "}]\n",
		"manifests/overlays/plain/pod.yaml":           "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: " + imageName + "}]}\n",
	}
	for _, set := range []map[string]string{base, files} {
		for name, content := range set {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	commitAll(t, dir)
	return dir
}

func commitAll(t *testing.T, dir string) {
	t.Helper()
	git(t, dir, "init", "-q", ".")
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "all")
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b.example"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE="+commitTime, "GIT_AUTHOR_DATE="+commitTime)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestErrors checks what a release needs before anything is compiled.
func TestErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version string
		files   map[string]string
		change  func(t *testing.T, repository string)
		want    string
	}{
		"no version":    {version: "1.0", want: `"1.0" is no version; write one as v0.1.0`},
		"short version": {version: "v1.0", want: `"v1.0" is no version; write one as v0.1.0`},
		"another tag":   {version: "v0.2.0", want: "the overlay plain installs another image than " + imageName + ":v0.2.0; set newTag in manifests/base/kustomization.yaml"},
		"no image":      {version: version, files: map[string]string{"manifests/overlays/plain/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"}, want: "installs another image"},
		"no notes":      {version: version, files: map[string]string{"CHANGELOG.md": "# Changelog\n"}, want: "CHANGELOG.md has no section Unreleased; add it"},
		"unreleased":    {version: version, change: func(t *testing.T, dir string) { git(t, dir, "tag", version) }, want: `CHANGELOG.md has no section "## v0.1.0"; rename Unreleased and move the tag`},
		"tag on another": {version: version, change: func(t *testing.T, dir string) {
			git(t, dir, "tag", version)
			git(t, dir, "commit", "-q", "--allow-empty", "-m", "b")
		}, want: "; check out the tag"},
		"chart has error": {version: version, files: map[string]string{"manifests/chart/Chart.yaml": "apiVersion: v2\n"}, want: "chart.metadata.name is required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repository := small(t, c.files)
			if c.change != nil {
				c.change(t, repository)
			}
			r := newRelease(t, repository)
			r.version = c.version
			if err := r.build(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it fails with %v, want %s", err, c.want)
			}
		})
	}
}

// checkedOut returns a release of a small repository, before anything is built.
func checkedOut(t *testing.T, files map[string]string) *release {
	t.Helper()
	r := newRelease(t, small(t, files))
	err := os.Mkdir(r.out, 0o700)
	if err == nil {
		r.source, err = checkOut(t.Context(), r.repository, version, t.TempDir())
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestNotes checks that the notes are one section, and that their links work outside the repository.
func TestNotes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ changelog, want string }{
		"unreleased": {want: "* New: a [page](" + home + "/blob/v0.1.0/manifests/docs/x.md#y) and [a site](https://a.example).\n"},
		"released":   {"# Changelog\n\n## Unreleased\n\n* Later\n\n## v0.1.0\n\n### Upgrade\n\n* Now\n\n## v0.0.1\n\n* Before\n", "### Upgrade\n\n* Now\n"},
	} {
		files := map[string]string{}
		if c.changelog != "" {
			files["CHANGELOG.md"] = c.changelog
		}
		r := checkedOut(t, files)
		if err := r.writeNotes(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(r.out, notesFile)); err != nil || string(got) != c.want {
			t.Errorf("%s: %v, %q, want %q", name, err, got, c.want)
		}
	}
}

// TestChart checks that a chart gets the version of the release and the time of the commit, and that
// Helm reads the archive. The chart has its own tests of what it contains.
func TestChart(t *testing.T) {
	t.Parallel()
	r := checkedOut(t, map[string]string{
		"manifests/chart/Chart.yaml":         "apiVersion: v2\nname: pillion\nversion: 0.0.0\nappVersion: v0.0.0\n",
		"manifests/chart/values.yaml":        "replicas: 2\n",
		"manifests/chart/values.schema.json": "{}\n",
		"manifests/chart/templates/a.yaml":   "a: {{ .Values.replicas }}\n",
		"manifests/chart/.helmignore":        "ignored.md\n",
		"manifests/chart/ignored.md":         "# Ignored\n",
	})
	if err := r.writeChart(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(r.out, "pillion-0.1.0.tgz")
	chart, err := loader.LoadFile(path)
	if err != nil || chart.Metadata.Version != "0.1.0" || chart.Metadata.AppVersion != "v0.1.0" ||
		chart.Metadata.Annotations["artifacthub.io/images"] != "- name: pillion\n  image: "+r.image()+"\n" || chart.Metadata.Annotations["artifacthub.io/prerelease"] != "false" {
		t.Fatalf("%v: %+v", err, chart)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range untar(t, z) {
		names = append(names, strings.TrimSuffix(name, " 644 "+r.time.Format(time.RFC3339)))
	}
	slices.Sort(names)
	if want := []string{"pillion/.helmignore", "pillion/Chart.yaml", "pillion/templates/a.yaml", "pillion/values.schema.json", "pillion/values.yaml"}; !slices.Equal(names, want) {
		t.Errorf("the archive has %q, want %q", names, want)
	}
}
