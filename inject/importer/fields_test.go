// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/inject/testing/size"
)

// carrier is a place in a configuration where a part of a pod can be.
type carrier struct {
	name string
	// document returns the configuration with a pod in JSON.
	document func(t *testing.T, pod map[string]any) string
	// path returns the path in a report for a path in the pod.
	path func(pod string) string
	// only are the parts that it can carry, or nil for all.
	only []string
}

// allCarriers returns the places where the other injectors can have a whole container, volume or pod.
func allCarriers() []carrier {
	inSpec := func(prefix string) func(string) string {
		return func(pod string) string { return prefix + strings.TrimPrefix(pod, "spec.") }
	}
	inText := func(prefix string) func(string) string { return func(pod string) string { return prefix + ": " + pod } }
	spec := []string{"containers", "initContainers", "volumes", "imagePullSecrets"}
	format := func(text string, part ...string) func(*testing.T, map[string]any) string {
		return func(t *testing.T, pod map[string]any) string {
			var value any = pod
			for _, name := range part {
				value = value.(map[string]any)[name]
			}
			return fmt.Sprintf(text, asJSON(t, value))
		}
	}
	return []carrier{
		{"SidecarSet", func(t *testing.T, pod map[string]any) string {
			fields := map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}
			maps.Copy(fields, pod["spec"].(map[string]any))
			mountVolumes(fields)
			return `{"apiVersion": "apps.kruise.io/v1alpha1", "kind": "SidecarSet", "metadata": {"name": "a"}, "spec": ` + asJSON(t, fields) + "}"
		}, func(pod string) string { return pod }, spec},
		{"sidecar configuration", func(t *testing.T, pod map[string]any) string {
			fields := map[string]any{"name": "a"}
			maps.Copy(fields, pod["spec"].(map[string]any))
			return asJSON(t, fields)
		}, inSpec(""), []string{"containers", "initContainers", "volumes", "hostAliases"}},
		{"Istio", format("sidecarInjectorWebhook:\n  templates:\n    a: |\n      %s\n"), inText("sidecarInjectorWebhook.templates.a"), nil},
		{
			"merge of Kyverno", format(`{"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "a"}, "spec": {"rules": [
			{"name": "a", "match": {"resources": {"kinds": ["Pod"]}}, "mutate": {"patchStrategicMerge": %s}}]}}`),
			func(pod string) string { return "spec.rules[0].mutate.patchStrategicMerge." + pod }, nil,
		},
		{
			"merge into all containers", func(t *testing.T, pod map[string]any) string {
				container := pod["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
				container["(name)"] = "*"
				delete(container, "name")
				delete(container, "image")
				return `{"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "a"}, "spec": {"rules": [
			{"name": "a", "match": {"resources": {"kinds": ["Pod"]}}, "mutate": {"patchStrategicMerge": ` + asJSON(t, pod) + "}}]}}"
			},
			func(pod string) string { return "spec.rules[0].mutate.patchStrategicMerge." + pod },
			[]string{"containers"},
		},
		{
			"patch of Kyverno", func(t *testing.T, pod map[string]any) string {
				var ops []any
				for name, list := range pod["spec"].(map[string]any) {
					for _, item := range list.([]any) {
						ops = append(ops, map[string]any{"op": "add", "path": "/spec/" + name + "/-", "value": item})
					}
				}
				return `{"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "a"}, "spec": {"rules": [
			{"name": "a", "match": {"resources": {"kinds": ["Pod"]}}, "mutate": {"patchesJson6902": ` + asJSON(t, asJSON(t, ops)) + "}}]}}"
			},
			func(pod string) string {
				_, inItem, _ := strings.Cut(pod, "[0]")
				return "spec.rules[0].mutate.patchesJson6902: [0].value" + inItem
			},
			[]string{"containers", "initContainers", "volumes", "imagePullSecrets", "hostAliases", "tolerations"},
		},
		{
			"admission policy", func(t *testing.T, pod map[string]any) string {
				expression := "Object{spec: " + asJSON(t, pod["spec"]) + "}"
				return `{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "a"}, "spec": {"mutations": [
			{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": ` + asJSON(t, expression) + "}}]}}"
			},
			inText("spec.mutations[0].applyConfiguration.expression"), nil,
		},
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// mountVolumes adds a container that mounts all volumes: a SidecarSet adds no others.
func mountVolumes(fields map[string]any) {
	volumes, _ := fields["volumes"].([]any)
	if len(volumes) == 0 {
		return
	}
	mount := map[string]any{"name": volumes[0].(map[string]any)["name"], "mountPath": "/a"}
	fields["containers"] = []any{map[string]any{"name": "a", "image": "a", "volumeMounts": []any{mount}}}
}

// TestEveryPodField checks that each field of a container, of a volume and of the spec of a pod is in the template or in the report,
// wherever a configuration has it. Each field has a value of its own, by which the test finds it.
func TestEveryPodField(t *testing.T) {
	checked, every := 0, size.Choose(t, 5, 1)
	for _, c := range allCarriers() {
		t.Run(c.name, func(t *testing.T) {
			for i, spec := range podSpecs(t) {
				if i%every != 0 {
					continue
				}
				pod := decodeMap(t, spec)
				part := ""
				for name := range pod["spec"].(map[string]any) {
					part = name
				}
				if c.only != nil && !slices.Contains(c.only, part) {
					continue
				}
				document := c.document(t, pod)
				results, err := Import([]Source{{"input.yaml", []byte(document)}})
				if err != nil {
					t.Fatal(err, document)
				}
				checkTemplates(t, results[0].Templates)
				for _, leaf := range leavesOf(t, pod) {
					checked++
					if !isReported(results[0], c.path(leaf.path)) && !isExpressed(results[0], leaf) {
						t.Errorf("%s: %s is dropped\n%s\n%s", leaf.path, leaf.node.Value, document, YAML(results)+Text(results))
					}
				}
			}
		})
	}
	if checked < 2000/every {
		t.Errorf("only %d fields are checked", checked)
	}
}

// podSpecs returns specs of pods with one part each. Together they have all fields of the API.
func podSpecs(t *testing.T) (all []string) {
	add := func(part, value string) { all = append(all, fmt.Sprintf(`{"spec": {%q: %s}}`, part, value)) }
	f := &filler{}
	for _, value := range f.eachField(reflect.TypeFor[corev1.Container]()) {
		value["name"], value["image"] = "added", "registry.example/added:1"
		for _, list := range []string{"containers", "initContainers"} {
			add(list, "["+asJSON(t, value)+"]")
		}
	}
	for _, value := range f.eachField(reflect.TypeFor[corev1.VolumeSource]()) {
		value["name"] = "added"
		add("volumes", "["+asJSON(t, value)+"]")
	}
	for _, value := range f.eachField(reflect.TypeFor[corev1.PodSpec]()) {
		for name, part := range value {
			if !slices.Contains([]string{"containers", "initContainers", "volumes"}, name) {
				add(name, asJSON(t, part))
			}
		}
	}
	return all
}

// filler makes values of which each one is different.
type filler struct{ count int }

// eachField returns an object for each field of a type.
func (f *filler) eachField(typ reflect.Type) (all []map[string]any) {
	for i := range typ.NumField() {
		object := reflect.New(typ).Elem()
		f.fillValue(object.Field(i))
		data, err := json.Marshal(object.Interface())
		var fields map[string]any
		if err == nil {
			decoder := json.NewDecoder(bytes.NewReader(data))
			decoder.UseNumber()
			err = decoder.Decode(&fields)
		}
		if err != nil {
			panic(err)
		}
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if value, ok := fields[name]; ok {
			all = append(all, map[string]any{name: value})
		}
	}
	return all
}

func (f *filler) fillValue(v reflect.Value) {
	f.count++
	switch value := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*value = resource.MustParse(strconv.Itoa(1000 + f.count))
		return
	case *intstr.IntOrString:
		*value = intstr.FromInt32(int32(1000 + f.count))
		return
	case *metav1.FieldsV1:
		value.SetRawString("{}")
		return
	case *metav1.Time:
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("value-%d-", f.count))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(1000 + f.count))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fillValue(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fillValue(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fillValue(key)
		f.fillValue(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for _, field := range v.Fields() {
			f.fillValue(field)
		}
	}
}

func decodeMap(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		t.Fatal(err)
	}
	return object
}

// leavesOf returns the scalars of a pod.
func leavesOf(t *testing.T, pod map[string]any) (leaves []*field) {
	t.Helper()
	doc, err := parseDocument(asJSON(t, pod))
	if err != nil {
		t.Fatal(err)
	}
	root, err := newField(doc.Content[0])
	if err != nil {
		t.Fatal(err)
	}
	var walk func(f *field)
	walk = func(f *field) {
		if len(f.children) == 0 && f.kind == yaml.ScalarNode && f.name != "(name)" {
			leaves = append(leaves, f)
		}
		for _, child := range f.children {
			walk(child)
		}
	}
	walk(root)
	return leaves
}

// isReported reports whether a finding is about a field, or about something that contains it.
func isReported(r Imported, path string) bool {
	for _, f := range append(slices.Clone(r.LeftOut), r.Notes...) {
		for at := range strings.SplitSeq(f.Field, ", ") {
			if rest, ok := strings.CutPrefix(path, at); ok && (at == "" || rest == "" || strings.ContainsAny(rest[:1], ".[:")) {
				return true
			}
		}
	}
	return false
}

var commentLine = regexp.MustCompile(`(?m)^ *#.*\n`)

// isExpressed reports whether a template has the value of a field.
func isExpressed(r Imported, leaf *field) bool {
	value := regexp.QuoteMeta(leaf.node.Value)
	if leaf.node.Tag == "!!bool" {
		value = leaf.name + ": " + value
	}
	find := regexp.MustCompile(`(^|[^\w])` + value + `([^\w]|$)`)
	return slices.ContainsFunc(r.Templates, func(t Template) bool { return find.MatchString(commentLine.ReplaceAllString(t.YAML, "")) })
}
