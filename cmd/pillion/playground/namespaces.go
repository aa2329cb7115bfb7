// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"errors"

	"github.com/pillion-dev/pillion/cmd/pillion/manifest"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// usual is the namespace of objects without one.
const usual = "default"

// known is what is known about namespaces and ServiceAccounts: those in the manifest, and for others the fields of
// the page.
type known struct {
	declared manifest.Declared
	fields   request.Namespace
}

// namespaceOf returns the namespace of an object.
func (k known) namespaceOf(o manifest.Object) request.Namespace {
	ns := k.fields
	if ns.Name = o.Node.At("metadata", "namespace").Text(); ns.Name == "" {
		ns.Name = usual
	}
	if declared, ok := k.declared.Namespaces[ns.Name]; ok {
		ns = declared
	}
	ns.ServiceAccounts = k
	return ns
}

// ServiceAccount implements [request.ServiceAccounts].
func (k known) ServiceAccount(namespace, name string) request.ServiceAccount {
	if account, ok := k.declared.Account(namespace, name, namespace == usual); ok {
		return account
	}
	return k.fields.ServiceAccounts.ServiceAccount(namespace, name)
}

// readManifest reads the namespaces and ServiceAccounts in a manifest, and returns mistakes in them. Mistakes of YAML are
// not among these, because all documents are read again.
func (k *known) readManifest(manifest string) (mistakes []Problem) {
	for _, d := range yamledit.Split([]byte(manifest)) {
		if err := k.declared.Read(d); err != nil {
			if _, invalid := d.Parse(); invalid == nil {
				mistakes = append(mistakes, mistakeIn(d, err))
			}
		}
	}
	return mistakes
}

// readFields returns the namespace and its ServiceAccounts in the fields of the page.
func (out *Output) readFields(in *Input) request.Namespace {
	return request.Namespace{
		Name: usual, Known: true,
		Labels: out.readStrings("namespaceLabels", in.NamespaceLabels), Annotations: out.readStrings("namespaceAnnotations", in.NamespaceAnnotations),
		ServiceAccounts: request.SameServiceAccount{
			Name: "default", Known: true,
			Labels: out.readStrings("accountLabels", in.AccountLabels), Annotations: out.readStrings("accountAnnotations", in.AccountAnnotations),
		},
	}
}

// readStrings returns the labels or annotations in a field of the page.
func (out *Output) readStrings(field, text string) map[string]string {
	var node jsontree.Node
	root, err := yamledit.Document{Body: []byte(text)}.Parse()
	if err == nil && len(root.Content) > 0 {
		if node, err = jsontree.FromYAML(root.Node); err == nil && node.Kind() != jsontree.Object {
			err = errors.New(`line 1: write one "key: value" per line`)
		}
	}
	if err != nil {
		line, message := jsontree.CutLine(err.Error())
		out.Mistakes = append(out.Mistakes, Problem{Field: field, Line: max(line, 1), Message: message})
		return nil
	}
	return manifest.Strings(&node)
}
