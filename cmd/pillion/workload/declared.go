// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// Declared is what manifests contain about namespaces and ServiceAccounts.
type Declared struct {
	Namespaces map[string]templates.Namespace
	// Accounts are the ServiceAccounts by NAMESPACE/NAME. The namespace is "" if the manifest has none.
	Accounts map[string]templates.ServiceAccount
}

// Read records the namespaces and ServiceAccounts in a document. It returns an error if one of them
// cannot be read: its pods must not count as opted in for that reason.
func (all *Declared) Read(d yamledit.Document) error {
	// A document with escapes may contain the word without these letters.
	if !slices.ContainsFunc([]string{"Namespace", "ServiceAccount", `\`}, func(word string) bool { return bytes.Contains(d.Body, []byte(word)) }) {
		return nil
	}
	root, err := d.Parse()
	if err != nil || len(root.Content) == 0 {
		return err
	}
	node, err := tree.FromYAML(root.Node)
	if err != nil {
		if kind := KindOf(root.Content[0]); kind == "Namespace" || kind == "ServiceAccount" {
			return fmt.Errorf("this %s cannot be read: %w", kind, err)
		}
		return nil
	}
	return all.in(&node, "", "")
}

// in records the namespaces and ServiceAccounts in an object or a list.
func (all *Declared) in(node *tree.Node, apiVersion, kind string) error {
	if text := node.At("apiVersion").Text(); text != "" {
		apiVersion = text
	}
	if text := node.At("kind").Text(); text != "" {
		kind = text
	}
	of, isList := strings.CutSuffix(kind, "List")
	switch {
	case apiVersion != "v1":
	case kind == "Namespace":
		return all.namespace(node)
	case kind == "ServiceAccount":
		return all.account(node)
	case isList && (of == "" || of == "Namespace" || of == "ServiceAccount"):
		items := node.At("items").Items()
		for i := range items {
			if err := all.in(&items[i], apiVersion, of); err != nil {
				return err
			}
		}
	}
	return nil
}

func (all *Declared) namespace(node *tree.Node) error {
	name := node.At("metadata", "name").Text()
	if name == "" {
		return errors.New("this Namespace has no metadata.name that is a string")
	}
	if err := checkMaps(node, fmt.Sprintf("the Namespace %q", name)); err != nil {
		return err
	}
	if all.Namespaces == nil {
		all.Namespaces = map[string]templates.Namespace{}
	}
	all.Namespaces[name] = templates.Namespace{
		Name: name, Known: true,
		Labels: Strings(node.At("metadata", "labels")), Annotations: Strings(node.At("metadata", "annotations")),
	}
	return nil
}

func (all *Declared) account(node *tree.Node) error {
	name := node.At("metadata", "name").Text()
	if name == "" {
		return errors.New("this ServiceAccount has no metadata.name that is a string")
	}
	if err := checkMaps(node, fmt.Sprintf("the ServiceAccount %q", name)); err != nil {
		return err
	}
	if all.Accounts == nil {
		all.Accounts = map[string]templates.ServiceAccount{}
	}
	all.Accounts[node.At("metadata", "namespace").Text()+"/"+name] = templates.ServiceAccount{
		Name: name, Known: true,
		Labels: Strings(node.At("metadata", "labels")), Annotations: Strings(node.At("metadata", "annotations")),
	}
	return nil
}

// Account returns a ServiceAccount. In the usual namespace, which objects without a namespace are in, it may be
// one without a namespace.
func (all *Declared) Account(namespace, name string, usual bool) (account templates.ServiceAccount, ok bool) {
	if account, ok = all.Accounts[namespace+"/"+name]; !ok && usual {
		account, ok = all.Accounts["/"+name]
	}
	return account, ok
}

// checkMaps returns an error if labels or annotations are not objects.
func checkMaps(node *tree.Node, of string) error {
	for _, field := range []string{"labels", "annotations"} {
		if n := node.At("metadata", field); n != nil && n.Kind() != tree.Object && n.Kind() != tree.Null {
			return fmt.Errorf("metadata.%s of %s must be an object", field, of)
		}
	}
	return nil
}
