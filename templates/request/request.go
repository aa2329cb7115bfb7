// SPDX-License-Identifier: Apache-2.0

// Package request has what templates may read besides the pod: the namespace and the ServiceAccount of the pod, and the admission request.
package request

import (
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Namespace is the pod's namespace.
type Namespace struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	// Known is false if only the name is known.
	Known bool
	// ServiceAccounts are those of the namespace, or nil if none is known.
	ServiceAccounts ServiceAccounts
	// Before is what the namespace was a moment ago, or nil. Another replica may have injected pods
	// with it.
	Before *Namespace
}

// Info is the part of the admission request that templates may read.
type Info struct {
	Operation string // CREATE
	Username  string
	DryRun    bool
}

// ServiceAccount is the pod's ServiceAccount.
type ServiceAccount struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	// Known is false if only the name is known.
	Known bool
	// NoToken reports whether its automountServiceAccountToken is false. It is only set for those of files and of the command line.
	NoToken bool
	// Before is what the ServiceAccount was a moment ago, or nil. Another replica may have injected
	// pods with it.
	Before *ServiceAccount
}

// ServiceAccounts returns what is known about a ServiceAccount. Requests wait for it, so it must
// answer from memory.
type ServiceAccounts interface {
	ServiceAccount(namespace, name string) ServiceAccount
}

// SameServiceAccount are ServiceAccounts that all have the same labels and annotations.
type SameServiceAccount ServiceAccount

// ServiceAccount implements [ServiceAccounts].
func (s SameServiceAccount) ServiceAccount(_, name string) ServiceAccount {
	s.Name = name
	return ServiceAccount(s)
}

// ServiceAccount returns what is known about the ServiceAccount of a pod in the namespace.
func (ns *Namespace) ServiceAccount(pod *jsontree.Node) ServiceAccount {
	name := ServiceAccountName(pod)
	if ns.ServiceAccounts == nil {
		return ServiceAccount{Name: name}
	}
	return ns.ServiceAccounts.ServiceAccount(ns.Name, name)
}

// ServiceAccountName returns the name of a pod's ServiceAccount, as the ServiceAccount admission
// plugin sets it. In a file, the field may have its old name.
func ServiceAccountName(pod *jsontree.Node) string {
	spec := pod.Get("spec")
	for _, field := range []string{"serviceAccountName", "serviceAccount"} {
		if name := spec.Get(field).Text(); name != "" {
			return name
		}
	}
	return "default"
}

// AccountVariable is the name of the ServiceAccount in expressions.
const AccountVariable = "serviceAccount"

// AccountName is the part of the pod that is the ServiceAccount's name.
const AccountName = "spec.serviceAccountName"

// Annotation returns the value of an annotation. A nil ServiceAccount has none.
func (a *ServiceAccount) Annotation(key string) (text string, ok bool) {
	if a != nil {
		text, ok = a.Annotations[key]
	}
	return text, ok
}

// Annotation returns the value of an annotation.
func (ns *Namespace) Annotation(key string) (text string, ok bool) {
	if len(ns.Annotations) > 0 {
		text, ok = ns.Annotations[key]
	}
	return text, ok
}
