// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// jsonOutput returns a single document unchanged, and several as a List.
func jsonOutput(documents []jsontree.Node) ([]byte, error) {
	var out jsontext.Value
	switch len(documents) {
	case 0:
		return nil, nil
	case 1:
		out = documents[0].AppendTo(nil)
	default:
		items := jsontree.Items()
		for i := range documents {
			for _, item := range flattenList(&documents[i]) {
				items.Append(item)
			}
		}
		list := jsontree.Members(jsontree.Field("apiVersion", jsontree.Text("v1")), jsontree.Field("kind", jsontree.Text("List")), jsontree.Field("items", items))
		out = list.AppendTo(nil)
	}
	if err := out.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, err
	}
	return append(out, '\n'), nil
}

// flattenList returns the object itself, or the items of a list, because kubectl accepts no list
// inside a list. In a typed list, the kind of the list implies the kind of its items.
func flattenList(n *jsontree.Node) []jsontree.Node {
	list := n.Get("items")
	if list.Kind() != jsontree.Array {
		return []jsontree.Node{*n}
	}
	of := map[string]string{"apiVersion": n.Get("apiVersion").Text(), "kind": strings.TrimSuffix(n.Get("kind").Text(), "List")}
	var all []jsontree.Node
	items := list.Items()
	for i := range items {
		if items[i].Kind() != jsontree.Object {
			return []jsontree.Node{*n}
		}
		item := jsontree.Members()
		for _, name := range []string{"apiVersion", "kind"} {
			if items[i].Get(name) == nil && of["kind"] != "" {
				item.Set(name, jsontree.Text(of[name]))
			}
		}
		for _, m := range items[i].Members() {
			item.Set(m.Name(), m)
		}
		all = append(all, flattenList(&item)...)
	}
	return all
}

// locateError returns an error of a document in one line, with the file. The message may quote the
// document.
func locateError(d yamledit.Document, file string, err error) error {
	return errors.New(problem.OneLine(d.Locate(file, err).Error()))
}
