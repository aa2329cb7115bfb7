// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

const fieldsPage = `# All fields of a template

Every field with its type and meaning, as ` + "`kubectl explain`" + ` prints them, one level at a time. The
[template reference](template-reference.md) shows them in an example, and explains expressions.

<!-- written by make generate, from templates/v1alpha1 -->
| field | type | meaning |
|---|---|---|
`

// TestFieldsPage checks that the page with all fields is current. It comes from the
// CustomResourceDefinition, and so from the Go types.
func TestFieldsPage(t *testing.T) {
	t.Parallel()
	root := readDefinition(t, "../manifests/crds/clustersidecartemplates.yaml").schema
	b := bytes.NewBufferString(fieldsPage)
	for _, name := range []string{"spec", "status"} {
		writeField(b, name, root["properties"].(jsonObject)[name].(jsonObject))
	}
	golden.File(t, "../manifests/docs/template-fields.md", b.Bytes())
}

// TestDefinitionsHaveFields checks that the definition of each kind has the fields of the Go types, and no others. API servers drop fields
// that a definition lacks. Make generate writes the definitions.
func TestDefinitionsHaveFields(t *testing.T) {
	t.Parallel()
	for kind, of := range map[string]reflect.Type{
		"clustersidecartemplates": reflect.TypeFor[v1alpha1.ClusterSidecarTemplate](), "sidecartemplates": reflect.TypeFor[v1alpha1.SidecarTemplate](),
	} {
		root := readDefinition(t, "../manifests/crds/"+kind+".yaml").schema["properties"].(jsonObject)
		for _, f := range jsontree.StructFields(of) {
			if f.JSON == "spec" || f.JSON == "status" {
				compareFields(t, kind+": "+f.JSON, f.Type, root[f.JSON].(jsonObject))
			}
		}
	}
}

// compareFields compares the fields of a Go type, and of those below it, with a schema.
func compareFields(t *testing.T, path string, of reflect.Type, schema jsonObject) {
	t.Helper()
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	_, below := fieldType(schema)
	properties, known := below["properties"].(jsonObject)
	if of.Kind() != reflect.Struct || !known || of.PkgPath() != reflect.TypeFor[v1alpha1.Spec]().PkgPath() {
		return // Kubernetes' own, or its fields are not in the definition
	}
	var names []string
	for _, f := range jsontree.StructFields(of) {
		names = append(names, f.JSON)
		if field, ok := properties[f.JSON].(jsonObject); ok {
			compareFields(t, path+"."+f.JSON, f.Type, field)
		}
	}
	if slices.Sort(names); !slices.Equal(names, slices.Sorted(maps.Keys(properties))) {
		t.Errorf("%s has the fields %q, and its definition %q: run make generate", path, names, slices.Sorted(maps.Keys(properties)))
	}
}

// TestFieldsAreExplained checks that a page shows each field of spec in an example or explains it, besides the page with all fields.
func TestFieldsAreExplained(t *testing.T) {
	t.Parallel()
	all := bytes.NewBuffer(nil)
	root := readDefinition(t, "../manifests/crds/clustersidecartemplates.yaml").schema
	writeField(all, "spec", root["properties"].(jsonObject)["spec"].(jsonObject))
	reference := readPage(t, "template-reference.md") + readPage(t, "parameters.md")
	rollout := readPage(t, "automatic-rollout.md")
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(all.String(), -1) {
		page, text := "template-reference.md or parameters.md", reference
		if strings.HasPrefix(row[1], "spec.rollout.") {
			page, text = "automatic-rollout.md", rollout
		}
		if name := row[1][strings.LastIndex(row[1], ".")+1:]; !regexp.MustCompile(`\b` + name + `\b`).MatchString(text) {
			t.Errorf("manifests/docs: add the field %s to %s", row[1], page)
		}
	}
}

// writeField writes the rows of a field and of those below it.
func writeField(b *bytes.Buffer, path string, of jsonObject) {
	doc, _, _ := strings.Cut(fmt.Sprint(of["description"]), "\n")
	kind, below := fieldType(of)
	name := path[strings.LastIndex(path, ".")+1:]
	doc = strings.TrimPrefix(doc, strings.TrimSuffix(name, "[]")+" ") // each description begins with the name of its field
	fmt.Fprintf(b, "| `%s` | %s | %s |\n", path, kind, strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(doc))
	if strings.HasSuffix(path, "Selector") || strings.HasSuffix(path, "conditions") {
		return // types of Kubernetes, which its own documentation describes
	}
	fields, _ := below["properties"].(jsonObject)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		writeField(b, path+"."+field, fields[field].(jsonObject))
	}
}

// fieldType returns the type of a field in words, and the schema that has the fields below it.
func fieldType(of jsonObject) (kind string, below jsonObject) {
	kind, _ = of["type"].(string)
	below = of
	if items, ok := of["items"].(jsonObject); ok {
		one, _ := items["type"].(string)
		kind, below = "list of "+cmp.Or(one, "value")+"s", items
	}
	if enum, ok := of["enum"].([]any); ok {
		var all []string
		for _, value := range enum {
			all = append(all, fmt.Sprintf("`%v`", value))
		}
		kind = strings.Join(all, ", ")
	}
	return cmp.Or(kind, "any value"), below
}
