// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/report/diff"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
)

// TestFieldsAreDocumented checks that the JSON fields of explain, status and diff are documented.
func TestFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	wantDocumented(t, "README.md", reflect.TypeFor[explain.Report]())
	wantDocumented(t, "../status/README.md", reflect.TypeFor[status.Report](), reflect.TypeFor[status.Outsiders]())
	wantDocumented(t, "../diff/README.md", reflect.TypeFor[diff.Report]())
}

// wantDocumented checks that the file documents each type with the fields of its JSON, in their
// order, and which of them are always present.
func wantDocumented(t *testing.T, file string, of ...reflect.Type) {
	t.Helper()
	readme, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	for _, section := range strings.Split(string(readme), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|( always)?").FindAllStringSubmatch(text, -1) {
			documented[name] = append(documented[name], m[1]+m[2])
		}
	}
	types := map[string]reflect.Type{}
	for _, typ := range of {
		collect(typ, types)
	}
	for name, typ := range types {
		if want := fields(typ); !slices.Equal(documented[name], want) {
			t.Errorf("%s: %s has the fields\n%q, documented are\n%q", file, name, want, documented[name])
		}
	}
	if len(types) != len(documented) {
		t.Errorf("%s: %d types, and %d are documented", file, len(types), len(documented))
	}
}

// collect finds the structs in a type's JSON.
func collect(t reflect.Type, into map[string]reflect.Type) {
	switch t.Kind() {
	case reflect.Slice, reflect.Pointer:
		collect(t.Elem(), into)
	case reflect.Struct:
		into[t.Name()] = t
		for _, f := range reflect.VisibleFields(t) {
			if f.IsExported() && !f.Anonymous {
				collect(f.Type, into)
			}
		}
	}
}

func fields(t reflect.Type) []string {
	var all []string
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && options == "" {
			name += " always"
		}
		if name != "" {
			all = append(all, name)
		}
	}
	return all
}
