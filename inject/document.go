// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/tree"
)

func notJSON(err error) error { return fmt.Errorf("the pod is not JSON: %w", err) }

func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var doc any
	err := d.Decode(&doc)
	return doc, err
}

func parseAgain(doc any) (*tree.Node, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	return tree.Parse(text)
}

// served reports whether the pod comes from an API server.
func served(pod *tree.Node) bool {
	return pod.At("spec", "schedulerName") != nil && pod.At("spec", "dnsPolicy") != nil
}

// without returns doc without the value at the path. It also reports whether its parent is then
// empty.
func without(doc any, names []string) (after any, empty bool) {
	name := schema.Unescape(names[0])
	switch at := doc.(type) {
	case map[string]any:
		if len(names) > 1 {
			at[name], empty = without(at[name], names[1:])
			return at, empty
		}
		delete(at, name)
		return at, len(at) == 0
	case []any:
		i, err := strconv.Atoi(name)
		if err != nil || i >= len(at) {
			return at, false
		}
		if len(names) > 1 {
			at[i], empty = without(at[i], names[1:])
			return at, empty
		}
		at = slices.Delete(at, i, i+1)
		return at, len(at) == 0
	}
	return doc, false
}
