// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/pillion-dev/pillion/cmd/pillion/manifest"
	"github.com/pillion-dev/pillion/templates/request"
)

// accountFlag sets annotations of the ServiceAccounts.
const accountFlag = "service-account-annotation"

// accounts finds the ServiceAccounts of a namespace in the manifests, the case of a test or the cluster, and adds the annotations of
// the flags.
type accounts struct {
	declared    manifest.Declared
	usual       bool                    // whether it is the namespace of objects without one
	all         *request.ServiceAccount // what all ServiceAccounts are, or nil
	annotations []string                // of the flags
	cluster     request.ServiceAccounts // nil: there is no cluster
}

// ServiceAccount implements [request.ServiceAccounts]. With flags, every ServiceAccount is known.
func (a accounts) ServiceAccount(namespace, name string) request.ServiceAccount {
	account := request.ServiceAccount{Name: name}
	if a.cluster != nil {
		account = a.cluster.ServiceAccount(namespace, name)
	}
	if declared, ok := a.declared.Account(namespace, name, a.usual); ok {
		account = declared
	}
	if a.all != nil {
		account.Labels, account.Annotations, account.Known = a.all.Labels, a.all.Annotations, true
	}
	if changed, err := overlayMetadata(accountFlag, account.Annotations, a.annotations); err == nil && len(a.annotations) > 0 {
		account.Annotations, account.Known = changed, true
	}
	return account
}
