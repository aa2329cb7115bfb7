// SPDX-License-Identifier: Apache-2.0

package templatetest

import (
	"maps"

	"github.com/pillion-dev/pillion/inject/report/yamldiff"
	"github.com/pillion-dev/pillion/templates"
)

// diffLines returns the lines that differ, or "".
func diffLines(want, got string) string { return yamldiff.Of("expected", want, "got", got) }

// podYAML returns a pod as YAML, without its kind, which a pod template lacks, and without the records
// of injections, which change with every change of the templates.
func podYAML(text []byte) string {
	pod, _ := yamldiff.Decode(text).(map[string]any)
	metadata, _ := pod["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	maps.DeleteFunc(annotations, func(key string, _ any) bool {
		_, name, ok := templates.SplitAnnotation(key)
		return ok && templates.IsRecord(name)
	})
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	if len(metadata) == 0 {
		delete(pod, "metadata")
	}
	delete(pod, "apiVersion")
	delete(pod, "kind")
	return yamldiff.Encode(pod)
}

// yamlOf returns JSON as YAML with sorted keys.
func yamlOf(text []byte) string { return yamldiff.Encode(yamldiff.Decode(text)) }
