// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"
)

// Standing is the Pod Security level and the quality of service class of a pod.
type Standing struct {
	Level psa.Level          `json:"level"` // "" if the pod cannot be read
	Why   string             `json:"why"`   // why it does not conform to the next level, or cannot be read
	QoS   corev1.PodQOSClass `json:"qos"`
}

// Standing returns that of a pod, which is JSON.
func (e *Evaluator) Standing(pod []byte) Standing {
	var p corev1.Pod
	if isAbsurd(pod) {
		return Standing{Why: "the pod has a quantity that cannot be read"}
	}
	if err := json.Unmarshal(pod, &p); err != nil {
		return Standing{Why: err.Error()}
	}
	level, why := e.Level(&p)
	return Standing{level, why, QoS(withDefaults(&p))}
}
