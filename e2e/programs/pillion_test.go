// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeFiles writes files below a new folder.
func writeFiles(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadRecipe(t *testing.T) {
	t.Parallel()
	r, err := ReadRecipe("../..")
	if err != nil || r.Program != "/pillion" || !strings.Contains(r.Build, " -pgo=cmd/pillion/cpu.pprof ") || !strings.HasSuffix(r.Build, " -o /pillion ./cmd/pillion") {
		t.Errorf("%+v, %v", r, err)
	}
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"CGO_ENABLED=0", "CGO_ENABLED=1"},
		{"FROM scratch\n", "FROM scratch\nCOPY more /more\n"},
		{"COPY --from=build /pillion /pillion", "COPY --from=build /other /pillion"},
		{"FROM scratch", "FROM debian"},
	} {
		other := strings.Replace(string(text), change[0], change[1], 1)
		if r, err := ReadRecipe(writeFiles(t, map[string]string{"Dockerfile": other})); err == nil {
			t.Errorf("%q instead of %q gives %+v", change[1], change[0], r)
		}
	}
}

// TestPillionSum checks that the program is built again if a file of it has changed, and only then.
func TestPillionSum(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"go.mod": "module m", "go.sum": "", "cmd/pillion/main.go": "package main", "certs/a.go": "", "inject/a.go": "", "templates/library/a.yaml": "a",
		"manifests/base/a.yaml": "a", "inject/a_test.go": "", "inject/testdata/a.txt": "", "README.md": "", "e2e/a.go": "",
	}
	sum := func(command, name, text string) string {
		changed := maps.Clone(files)
		if name != "" {
			changed[name] = text
		}
		got, err := pillionSum(t.Context(), writeFiles(t, changed), command)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := sum("go build", "", "")
	if first == sum("go build -pgo", "", "") {
		t.Error("another command has the same sum")
	}
	for name, built := range map[string]bool{
		"go.mod": true, "cmd/pillion/main.go": true, "templates/library/a.yaml": true, "manifests/base/a.yaml": true, "inject/new.go": true,
		"inject/a_test.go": false, "inject/testdata/a.txt": false, "README.md": false, "e2e/a.go": false,
	} {
		if (sum("go build", name, "changed") != first) != built {
			t.Errorf("a change of %s: another sum is %t, want %t", name, !built, built)
		}
	}
}

func TestRemoveOldPillions(t *testing.T) {
	t.Parallel()
	cache := writeFiles(t, map[string]string{"pillion-old/pillion": "", "pillion-new/pillion": "", "kubernetes-v1/etcd": ""})
	now := time.Now()
	for _, name := range []string{"pillion-old", "kubernetes-v1"} {
		before := now.Add(-keepPillion - time.Second)
		if err := os.Chtimes(filepath.Join(cache, name), before, before); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeOldPillions(cache, now); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"pillion-old": false, "pillion-new": true, "kubernetes-v1": true} {
		if got := complete(filepath.Join(cache, name)); got != want {
			t.Errorf("%s is there: %t", name, got)
		}
	}
}
