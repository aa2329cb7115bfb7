// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/manifests"
)

// TestVersions checks that the supported versions of Kubernetes are those that modules of the end-to-end tests build, and
// that all that names versions has the same ones: the page with the results, the README, the chart, and pillion check.
func TestVersions(t *testing.T) {
	t.Parallel()
	modules, err := filepath.Glob("../e2e/kubernetes-*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var minors []int
	for _, file := range append(modules, "../e2e/go.mod") {
		minors = append(minors, number(t, file, `(?m)^\s*(?:require )?k8s.io/kubernetes v1\.(\d+)\.`))
	}
	slices.Sort(minors)
	oldest, newest := minors[0], minors[len(minors)-1]
	if newest-oldest != len(minors)-1 {
		t.Errorf("the modules have the versions %d; one is missing or there twice", minors)
	}
	if want := fmt.Sprintf("1.%d", oldest); manifests.MinKubernetes != want {
		t.Errorf("MinKubernetes is %s, and the oldest module builds %s", manifests.MinKubernetes, want)
	}
	if want := fmt.Sprintf("1.%d", newest); manifests.MaxKubernetes != want {
		t.Errorf("MaxKubernetes is %s, and the newest module builds %s", manifests.MaxKubernetes, want)
	}
	for file, pattern := range map[string]string{
		"chart/Chart.yaml":          `(?m)^kubeVersion: ">=1\.(\d+)\.0-0"$`,
		"../e2e/programs/assets.go": `(?m)oldestMinor = (\d+)$`,
		"docs/install.md":           `You need Kubernetes 1\.(\d+) or later`,
	} {
		if got := number(t, file, pattern); got != oldest {
			t.Errorf("%s: the oldest version is 1.%d, want 1.%d", file, got, oldest)
		}
	}
	if rows := results(t); !slices.Equal(rows, minors) {
		t.Errorf("docs/versions.md has results for %d, want %d", rows, minors)
	}
}

// TestSharedVersions checks that the modules that make test builds have the same version of each module that both name.
// Otherwise a new machine compiles most of Kubernetes' libraries twice.
func TestSharedVersions(t *testing.T) {
	t.Parallel()
	versions := func(file string) map[string]string {
		all := map[string]string{}
		for _, line := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`).FindAllStringSubmatch(contents(t, file), -1) {
			all[line[1]] = line[2]
		}
		return all
	}
	root, shared := versions("../go.mod"), 0
	for module, version := range versions("../e2e/chart/go.mod") {
		if of := root[module]; of == version {
			shared++
		} else if of != "" {
			t.Errorf("%s is %s in go.mod, and %s in e2e/chart/go.mod", module, of, version)
		}
	}
	if shared < 20 {
		t.Errorf("only %d modules are in both", shared)
	}
}

// results returns the versions of the page's table. As soon as there is a release, each must have results.
func results(t *testing.T) (rows []int) {
	t.Helper()
	released := strings.Contains(contents(t, "../CHANGELOG.md"), "\n## v")
	for _, row := range regexp.MustCompile(`(?m)^\| 1\.(\d+) \| ([^|]+) \| ([^|]*)\|$`).FindAllStringSubmatch(contents(t, "docs/versions.md"), -1) {
		measured := regexp.MustCompile(`^\d+$`).MatchString(row[2])
		if !measured && (released || row[2] != "not run yet") {
			t.Errorf("docs/versions.md: 1.%s has the result %q; run make e2e KUBERNETES=1.%s and count", row[1], row[2], row[1])
		}
		rows = append(rows, atoi(t, row[1]))
	}
	slices.Sort(rows)
	return rows
}

// TestVersionsElsewhere checks that no page and no manifest names an older version, or one that no test runs on.
func TestVersionsElsewhere(t *testing.T) {
	t.Parallel()
	oldest, newest := atoi(t, strings.TrimPrefix(manifests.MinKubernetes, "1.")), atoi(t, strings.TrimPrefix(manifests.MaxKubernetes, "1."))
	named, n := regexp.MustCompile(`Kubernetes v?1\.(\d\d)\b(?: to 1\.(\d\d)\b)?`), 0
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || !slices.Contains([]string{".md", ".yaml", ".tpl", ".txt"}, filepath.Ext(path)) {
			return err
		}
		for _, m := range named.FindAllStringSubmatch(contents(t, filepath.Join("..", path)), -1) {
			for _, minor := range m[1:] {
				if n++; minor != "" && (atoi(t, minor) < oldest || atoi(t, minor) > newest) {
					t.Errorf("%s: %q, but the tests run on 1.%d to 1.%d", path, m[0], oldest, newest)
				}
			}
		}
		return nil
	})
	if err != nil || n < 10 {
		t.Errorf("%d versions are named; %v", n, err)
	}
}

func contents(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func number(t *testing.T, file, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(contents(t, file))
	if m == nil {
		t.Fatalf("%s does not match %s", file, pattern)
	}
	return atoi(t, m[1])
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
