// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"sigs.k8s.io/yaml"
)

const (
	version    = "v0.1.0"
	commitTime = "2026-01-02T03:04:05Z"
)

var all = flag.Bool("all", false, "build for all platforms; this takes some minutes if the build cache is empty")

// TestReproducible builds a release twice, into two folders and from two clones, and compares every
// file. It builds for one platform, or with -all for all. Both builds use Go's cache, so they compare
// what the linker and this program write; a build with an empty GOCACHE compares the compiler too.
func TestReproducible(t *testing.T) {
	t.Parallel()
	repository := commitWorkingTree(t)
	first, second := newRelease(t, repository), newRelease(t, repository)
	if err := errors.Join(first.build(t.Context()), second.build(t.Context())); err != nil {
		t.Fatal(err)
	}
	want, got := digests(t, first.out), digests(t, second.out)
	if !maps.Equal(want, got) {
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if want[name] != got[name] {
				t.Errorf("%s differs: %s and %s", name, want[name], got[name])
			}
		}
		t.Errorf("the first has %d files, the second %d", len(want), len(got))
	}
	for _, name := range []string{"install-cert-manager.yaml", "install-self-signed.yaml", "krew.yaml", "notes.txt", "image.txt", "checksums.txt"} {
		t.Logf("%s  %s", want[name], name)
		if want[name] == "" {
			t.Errorf("there is no %s", name)
		}
	}
	t.Run("version", first.reportsVersion)
	t.Run("archives", first.hasArchives)
	t.Run("image", first.hasImage)
	t.Run("checksums", first.hasChecksums)
	t.Run("bill", first.hasBills)
	t.Run("krew", first.installs)
}

// commitWorkingTree copies the files of this repository, committed or not, into a repository of its own
// with one commit.
func commitWorkingTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	// What is deleted is listed too, so tar would fail.
	copied := "cd ../.. && for f in $(git ls-files --cached --others --exclude-standard); do if [ -e \"$f\" ]; then echo \"$f\"; fi; done | tar -c -T - -f - | tar -x -C " + dir
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", copied).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	commitAll(t, dir)
	return dir
}

func syft(t *testing.T) []string {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	module := regexp.MustCompile(`(?m)^SYFT .* run (\S+)$`).FindSubmatch(makefile)
	if module == nil {
		t.Fatal("the Makefile has no SYFT")
	}
	return []string{"go", "run", string(module[1])}
}

func newRelease(t *testing.T, repository string) *release {
	t.Helper()
	r := &release{version: version, repository: repository, out: filepath.Join(t.TempDir(), "dist"), log: t.Logf}
	if err := lacksNode(); err != nil {
		r.noPage = true
		t.Logf("this test builds the release without the playground: %v", err)
	}
	r.syft, r.platforms = syft(t), []platform{{"linux", runtime.GOARCH}} // the image is of Linux
	if *all {
		r.platforms = platforms()
	}
	return r
}

