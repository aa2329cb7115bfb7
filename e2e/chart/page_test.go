// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the table of values in the page")

// TestPage checks that the page has the table of all values, as the comments of values.yaml
// describe them.
func TestPage(t *testing.T) {
	const page, begin, end = manifests + "/docs/helm.md", "<!-- values: written by TestPage -->\n", "<!-- end of values -->"
	var document yamlv3.Node
	if err := yamlv3.Unmarshal([]byte(contents(t, chartDir+"/values.yaml")), &document); err != nil {
		t.Fatal(err)
	}
	table := "| value | default | |\n|---|---|---|\n" + strings.Join(rows(t, "", document.Content[0]), "")
	text := contents(t, page)
	before, rest, ok := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	want := before + begin + table + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("run go test -run TestPage -update (- values.yaml, + page):\n%s", diff)
	}
}

// rows returns a row for each key with a comment. A key without a comment is a group.
func rows(t *testing.T, path string, mapping *yamlv3.Node) (all []string) {
	t.Helper()
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := path + key.Value
		comment := strings.TrimPrefix(key.HeadComment, "# ")
		switch {
		case comment != "":
			all = append(all, fmt.Sprintf("| `%s` | `%s` | %s |\n", name, asJSON(t, value), comment))
		case value.Kind == yamlv3.MappingNode:
			all = append(all, rows(t, name+".", value)...)
		default:
			t.Errorf("values.yaml: %s has no comment", name)
		}
	}
	return all
}

func asJSON(t *testing.T, value *yamlv3.Node) string {
	t.Helper()
	var decoded any
	if err := value.Decode(&decoded); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSchema checks that the schema has the same keys as values.yaml, and rejects all others.
func TestSchema(t *testing.T) {
	var schema, values map[string]any
	if err := json.Unmarshal([]byte(contents(t, chartDir+"/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(contents(t, chartDir+"/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	delete(schema["properties"].(map[string]any), "global") // Helm's
	sameKeys(t, "", schema, values)
}

func sameKeys(t *testing.T, path string, schema map[string]any, value any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	if properties == nil {
		return // a list, or any keys
	}
	if schema["additionalProperties"] != false {
		t.Errorf("the schema allows more keys in %q", path)
	}
	values := value.(map[string]any)
	for key, property := range properties {
		if _, ok := values[key]; !ok {
			t.Errorf("values.yaml lacks %s", path+key)
			continue
		}
		sameKeys(t, path+key+".", property.(map[string]any), values[key])
	}
	for key := range values {
		if properties[key] == nil {
			t.Errorf("the schema lacks %s", path+key)
		}
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
