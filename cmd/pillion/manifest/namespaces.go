// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// Declared is what manifests contain about namespaces and ServiceAccounts.
type Declared struct {
	Namespaces map[string]request.Namespace
	// Accounts are the ServiceAccounts by NAMESPACE/NAME. The namespace is "" if the manifest has none.
	Accounts map[string]request.ServiceAccount
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
	node, err := jsontree.FromYAML(root.Node)
	if err != nil {
		if kind := KindOf(root.Content[0]); kind == "Namespace" || kind == "ServiceAccount" {
			return fmt.Errorf("this %s cannot be read: %w", kind, err)
		}
		return nil
	}
	return all.recordObject(&node, "", "")
}

// recordObject records the namespaces and ServiceAccounts in an object or a list.
func (all *Declared) recordObject(node *jsontree.Node, apiVersion, kind string) error {
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
		return all.recordNamespace(node)
	case kind == "ServiceAccount":
		return all.recordAccount(node)
	case isList && (of == "" || of == "Namespace" || of == "ServiceAccount"):
		items := node.At("items").Items()
		for i := range items {
			if err := all.recordObject(&items[i], apiVersion, of); err != nil {
				return err
			}
		}
	}
	return nil
}

func (all *Declared) recordNamespace(node *jsontree.Node) error {
	name, labels, annotations, err := readMetadata(node, "Namespace")
	if err != nil {
		return err
	}
	if all.Namespaces == nil {
		all.Namespaces = map[string]request.Namespace{}
	}
	all.Namespaces[name] = request.Namespace{Name: name, Known: true, Labels: labels, Annotations: annotations}
	return nil
}

func (all *Declared) recordAccount(node *jsontree.Node) error {
	name, labels, annotations, err := readMetadata(node, "ServiceAccount")
	if err != nil {
		return err
	}
	if all.Accounts == nil {
		all.Accounts = map[string]request.ServiceAccount{}
	}
	all.Accounts[node.At("metadata", "namespace").Text()+"/"+name] = request.ServiceAccount{
		Name: name, Known: true, Labels: labels, Annotations: annotations, NoToken: node.Get("automountServiceAccountToken").Kind() == jsontree.False,
	}
	return nil
}

// readMetadata returns the name, labels and annotations of an object, or an error if these have another type.
func readMetadata(node *jsontree.Node, kind string) (name string, labels, annotations map[string]string, err error) {
	name = node.At("metadata", "name").Text()
	if name == "" {
		return "", nil, nil, fmt.Errorf("this %s has no metadata.name that is a string", kind)
	}
	for _, field := range []string{"labels", "annotations"} {
		if n := node.At("metadata", field); n != nil && n.Kind() != jsontree.Object && n.Kind() != jsontree.Null {
			return "", nil, nil, fmt.Errorf("metadata.%s of the %s %q must be an object", field, kind, name)
		}
	}
	return name, Strings(node.At("metadata", "labels")), Strings(node.At("metadata", "annotations")), nil
}

// Account returns a ServiceAccount. In the usual namespace, which objects without a namespace are in, it may be
// one without a namespace.
func (all *Declared) Account(namespace, name string, usual bool) (account request.ServiceAccount, ok bool) {
	if account, ok = all.Accounts[namespace+"/"+name]; !ok && usual {
		account, ok = all.Accounts["/"+name]
	}
	return account, ok
}
