// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"strings"
)

// overlayMetadata changes labels or annotations as kubectl label and annotate do.
func overlayMetadata(flag string, to map[string]string, changes []string) (map[string]string, error) {
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
