// SPDX-License-Identifier: Apache-2.0

package diff

import "github.com/pillion-dev/pillion/inject/report/yamldiff"

// Diff is a change of the pods of some owners, as a unified diff of the YAML of one of them.
type Diff struct {
	Diff   string   `json:"diff"`
	Owners []string `json:"owners"` // NAMESPACE/KIND/NAME
	Pods   int      `json:"pods"`

	index int
}

// newDiff compares two pods of a workload.
func newDiff(name string, from, to []byte) *Diff {
	return &Diff{Diff: yamldiff.Of(name+" (now)", podYAML(from), name+" (then)", podYAML(to))}
}

// podYAML returns a pod as YAML, without what is not of its template.
func podYAML(pod []byte) string {
	v, _ := yamldiff.Decode(pod).(map[string]any)
	for _, name := range []string{"apiVersion", "kind", "status"} {
		delete(v, name)
	}
	if metadata, ok := v["metadata"].(map[string]any); ok {
		for name := range metadata {
			if name != "labels" && name != "annotations" {
				delete(metadata, name)
			}
		}
		if len(metadata) == 0 {
			delete(v, "metadata")
		}
	}
	return yamldiff.Encode(v)
}
