// SPDX-License-Identifier: Apache-2.0

package uninject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

func notJSON(err error) error { return fmt.Errorf("the pod is not JSON: %w", err) }

// decodeDocument decodes JSON into maps, slices and scalars. Numbers keep their digits.
func decodeDocument(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var doc any
	err := d.Decode(&doc)
	return doc, err
}

// parseAgain is the inverse of decodeDocument, with a tree as the result.
func parseAgain(doc any) (*jsontree.Node, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	return jsontree.Parse(text)
}

// isFromServer reports whether the pod comes from an API server, by two defaults that every such pod has.
func isFromServer(pod *jsontree.Node) bool {
	return pod.At("spec", "schedulerName") != nil && pod.At("spec", "dnsPolicy") != nil
}

// removeValue returns doc without the value at a path. It also reports whether its parent is then
// empty.
func removeValue(doc any, path string) (after any, empty bool) {
	after = editParent(doc, pathTokens(path), func(parent any, name string) any {
		switch at := parent.(type) {
		case map[string]any:
			delete(at, name)
			empty = len(at) == 0
		case []any:
			if i, err := strconv.Atoi(name); err == nil && i < len(at) {
				at = slices.Delete(at, i, i+1)
				empty = len(at) == 0
				return at
			}
		}
		return parent
	})
	return after, empty
}

// setMember sets a member of an object in doc.
func setMember(doc any, path string, value any) {
	editParent(doc, pathTokens(path), func(parent any, name string) any {
		if at, ok := parent.(map[string]any); ok {
			at[name] = value
		}
		return parent
	})
}

func pathTokens(path string) []string { return strings.Split(path, "/")[1:] }

// editParent replaces the object or list that contains the value at a path with the result of change, and returns the document. Name
// is the last part of the path. If the document has no such parent, nothing changes.
func editParent(doc any, path []string, change func(parent any, name string) any) any {
	name := schema.Unescape(path[0])
	if len(path) == 1 {
		return change(doc, name)
	}
	switch at := doc.(type) {
	case map[string]any:
		if child, ok := at[name]; ok {
			at[name] = editParent(child, path[1:], change)
		}
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(at) {
			at[i] = editParent(at[i], path[1:], change)
		}
	}
	return doc
}
