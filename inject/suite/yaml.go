// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates"
)

// difference returns the lines that differ, or "".
func difference(want, got string) string {
	text := string(diff.Diff("expected", []byte(want), "got", []byte(got)))
	_, after, _ := strings.Cut(text, "\n") // the first line names the program
	return after
}

// podYAML returns a pod as YAML, without its kind, which a pod template lacks, and without the records
// of injections, which change with every change of the templates.
func podYAML(text []byte) string {
	pod, _ := decode(text).(map[string]any)
	metadata, _ := pod["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	maps.DeleteFunc(annotations, func(key string, _ any) bool {
		_, name, ok := templates.SplitAnnotation(key)
		return ok && name == templates.AnnotationInjected
	})
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	if len(metadata) == 0 {
		delete(pod, "metadata")
	}
	delete(pod, "apiVersion")
	delete(pod, "kind")
	return encode(pod)
}

// yamlOf returns JSON as YAML with sorted keys.
func yamlOf(text []byte) string { return encode(decode(text)) }

// decode returns the value of JSON that is valid.
func decode(text []byte) any {
	var v any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		panic("suite: a parsed value is no JSON: " + err.Error())
	}
	return withNumbers(v)
}

func encode(v any) string {
	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := errors.Join(encoder.Encode(v), encoder.Close()); err != nil {
		panic("suite: JSON is no YAML: " + err.Error())
	}
	return out.String()
}

// withNumbers makes YAML keep the digits of numbers.
func withNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}
	case map[string]any:
		for key := range v {
			v[key] = withNumbers(v[key])
		}
	case []any:
		for i := range v {
			v[i] = withNumbers(v[i])
		}
	}
	return v
}
