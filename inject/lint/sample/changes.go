// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates/request"
)

// Changes returns the values that one situation has and another one lacks, for example
// spec.serviceAccountName: "x".
func Changes(from, to Situation) []string {
	a, err := newWorld(from)
	b, err2 := newWorld(to)
	if err != nil || err2 != nil {
		return nil
	}
	all := listChanges(a.doc["pod"], b.doc["pod"], "")
	all = append(all, listChanges(a.doc["ns"], b.doc["ns"], "namespace")...)
	all = append(all, listChanges(a.doc[request.AccountVariable], b.doc[request.AccountVariable], "ServiceAccount")...)
	return append(all, listChanges(a.doc["request"], b.doc["request"], "request")...)
}

func listChanges(from, to any, at string) []string {
	if reflect.DeepEqual(from, to) {
		return nil
	}
	var all []string
	switch value := to.(type) {
	case map[string]any:
		was, _ := from.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if name == "securityContext" && strings.HasSuffix(at, "]") && from == nil {
				continue // every sample container has it
			}
			all = append(all, listChanges(was[name], value[name], memberPath(at, name))...)
		}
		for _, name := range slices.Sorted(maps.Keys(was)) {
			if _, ok := value[name]; !ok {
				all = append(all, "no "+memberPath(at, name))
			}
		}
		if len(value) == 0 && from == nil {
			all = append(all, at+": {}")
		}
	case []any:
		was, _ := from.([]any)
		for i := range value {
			var item any
			if i < len(was) {
				item = was[i]
			}
			all = append(all, listChanges(item, value[i], fmt.Sprintf("%s[%d]", at, i))...)
		}
	default:
		text, err := json.Marshal(value)
		if err == nil {
			all = append(all, at+": "+string(text))
		}
	}
	return all
}

func memberPath(at, name string) string {
	switch {
	case strings.ContainsAny(name, "./") || strings.HasSuffix(at, "labels") || strings.HasSuffix(at, "annotations"):
		return fmt.Sprintf("%s[%q]", at, name)
	case at == "":
		return name
	}
	return at + "." + name
}
