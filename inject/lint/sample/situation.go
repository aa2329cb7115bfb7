// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"bytes"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// Situation is the input of a template's expressions.
type Situation struct {
	Pod       []byte // JSON
	Owner     Owner
	Namespace request.Namespace
	Username  string
	DryRun    bool
}

// Owner is the workload that the pod belongs to, as in the package inject. Samples have none.
type Owner struct {
	Kind, Name, Selector string
}

// ServiceAccount returns what is known about the pod's ServiceAccount.
func (s *Situation) ServiceAccount() (request.ServiceAccount, error) {
	pod, err := jsontree.Parse(s.Pod)
	if err != nil {
		return request.ServiceAccount{}, err
	}
	return s.Namespace.ServiceAccount(pod), nil
}

// isPod reports whether the JSON is a pod. It returns false if a value has the wrong type.
func isPod(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(&corev1.Pod{}) == nil
}
