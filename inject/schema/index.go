// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Index finds the items of a list by their keys. In a long list, it is faster than [Schema.Find].
type Index struct {
	schema *Schema
	items  []jsontree.Node
	at     map[string]int // nil if the list is short, or has numbers as keys that can be written in several ways
}

// shortList is the length of a list up to which it is searched without a map.
const shortList = 16

// Index returns an index of a list.
func (s *Schema) Index(items []jsontree.Node) *Index {
	x := &Index{schema: s, items: items}
	if len(items) <= shortList {
		return x
	}
	x.at = make(map[string]int, len(items))
	for i := range items {
		key, ok := s.indexKey(&items[i])
		if _, known := x.at[key]; ok && !known {
			x.at[key] = i
		}
		if !ok && s.Key == "containerPort" {
			x.at = nil
			break
		}
	}
	return x
}

// Find returns the index of the item that has the key of another one, or -1.
func (x *Index) Find(item *jsontree.Node) int {
	key, ok := x.schema.indexKey(item)
	if x.at == nil || !ok && x.schema.Key == "containerPort" {
		return x.schema.Find(x.items, item)
	}
	if i, known := x.at[key]; ok && known {
		return i
	}
	return -1
}

// indexKey returns a string for the key of an item. If ok is true for two items, their strings are equal if and only if their keys are.
func (s *Schema) indexKey(item *jsontree.Node) (key string, ok bool) {
	if s.Key != "containerPort" {
		return s.TextKey(item)
	}
	number := item.Get(s.Key).String()
	plain := number == "0" || number != "" && number[0] != '0' && strings.Trim(number, "0123456789") == ""
	return number + "/" + Protocol(item), plain
}
