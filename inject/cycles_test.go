// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// largestCycle has the packages in which files use each other, and the number
// of files in the largest cycle. In all other packages there is an order of the
// files in which each uses only earlier ones.
var largestCycle = map[string]int{
	"certs":                         3, // the sources of a certificate, and the election of the one that makes it
	"cmd/pillion/yamledit":          4, // an edit inside an edit
	"inject":                        2, // the planner merges containers into objects, and objects into containers
	"inject/webhook":                3, // an endpoint answers for the Handler, whose Metrics count by endpoint
	"inject/webhook/authentication": 4, // the Guard and its kinds of credentials
	"templates":                     2, // a Set, and the templates in it that replace others
	"templates/cel":                 2, // functions without CEL: strings and conditions read objects, whose keys and conditions are such functions
	"templates/jsontree":            2, // a Node, and the Parser that opens it when it is read
	"templates/params":              2, // the types of parameters, some of which have parts of other types
}

// TestHouse keeps the boundaries between the files of a package: no cycle of
// files is larger than the level reached, and the level is written down.
func TestHouse(t *testing.T) {
	cycles := fileCycles(t)
	for name := range largestCycle {
		if _, ok := cycles[name]; !ok {
			t.Errorf("%s: there is no such package; remove it from largestCycle", name)
		}
	}
	for name, cycles := range cycles {
		largest := 1
		if len(cycles) > 0 {
			largest = len(cycles[0])
		}
		switch limit := max(1, largestCycle[name]); {
		case largest > limit:
			t.Errorf("%s: %d files use each other, and at most %d may: %s\nMove a declaration, or pass what is needed.", name, largest, limit, strings.Join(cycles[0], ", "))
		case largest < limit:
			t.Errorf("%s: the largest cycle has %d files; write this into largestCycle instead of %d, or remove the row if it is 1", name, largest, limit)
		}
	}
}

// listedPackage is what go list knows about a package.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// fileCycles returns the cycles of files of each package of the module, the
// largest first.
func fileCycles(t *testing.T) map[string][][]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-buildvcs=false", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly", module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var own []listedPackage
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			own = append(own, p)
		}
	}
	files := token.NewFileSet()
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	dependencies := importer.ForCompiler(files, "gc", open)
	cycles := map[string][][]string{}
	for _, p := range own {
		cycles[strings.TrimPrefix(p.ImportPath, module+"/")] = findCycles(usedFiles(t, files, dependencies, p))
	}
	return cycles
}

// usedFiles returns, for each file of a package, the other files of the package
// that declare what it uses: functions, types, methods, fields, variables.
func usedFiles(t *testing.T, files *token.FileSet, dependencies types.Importer, p listedPackage) map[string][]string {
	t.Helper()
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: dependencies}
	pkg, err := config.Check(p.ImportPath, files, parsed, &info)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]map[string]bool{}
	for id, object := range info.Uses {
		if object.Pkg() != pkg {
			continue
		}
		from, to := fileOf(files, id.Pos()), fileOf(files, object.Pos())
		if from == to {
			continue
		}
		if used[from] == nil {
			used[from] = map[string]bool{}
		}
		used[from][to] = true
	}
	sorted := map[string][]string{}
	for name, others := range used {
		sorted[name] = slices.Sorted(maps.Keys(others))
	}
	return sorted
}

func fileOf(files *token.FileSet, pos token.Pos) string {
	return filepath.Base(files.Position(pos).Filename)
}

// findCycles returns the sets of files in which each reaches each other, the
// largest first. With few files, following all arrows is fast enough.
func findCycles(used map[string][]string) [][]string {
	reached := map[string]map[string]bool{}
	for name := range used {
		reached[name] = map[string]bool{}
		for todo := []string{name}; len(todo) > 0; {
			at := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for _, next := range used[at] {
				if !reached[name][next] {
					reached[name][next] = true
					todo = append(todo, next)
				}
			}
		}
	}
	var all [][]string
	done := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if done[name] || !reached[name][name] {
			continue
		}
		var circle []string
		for _, other := range slices.Sorted(maps.Keys(reached[name])) {
			if reached[other][name] {
				circle = append(circle, other)
				done[other] = true
			}
		}
		all = append(all, circle)
	}
	slices.SortStableFunc(all, func(a, b []string) int { return len(b) - len(a) })
	return all
}
