// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Unstructured returns objects without the fields that only a server sets.
func Unstructured(objects []runtime.Object) ([]any, error) {
	items := []any{}
	for _, object := range objects {
		item, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		delete(item, "status")
		if metadata, ok := item["metadata"].(map[string]any); ok {
			delete(metadata, "creationTimestamp")
		}
		items = append(items, item)
	}
	return items, nil
}

// YAML returns objects as a YAML stream, without the fields that only a server sets.
func YAML(objects []runtime.Object) ([]byte, error) {
	items, err := Unstructured(objects)
	if err != nil {
		return nil, err
	}
	var stream bytes.Buffer
	for i, item := range items {
		text, err := yaml.Marshal(item)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			stream.WriteString("---\n")
		}
		stream.Write(text)
	}
	return stream.Bytes(), nil
}
