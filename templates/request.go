// SPDX-License-Identifier: Apache-2.0

package templates

// Namespace is the pod's namespace.
type Namespace struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	// Known is false if only the name is known.
	Known bool
}

// RequestInfo is the part of the admission request that templates may read.
type RequestInfo struct {
	Operation string // CREATE
	Username  string
	DryRun    bool
}
