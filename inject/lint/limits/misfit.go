// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// Room returns why the API server would reject n more pods like this one in a namespace with
// these labels, or "" if it would accept them.
func (e *Evaluator) Room(namespace map[string]string, limits Limits, pod []byte, n int) string {
	var one corev1.Pod
	if isAbsurd(pod) || json.Unmarshal(pod, &one) != nil {
		return "the pod has a quantity that cannot be read"
	}
	if v := e.Violation(namespace, &one); v != "" {
		return v
	}
	for _, b := range limits.findBreaches(&one, n) {
		return b.text
	}
	return ""
}

// Original returns the reasons why the API server would deny a pod without any injection, apart
// from quotas that are used up at the moment. If the JSON cannot be decoded, it returns nil.
func (e *Evaluator) Original(namespace map[string]string, limits Limits, pod []byte) (why []string) {
	var one corev1.Pod
	if isAbsurd(pod) || json.Unmarshal(pod, &one) != nil {
		return nil
	}
	if v := e.Violation(namespace, &one); v != "" {
		why = append(why, v)
	}
	for _, b := range limits.findBreaches(&one, 1) {
		if !b.now {
			why = append(why, b.text)
		}
	}
	return why
}

// Misfits returns the reasons why the API server would deny the injected pod, although
// it would accept the original one: one sentence for each Pod Security level,
// LimitRange and quota of the namespace that only the injected pod violates. The pods
// are JSON; if one cannot be decoded, Misfits returns nil.
func (e *Evaluator) Misfits(namespace map[string]string, limits Limits, before, after []byte) []string {
	var plain, injected corev1.Pod
	if isAbsurd(before) || isAbsurd(after) {
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
