// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"strings"

	"github.com/pillion-dev/pillion/templates"
)

// repeat makes an item of a list into one item for each value of a list that pods set.
func (s *sketch) repeat(m *maker) {
	next := s.copy()
	var all []object
	itemsOf(next.fragment, &all)
	if next.each != nil {
		itemsOf(next.each, &all)
	}
	if len(all) == 0 {
		return
	}
	item := all[m.IntN(len(all))]
	if item["${forEach}"] != nil {
		return
	}
	item["${forEach}"] = object{"m": "params.list.split(',')"}
	for _, key := range sortedKeys(item) {
		if text, ok := item[key].(string); ok && !strings.Contains(text, "${") && (key == "name" || m.in(2)) {
			item[key] = pick(m, text+"-${m}", text+"${m}", "${m}", "${m}-"+text)
		}
		if _, ok := item[key].(int); ok && m.in(2) {
			item[key] = pick(m, "${size(m)}", "${size(m) * 100}")
		}
	}
	if m.in(4) {
		item["${when}"] = "m != 'a'"
	}
	name := s.name + "." + templates.Domain + "/list"
	if next.values[name] == "" {
		next.params = append(next.params, object{"name": "list", "default": "a,b", "maxLength": 1000})
		next.values[name] = pick(m, "a,b,c", "a", "b,a,1", "a,a", "A b", "", "a,"+strings.Repeat("x", 70), strings.Repeat("a,", 120), "-", ",", "ä", "=", "a/b")
	}
	if problems := next.loadTemplates(); len(problems) == 0 {
		*s = *next
	}
}

// itemsOf adds the objects in lists to all.
func itemsOf(v any, all *[]object) {
	switch v := v.(type) {
	case object:
		for _, key := range sortedKeys(v) {
			itemsOf(v[key], all)
		}
	case []any:
		for i := range v {
			if item, ok := v[i].(object); ok {
				*all = append(*all, item)
			}
			itemsOf(v[i], all)
		}
	}
}
