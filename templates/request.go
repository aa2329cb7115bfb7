// SPDX-License-Identifier: Apache-2.0

package templates

// Namespace is the pod's namespace.
type Namespace struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	// Known is false where nothing but the name is known.
	Known bool
}

// RequestInfo is what a template may know of the admission request.
type RequestInfo struct {
	Operation string // CREATE
	Username  string
	DryRun    bool
}
