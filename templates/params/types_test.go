// SPDX-License-Identifier: Apache-2.0

package params

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// TestParamTypes checks that each row is complete and consistent.
func TestParamTypes(t *testing.T) {
	t.Parallel()
	for _, row := range paramTypes() {
		p := compiledParam(t, "{name: p, type: "+string(row.name)+"}")
		value, err := p.parseValue(row.sample)
		if err != nil || CELType(&p.Param).Kind() != types.DynKind && value.Type().TypeName() != CELType(&p.Param).TypeName() {
			t.Errorf("%s: the sample %s is %v (%v), want a value of type %s", row.name, row.sample, value, err, CELType(&p.Param))
		}
		if readable := row.policy != (Policy{}); row.words == "" || readable != (row.parts == scalar) || readable && (row.policy.Check == "" || row.policy.Value == "") {
			t.Errorf("%s: the words or a policy's expression are missing", row.name)
		}
		if ordered, inPolicy := row.order != nil, row.policy.Compare != ""; ordered != inPolicy {
			t.Errorf("%s: has an order: %v, but in a policy: %v", row.name, ordered, inPolicy)
		}
		if row.order == nil {
			continue
		}
		if b, err := row.parseBound(row.sample); err != nil || b.cmp(row.sample) != 0 {
			t.Errorf("%s: %s does not equal itself (%v)", row.name, row.sample, err)
		}
		if _, err := row.parseBound("no value of any type"); err == nil {
			t.Errorf("%s: any string can be its minimum", row.name)
		}
	}
}

// compiledParam returns the compiled form of a parameter.
func compiledParam(t testing.TB, declared string) *Param {
	t.Helper()
	var p v1alpha1.Param
	var y yaml.Node
	err := yaml.Unmarshal([]byte(declared), &y)
	if err == nil {
		var n jsontree.Node
		if n, err = jsontree.FromYAML(&y); err == nil {
			err = json.Unmarshal(n.AppendTo(nil), &p)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return Compile(&p, "a.pillion.dev/"+p.Name, func(field, format string, args ...any) { t.Fatalf(field+" "+format, args...) })
}

// TestParamTypesInReference checks that the reference lists each type, in this order, and that the page about parameters has each.
func TestParamTypesInReference(t *testing.T) {
	t.Parallel()
	const reference = "../../manifests/docs/template-reference.md"
	table, err := os.ReadFile("../../manifests/docs/parameters.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "    type: string ")
	line, _, _ := strings.Cut(rest, "\n")
	listed := strings.Split(strings.TrimLeft(line, " #"), ", ")
	for _, name := range Types() {
		if !strings.Contains(string(table), "\n| `"+name+"` | ") {
			t.Errorf("manifests/docs/parameters.md does not list the type %s", name)
		}
	}
	if !slices.Equal(listed, Types()) {
		t.Errorf("%s lists the types %q in the line that begins with \"type: string\", want %q", reference, listed, Types())
	}
}

// TestParamTypesInDefinitions checks that API servers accept each type: the enum of the kinds of templates lists it. Make generate
// writes the enum, from the comment of ParamType in templates/v1alpha1.
func TestParamTypesInDefinitions(t *testing.T) {
	t.Parallel()
	type properties struct {
		Properties map[string]struct {
			Properties map[string]struct {
				Items struct {
					Properties map[string]struct {
						Enum []string `yaml:"enum"`
					} `yaml:"properties"`
				} `yaml:"items"`
			} `yaml:"properties"`
		} `yaml:"properties"`
	}
	for _, kind := range []string{"clustersidecartemplates", "sidecartemplates"} {
		path := "../../manifests/crds/" + kind + ".yaml"
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var definition struct {
			Spec struct {
				Versions []struct {
					Schema map[string]properties `yaml:"schema"`
				} `yaml:"versions"`
			} `yaml:"spec"`
		}
		if err := yaml.Unmarshal(text, &definition); err != nil {
			t.Fatal(err)
		}
		spec := definition.Spec.Versions[0].Schema["openAPIV3Schema"].Properties["spec"]
		if listed := spec.Properties["params"].Items.Properties["type"].Enum; !slices.Equal(listed, Types()) {
			t.Errorf("%s has the types %q, want %q: change the comment of ParamType in templates/v1alpha1, and run make generate", path, listed, Types())
		}
	}
}
