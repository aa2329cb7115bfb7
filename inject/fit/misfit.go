// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// Room reports why the API server would not take n more pods like this one in a namespace
// with these labels; "" if it would.
func (e *Evaluator) Room(namespace map[string]string, limits Limits, pod []byte, n int) string {
	var one corev1.Pod
	if e.absurd.Match(pod) || json.Unmarshal(pod, &one) != nil {
		return "the pod has a quantity that cannot be read"
	}
	if v := e.Violation(namespace, &one); v != "" {
		return v
	}
	for _, b := range limits.breaches(&one, n) {
		return b.text
	}
	return ""
}

// Misfits reports why the API server would refuse a pod once something was injected
// into it that it would take as it is: one sentence for each Pod Security level,
// LimitRange and quota of its namespace that only the injected one breaks. The
// pods are JSON; nothing is said of what does not decode as one.
func (e *Evaluator) Misfits(namespace map[string]string, limits Limits, before, after []byte) []string {
	var plain, injected corev1.Pod
	if e.absurd.Match(before) || e.absurd.Match(after) {
		return nil
	}
	if json.Unmarshal(before, &plain) != nil || json.Unmarshal(after, &injected) != nil {
		return nil
	}
	var all []string
	if v := e.Violation(namespace, &injected); v != "" && e.Violation(namespace, &plain) == "" {
		all = append(all, "the pod is denied: "+v)
	}
	all = append(all, limits.Broken(&plain, &injected)...)
	for i := range all {
		all[i] = "once injected, " + all[i]
	}
	return all
}