// digests returns the SHA-256 sum of each file below a folder.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, relErr := filepath.Rel(dir, path)
		sums[filepath.ToSlash(name)] = fmt.Sprintf("%x", sha256.Sum256(content))
		return errors.Join(err, relErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// files reads an archive.
func (r *release) files(t *testing.T, p platform) map[string]string {
	t.Helper()
	path := filepath.Join(r.out, r.archive(p))
	found := map[string]string{}
	if p.os == "windows" {
		z, err := zip.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		for _, f := range z.File {
			content, err := fs.ReadFile(z, f.Name)
			if err != nil {
				t.Fatal(err)
			}
			found[fmt.Sprintf("%s %o %s", f.Name, f.Mode(), f.Modified.UTC().Format(time.RFC3339))] = string(content)
		}
		return found
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
	return untar(t, z)
}

func untar(t *testing.T, from io.Reader) map[string]string {
	t.Helper()
	found := map[string]string{}
	for entries := tar.NewReader(from); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(entries)
		if err != nil {
			t.Fatal(err)
		}
		found[fmt.Sprintf("%s %o %s", h.Name, h.Mode, h.ModTime.UTC().Format(time.RFC3339))] = string(content)
	}
}

func (r *release) hasArchives(t *testing.T) {
	for _, p := range r.platforms {
		files := r.files(t, p)
		got := slices.Sorted(maps.Keys(files))
		want := []string{"LICENSE 644 " + commitTime, p.program() + " 755 " + commitTime}
		if !r.noPage {
			for _, name := range []string{"engine.js", "engine.wasm.gz", "examples.json", "index.html", "main.js", "schema.json", "style.css", "worker.js"} {
				want = append(want, "playground/"+name+" 644 "+commitTime)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s contains %q, want %q", r.archive(p), got, want)
		}
		// A path of the clone would make the bytes differ from clone to clone.
		if engine := files["playground/engine.wasm.gz 644 "+commitTime]; !r.noPage && strings.Contains(unzipped(t, engine), r.root) {
			t.Errorf("the engine contains the path %s", r.root)
		}
	}
}

// here is the platform that runs this test, if the release has it.
func (r *release) here(t *testing.T) platform {
	t.Helper()
	p := platform{runtime.GOOS, runtime.GOARCH}
	if !slices.Contains(r.platforms, p) {
		t.Skipf("the release is not built for %s/%s; use -args -all", p.os, p.arch)
	}
	return p
}

// reportsVersion runs the program of an archive.
func (r *release) reportsVersion(t *testing.T) {
	p := r.here(t)
	path := filepath.Join(t.TempDir(), p.program())
	if err := os.WriteFile(path, []byte(r.files(t, p)[p.program()+" 755 "+commitTime]), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "version")
	cmd.Env = []string{} // not the caller's
	out, err := cmd.Output()
	if want := "pillion " + version + " (revision " + r.revision + ", " + runtime.Version() + ", " + p.os + "/" + p.arch + ")\n"; err != nil || string(out) != want {
		t.Errorf("it prints %q, %v; want %q", out, err, want)
	}
}

// hasImage compares the layout with the Dockerfile and with the archives.
func (r *release) hasImage(t *testing.T) {
	index, err := layout.ImageIndexFromPath(filepath.Join(r.out, "image"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	top, err := index.IndexManifest()
	if err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index.json has %+v, %v", top, err)
	}
	name, err := os.ReadFile(filepath.Join(r.out, "image.txt"))
	if want := imageName + ":" + version + "@" + top.Manifests[0].Digest.String() + "\n"; err != nil || string(name) != want {
		t.Errorf("image.txt has %q, %v; want %q", name, err, want)
	}
	images, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := images.IndexManifest()
	linux := slices.DeleteFunc(slices.Clone(r.platforms), func(p platform) bool { return p.os != "linux" })
	if err != nil || len(manifest.Manifests) != len(linux) {
		t.Fatalf("the image has the platforms %+v, %v", manifest, err)
	}
	for i, p := range linux {
		d, arch := manifest.Manifests[i], p.arch
		img, err := images.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if !d.Platform.Equals(v1.Platform{OS: "linux", Architecture: arch}) || config.OS != "linux" || config.Architecture != arch || config.Created.UTC().Format(time.RFC3339) != commitTime {
			t.Errorf("%s is %+v", arch, config)
		}
		entrypoint, err := json.Marshal(config.Config.Entrypoint)
		if want := "\nFROM scratch\nCOPY --from=build /pillion /pillion\nUSER " + config.Config.User + "\nENTRYPOINT " + string(entrypoint) + "\n"; err != nil || !strings.HasSuffix(read(t, "Dockerfile"), want) {
			t.Errorf("the Dockerfile does not end with%s", want)
		}
		layers, err := img.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("%d layers, %v", len(layers), err)
		}
		unpacked, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		entry := "pillion 755 " + commitTime
		if got := untar(t, unpacked); len(got) != 1 || got[entry] == "" || got[entry] != r.files(t, p)[entry] {
			t.Errorf("the layer has %q, or another program than the archive", slices.Collect(maps.Keys(got)))
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// hasChecksums runs the command of manifests/docs/verify.md, and wants a line for each file.
func (r *release) hasChecksums(t *testing.T) {
	command := regexp.MustCompile(`(?m)^\$ (sha256sum .*)$`).FindStringSubmatch(read(t, "manifests/docs/verify.md"))
	if command == nil {
		t.Fatal("the page has no command for checksums")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command[1])
	cmd.Dir = r.out
	out, err := cmd.CombinedOutput()
	entries, readErr := os.ReadDir(r.out)
	// Not the folder image, the notes and the file itself.
	if want := len(entries) - 3; err != nil || readErr != nil || strings.Count(string(out), ": OK\n") != want {
		t.Errorf("%v, %v: want %d files in\n%s", err, readErr, want, out)
	}
}

// hasBills wants the digest of the binary, and its modules, in each bill of materials.
func (r *release) hasBills(t *testing.T) {
	for _, p := range r.platforms {
		var bill struct {
			DocumentNamespace string
			CreationInfo      struct{ Created string }
			Packages          []struct {
				Name, VersionInfo string
				Checksums         []struct{ ChecksumValue string }
			}
		}
		text, err := os.ReadFile(filepath.Join(r.out, r.name(p, ".spdx.json")))
		if err == nil {
			err = json.Unmarshal(text, &bill)
		}
		found := map[string]string{}
		for _, m := range bill.Packages {
			found[m.Name] = m.VersionInfo
			if m.Name == "pillion" && len(m.Checksums) == 1 {
				found["sum"] = m.Checksums[0].ChecksumValue
			}
		}
		program := r.files(t, p)[p.program()+" 755 "+commitTime]
		if err != nil || found["github.com/pillion-dev/pillion"] != version || found["k8s.io/api"] == "" || found["sum"] != fmt.Sprintf("%x", sha256.Sum256([]byte(program))) ||
			bill.CreationInfo.Created != commitTime || !strings.HasSuffix(bill.DocumentNamespace, "/"+version+"/"+r.name(p, ".spdx.json")) {
			t.Errorf("%s: %v, %q at %s: %v", r.name(p, ".spdx.json"), err, bill.DocumentNamespace, bill.CreationInfo.Created, found)
		}
	}
}

// installs the plugin as krew does, from the archive.
func (r *release) installs(t *testing.T) {
	p := r.here(t)
	var manifest struct {
		Spec struct {
			Platforms []struct{ URI, Sha256 string }
		}
	}
	text, err := os.ReadFile(filepath.Join(r.out, "krew.yaml"))
	if err == nil {
		err = yaml.UnmarshalStrict(text, &struct{ APIVersion, Kind, Metadata, Spec any }{})
	}
	if err == nil {
		err = yaml.Unmarshal(text, &manifest)
	}
	if err != nil || len(manifest.Spec.Platforms) != len(r.platforms) {
		t.Errorf("%v: %d platforms", err, len(manifest.Spec.Platforms))
	}
	root := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "sigs.k8s.io/krew/cmd/krew@v0.4.3", "install",
		"--manifest="+filepath.Join(r.out, "krew.yaml"), "--archive="+filepath.Join(r.out, r.archive(p)))
	cmd.Env = append(os.Environ(), "KREW_ROOT="+root)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	plugin := filepath.Join(root, "bin", "kubectl-pillion")
	cmd = exec.CommandContext(t.Context(), plugin, "version")
	cmd.Env = []string{} // not the caller's
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "pillion "+version+" ") {
		t.Errorf("%v: %s", err, out)
	}
	if !r.noPage {
		servesPage(t, plugin)
	}
}
