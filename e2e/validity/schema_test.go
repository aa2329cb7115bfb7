// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/templates"
)

// TestSchema checks with an independent library that the schema for editors accepts every template of
// the project, and finds typing errors.
func TestSchema(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../manifests/schema/template.json")
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("template.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("template.json")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(doc string) error {
		text, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			return err
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		if err != nil {
			return err
		}
		return schema.Validate(value)
	}
	count := 0
	for _, pattern := range []string{"templates/library/*.yaml", "templates/from/*/*.yaml", "templates/testdata/good/*.yaml", "examples/*/*.yaml", "e2e/testdata/templates/*.yaml"} {
		files, err := filepath.Glob("../../" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if all, problems := templates.Parse(file, text); len(problems) > 0 || len(all) == 0 {
				continue // it is no template, or a broken example
			}
			for doc := range strings.SplitSeq(string(text), "\n---\n") {
				var any map[string]json.RawMessage
				if yaml.Unmarshal([]byte(doc), &any) != nil || len(any) == 0 {
					continue
				}
				count++
				if err := valid(doc); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
	if count < 50 {
		t.Errorf("only %d templates", count)
	}
	const head = "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: a}\nspec: "
	for _, spec := range []string{
		"{pod: {spec: {initContainers: [{name: a, imgae: b}]}}}",
		"{pod: {spec: {containers: [{name: a, image: b, imagePullPolicy: Often}]}}}",
		"{pod: {spec: {nodeName: n}}}",
		"{params: [{name: a, typ: string}], pod: {}}",
		"{params: [{name: a, type: text}], pod: {}}",
		"{validate: {mode: deny}, pod: {}}",
		"{forEachContainer: [{add: {image: x}}]}",
		"{forEachContainer: [{wher: 'true', add: {}}]}",
		"{default: 'yes', pod: {}}",
	} {
		if err := valid(head + spec + "\n"); err == nil {
			t.Errorf("it accepts %s", spec)
		}
	}
}
