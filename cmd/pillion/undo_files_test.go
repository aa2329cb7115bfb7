// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject"
)

// TestUndoFiles checks that uninject restores the bytes of every manifest of this repository, and
// of those below the folders in $TEST_MANIFESTS. With a usual template, inject changes no
// existing line in 99 of 100 files.
func TestUndoFiles(t *testing.T) {
	t.Parallel()
	all := undoInjector(t)
	set, err := cli.LoadTemplates(nil, []string{"testdata/templates"})
	must(t, err)
	common := inject.New(set)
	folders := []string{"../../examples", "../../manifests", "../../templates", "../../e2e", "../../inject", "testdata"}
	if more := os.Getenv("TEST_MANIFESTS"); more != "" {
		folders = append(folders, filepath.SplitList(more)...)
	}
	var n fileCounts
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
				if !strings.Contains(path, "/tests/") { // pods in flow style, for tests of templates
					n.file(t, common, path, true)
				}
				n.file(t, all, path, false)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d files that speak of containers; %d times something is injected, and %d times comes back; with a template of no labels %d of %d files have no other line touched; %d rejected",
		n.files, n.injected, n.same, n.untouched, n.lines, n.rejected)
	if n.injected < 6 || n.same < n.injected || n.untouched*100 < n.lines*99 {
		t.Error("that is too few")
	}
}

type fileCounts struct{ files, injected, lines, untouched, same, rejected int }

func (n *fileCounts) file(t *testing.T, injector *inject.Injector, path string, usual bool) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || len(data) > 4<<20 {
		return
	}
	text := string(data)
	if !strings.Contains(text, "containers") {
		return
	}
	if usual {
		n.files++
	}
	out, _, err := processed(injector, text, false)
	if err != nil && usual {
		n.rejected++
		t.Logf("%s: %s", path, err)
	}
	if err != nil {
		if strings.Contains(err.Error(), "please report") {
			t.Errorf("%s: %v", path, err)
		}
		return
	}
	if out == text || strings.Contains(text, "pillion.dev/injected") {
		return
	}
	n.injected++
	if usual {
		n.lines++
		if line := touched(text, out); line == "" {
			n.untouched++
		} else {
			t.Logf("%s: touches %q", path, line)
		}
	}
	back, _, err := processed(injector, out, true)
	if err != nil || back != text {
		t.Errorf("%s: does not come back: %v %s", path, err, firstDifference(text, back))
		return
	}
	n.same++
}

// touched is what is not in the other text, in its place: the first line, or of a document
// in flow style, which goes on in the same line, the rest from the first byte on.
func touched(text, out string) string {
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		at := 0
		for i := range len(out) {
			if at < len(text) && out[i] == text[at] {
				at++
			}
		}
		return text[at:]
	}
	rest := strings.Split(out, "\n")
	for line := range strings.SplitSeq(text, "\n") {
		k := slices.Index(rest, line)
		if k < 0 {
			return line
		}
		rest = rest[k+1:]
	}
	return ""
}
