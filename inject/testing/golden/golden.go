// SPDX-License-Identifier: Apache-2.0

// Package golden compares the results of tests with files. Tests that import
// it have the flag -update, which writes the results into the files.
package golden

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the results into the golden files")

// Updating reports whether results are written into their files.
func Updating() bool { return *update }

// File compares got with the file at path.
func File(t testing.TB, path string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) && err == nil {
		return
	}
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Errorf("%s\nIf this is right: cd %s && go test -run '^%s$' -update .", diff.Diff(path+" has", want, "got", got), folder, test)
}

// Cases runs a subtest for each archive that matches the pattern. It compares the
// files that the test returns with those of the archive. A file whose Data is nil must
// not be in the archive.
func Cases(t *testing.T, pattern string, test func(*testing.T, *txtar.Archive) []txtar.File) {
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no case is in %s (%v)", pattern, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range test(t, archive) {
				i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == got.Name })
				switch {
				case got.Data == nil:
					archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == got.Name })
				case i < 0:
					archive.Files = append(archive.Files, got)
				default:
					archive.Files[i].Data = got.Data
				}
			}
			File(t, path, txtar.Format(archive))
		})
	}
}
