// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"iter"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/tree"
)

// containerLists returns the lists of containers that a fragment may have.
func containerLists() [2]string { return [2]string{"initContainers", "containers"} }

func orElse(n, other *tree.Node) *tree.Node {
	if n == nil {
		return other
	}
	return n
}

func isSidecar(container *tree.Node) bool {
	return container.Get("restartPolicy") != nil && container.Get("restartPolicy").IsText(string(corev1.ContainerRestartPolicyAlways))
}

func mounts(container *tree.Node, path string) bool {
	list := container.Get("volumeMounts").Items()
	for i := range list {
		if list[i].Get("mountPath").IsText(path) {
			return true
		}
	}
	return false
}

// numbered returns the indexes of items, and what a pointer to each item contains, see
// [schema.Pointer.String].
func numbered(items []tree.Node) iter.Seq2[int, string] {
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
func isEmptyList(n *tree.Node) bool {
	return n.Kind() == tree.Array && len(n.Items()) == 0
}
