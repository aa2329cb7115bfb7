// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/pillion-dev/pillion/cmd/pillion/workload"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// accountFlag sets annotations of the ServiceAccounts.
const accountFlag = "service-account-annotation"

// accounts are the ServiceAccounts of a namespace that the manifests, the case of a test or the cluster
// have, with the annotations of the flags.
type accounts struct {
	declared    map[string]templates.ServiceAccount // see declareAccount
	usual       bool                                // whether it is the namespace of objects without one
	all         *templates.ServiceAccount           // what all ServiceAccounts are, or nil
	annotations []string                            // of the flags
	cluster     templates.ServiceAccounts           // nil: there is no cluster
}

// ServiceAccount implements [templates.ServiceAccounts]. With flags, every ServiceAccount is known.
func (a accounts) ServiceAccount(namespace, name string) templates.ServiceAccount {
	account := templates.ServiceAccount{Name: name}
	if a.cluster != nil {
		account = a.cluster.ServiceAccount(namespace, name)
	}
	if declared, ok := a.declared[namespace+"/"+name]; ok {
		account = declared
	} else if declared, ok := a.declared["/"+name]; ok && a.usual {
		account = declared
	}
	if a.all != nil {
		account.Labels, account.Annotations, account.Known = a.all.Labels, a.all.Annotations, true
	}
	if changed, err := overlay(accountFlag, account.Annotations, a.annotations); err == nil && len(a.annotations) > 0 {
		account.Annotations, account.Known = changed, true
	}
	return account
}

// declareAccount records a ServiceAccount of the manifests, by its namespace (or "") and name.
func declareAccount(all map[string]templates.ServiceAccount, node *tree.Node) error {
	name := node.At("metadata", "name").Text()
	if name == "" {
		return errors.New("this ServiceAccount has no metadata.name that is a string")
	}
	if err := checkMaps(node, fmt.Sprintf("the ServiceAccount %q", name)); err != nil {
		return err
	}
	all[node.At("metadata", "namespace").Text()+"/"+name] = templates.ServiceAccount{
		Name: name, Known: true,
		Labels: workload.Strings(node.At("metadata", "labels")), Annotations: workload.Strings(node.At("metadata", "annotations")),
	}
	return nil
}
