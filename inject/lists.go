// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"iter"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// isSidecar reports whether a container has the restartPolicy of a native sidecar.
func isSidecar(container *jsontree.Node) bool {
	return container.Get("restartPolicy") != nil && container.Get("restartPolicy").IsText(string(corev1.ContainerRestartPolicyAlways))
}

func hasMountAt(container *jsontree.Node, path string) bool {
	list := container.Get("volumeMounts").Items()
	for i := range list {
		if list[i].Get("mountPath").IsText(path) {
			return true
		}
	}
	return false
}

// pointerTokens yields the index of each item, and the token for it in a JSON Pointer: the index without added items, or "-" for an
// added item. See [schema.Pointer.String].
func pointerTokens(items []jsontree.Node) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		came := 0
		for i := range items {
			name := "-"
			if !items[i].IsNew() {
				name, came = strconv.Itoa(came), came+1
			}
			if !yield(i, name) {
				return
			}
		}
	}
}

// isEmptyList reports whether a value is an empty list. Only files have those, because an API
// server omits them.
func isEmptyList(n *jsontree.Node) bool {
	return n.Kind() == jsontree.Array && len(n.Items()) == 0
}
