// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"bytes"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates"
)

// Situation is what a template's expressions read.
type Situation struct {
	Pod       []byte // JSON
	Namespace templates.Namespace
	Username  string
	DryRun    bool
}

// Request is the request that creates the pod.
func (s Situation) Request() templates.RequestInfo {
	return templates.RequestInfo{Operation: "CREATE", Username: s.Username, DryRun: s.DryRun}
}

// decodes reports whether JSON is a pod: a value of the wrong type is none.
func decodes(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(&corev1.Pod{}) == nil
}
