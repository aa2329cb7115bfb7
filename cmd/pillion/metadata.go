// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"strings"

	"github.com/pillion-dev/pillion/templates/tree"
)

// checkMaps returns an error if labels or annotations are not objects.
func checkMaps(node *tree.Node, of string) error {
	for _, field := range []string{"labels", "annotations"} {
		if n := node.At("metadata", field); n != nil && n.Kind() != tree.Object && n.Kind() != tree.Null {
			return fmt.Errorf("metadata.%s of %s must be an object", field, of)
		}
	}
	return nil
}

// overlay changes labels or annotations as kubectl label and annotate do.
func overlay(flag string, to map[string]string, changes []string) (map[string]string, error) {
	if len(changes) == 0 {
		return to, nil
	}
	all := map[string]string{}
	maps.Copy(all, to)
	for _, text := range changes {
		key, value, ok := strings.Cut(text, "=")
		bare, without := strings.CutSuffix(text, "-")
		switch {
		case ok && key != "":
			all[key] = value
		case !ok && without && bare != "":
			delete(all, bare)
		default:
			return nil, fmt.Errorf("--%s must be KEY=VALUE, or KEY- to remove it, not %q", flag, text)
		}
	}
	return all, nil
}
