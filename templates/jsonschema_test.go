// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/validation"
)

// TestJSONSchema checks that the schema for editors is current. It joins the schema of the
// CustomResourceDefinitions, which comes from the Go types, with the types of the Kubernetes API for
// the fragments of pods.
func TestJSONSchema(t *testing.T) {
	t.Parallel()
	g := &schemaOf{defs: jsonObject{}}
	var kinds []jsonObject
	for _, name := range []string{"clustersidecartemplates", "sidecartemplates"} {
		kinds = append(kinds, g.kind(t, "../manifests/crds/"+name+".yaml"))
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(jsonObject{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": "A template of Pillion",
		"type": "object", "required": []string{"apiVersion", "kind", "metadata", "spec"},
		"if":   jsonObject{"properties": jsonObject{"kind": jsonObject{"const": "SidecarTemplate"}}},
		"then": kinds[1], "else": kinds[0], "definitions": g.defs,
	})
	if err != nil {
		t.Fatal(err)
	}
	golden.File(t, "../manifests/schema/template.json", b.Bytes())
}

type jsonObject = map[string]any

// schemaOf makes schemas; defs has those of API types.
type schemaOf struct{ defs jsonObject }

// definition is a kind of templates.
type definition struct {
	kind   string
	schema jsonObject
}

// readDefinition reads a CustomResourceDefinition.
func readDefinition(t *testing.T, path string) definition {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Names    struct{ Kind string }
			Versions []struct {
				Schema struct{ OpenAPIV3Schema jsonObject }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	return definition{crd.Spec.Names.Kind, crd.Spec.Versions[0].Schema.OpenAPIV3Schema}
}

// kind returns the schema of a kind, given its definition.
func (g *schemaOf) kind(t *testing.T, path string) jsonObject {
	t.Helper()
	crd := readDefinition(t, path)
	root := plain(crd.schema).(jsonObject)
	fields := root["properties"].(jsonObject)
	delete(fields, "status")
	fields["status"] = jsonObject{"type": "object"}
	fields["apiVersion"], fields["kind"] = jsonObject{"const": APIVersion}, jsonObject{"const": crd.kind}
	spec := fields["spec"].(jsonObject)["properties"].(jsonObject)
	spec["pod"] = g.fragment(spec["pod"].(jsonObject), reflect.TypeFor[corev1.Pod](), podFields())
	add := spec["forEachContainer"].(jsonObject)["items"].(jsonObject)["properties"].(jsonObject)
	add["add"] = g.fragment(add["add"].(jsonObject), reflect.TypeFor[corev1.Container](), forEachFields())
	return root
}

// plain removes what JSON Schema lacks, and forbids unknown keys.
func plain(v any) any {
	switch v := v.(type) {
	case jsonObject:
		_, free := v["x-kubernetes-preserve-unknown-fields"]
		_, isObject := v["properties"]
		for key, value := range v {
			if len(key) > 2 && key[:2] == "x-" {
				delete(v, key)
			} else {
				v[key] = plain(value)
			}
		}
		if isObject && !free && v["type"] == "object" {
			v["additionalProperties"] = false
		}
		return v
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}

// fragment returns the schema of a part of a pod that may have only some fields.
func (g *schemaOf) fragment(of jsonObject, t reflect.Type, allowed fields) jsonObject {
	s := g.fields(t, func(name string) (fields, bool) { sub, ok := allowed[name]; return sub, ok })
	s["description"] = of["description"]
	return s
}

// fields returns the schema of a struct with the fields that some function allows.
func (g *schemaOf) fields(t reflect.Type, allow func(name string) (fields, bool)) jsonObject {
	properties := jsonObject{
		fragment.WhenKey: jsonObject{"type": "string", "description": "A CEL expression. If it is false, the object is left out."},
		cel.ForEachKey:   jsonObject{"type": "object", "description": "{VALUE: CEL list} or {\"KEY, VALUE\": CEL map or list}: one item for each value."},
	}
	if t == reflect.TypeFor[corev1.EnvVar]() {
		properties[fragment.IfSetKey] = jsonObject{"description": "What happens if the container already has the variable."}
	}
	docs := docsOf(t)
	for _, f := range jsontree.StructFields(t) {
		sub, ok := allow(f.JSON)
		if !ok {
			continue
		}
		var of jsonObject
		if sub == nil {
			of = g.of(f.Type)
		} else {
			of = g.fields(indirect(f.Type), func(name string) (fields, bool) { more, ok := sub[name]; return more, ok })
		}
		if doc := docs[f.JSON]; doc != "" {
			of = jsonObject{"allOf": []any{of}, "description": doc}
		}
		properties[f.JSON] = of
	}
	return jsonObject{"type": "object", "properties": properties, "additionalProperties": false}
}

func indirect(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// docsOf returns Kubernetes' own descriptions of the fields of a type.
func docsOf(t reflect.Type) map[string]string {
	if documented, ok := reflect.TypeAssert[interface{ SwaggerDoc() map[string]string }](reflect.New(t).Elem()); ok {
		return documented.SwaggerDoc()
	}
	return nil
}

// anExpression is the schema of a string with an expression.
func anExpression() jsonObject { return jsonObject{"type": "string", "pattern": `\$\{`} }

// of returns the schema of a type, in which every value can be an expression.
func (g *schemaOf) of(t reflect.Type) jsonObject {
	t = indirect(t)
	name := t.Name()
	switch {
	case t == reflect.TypeFor[resource.Quantity](), t == reflect.TypeFor[intstr.IntOrString]():
		return jsonObject{"type": []string{"string", "number"}}
	case validation.EnumValues(t) != nil:
		return jsonObject{"anyOf": []any{jsonObject{"enum": validation.EnumValues(t)}, anExpression()}}
	case t.Kind() == reflect.Bool:
		return jsonObject{"anyOf": []any{jsonObject{"type": "boolean"}, anExpression()}}
	case t.Kind() == reflect.String || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return jsonObject{"type": "string"}
	case t.Kind() == reflect.Slice:
		return jsonObject{"anyOf": []any{jsonObject{"type": "array", "items": g.of(t.Elem())}, anExpression()}}
	case t.Kind() == reflect.Map:
		return jsonObject{"anyOf": []any{jsonObject{"type": "object", "additionalProperties": jsonObject{"type": []string{"string", "number", "boolean"}}}, anExpression()}}
	case t.Kind() != reflect.Struct:
		return jsonObject{"anyOf": []any{jsonObject{"type": "integer"}, anExpression()}}
	case name == "Time":
		return jsonObject{"type": "string"}
	}
	if g.defs[name] == nil {
		g.defs[name] = jsonObject{} // it may contain itself
		s := g.fields(t, func(string) (fields, bool) { return nil, true })
		g.defs[name] = jsonObject{"anyOf": []any{s, anExpression()}}
	}
	return jsonObject{"$ref": "#/definitions/" + name}
}

// TestJSONSchemaNames checks that every type of the schema is defined, and used.
func TestJSONSchemaNames(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../manifests/schema/template.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct{ Definitions jsonObject }
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Definitions)) {
		if !bytes.Contains(text, []byte(`"#/definitions/`+name+`"`)) {
			t.Errorf("nothing refers to %s", name)
		}
	}
}
