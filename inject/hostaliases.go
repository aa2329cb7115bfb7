// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// mergeHostAlias adds an item with those names that no item of the pod has for the same address. Several items with one address are
// valid, and the kubelet writes a line of /etc/hosts for each.
func (p *planner) mergeHostAlias(pod, value *jsontree.Node, at schema.Pointer) {
	there, known := map[string]bool{}, false
	items := pod.Items()
	for i := range items {
		if items[i].Get("ip").SameText(value.Get("ip")) {
			known = true
			for _, name := range items[i].Get("hostnames").Items() {
				there[name.Text()] = true
			}
		}
	}
	names := value.Get("hostnames").Items()
	rest := make([]jsontree.Node, 0, len(names))
	for i := range names {
		if !there[names[i].Text()] {
			rest = append(rest, names[i])
		}
	}
	switch {
	case len(rest) == 0 && known:
		p.found = true
	default:
		if p.tentative = known && p.subject.request.written; p.tentative {
			p.noteLeft("its hostAliases for " + value.Get("ip").Text() + " are left to the webhook, because kubectl merges items with the same address")
		}
		if len(rest) < len(names) {
			value = new(jsontree.Members(jsontree.Field("ip", *value.Get("ip")), jsontree.Field("hostnames", jsontree.Items(rest...))))
		}
		p.insertItem(pod, len(items), *value, at)
		p.tentative = false
	}
}
