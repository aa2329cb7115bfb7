// SPDX-License-Identifier: Apache-2.0

package testwebhook

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Edit turns a function that changes a pod into a Mutate. Like webhooks that decode pods into
// Kubernetes' types, it replaces changed parts completely: the labels, the annotations, or a
// field of the spec. The function gets labels and annotations that are not nil.
func Edit(edit func(*corev1.Pod)) Mutate {
	return func(pod *corev1.Pod) []Operation {
		edited := pod.DeepCopy()
		if edited.Labels == nil {
			edited.Labels = map[string]string{}
		}
		if edited.Annotations == nil {
			edited.Annotations = map[string]string{}
		}
		edit(edited)
		return slices.Concat(
			changes("/metadata/", metadata(pod), metadata(edited)),
			changes("/spec/", members(pod.Spec), members(edited.Spec)))
	}
}

func metadata(pod *corev1.Pod) map[string]json.RawMessage {
	return members(struct {
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}{pod.Labels, pod.Annotations})
}

// members returns the JSON members of an object of Kubernetes' types, which cannot fail.
func members(object any) map[string]json.RawMessage {
	text, _ := json.Marshal(object)
	var all map[string]json.RawMessage
	_ = json.Unmarshal(text, &all)
	return all
}

func changes(path string, before, after map[string]json.RawMessage) []Operation {
	var ops []Operation
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[key]; !ok {
			ops = append(ops, Operation{Op: "remove", Path: path + key})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if !bytes.Equal(before[key], after[key]) {
			ops = append(ops, Operation{"add", path + key, after[key]}) // replaces an existing value
		}
	}
	return ops
}
