// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"iter"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/tree"
)

// containerLists are the lists of containers that a fragment may have.
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

// numbered are the indices of items, with what a pointer to each says: see [schema.Pointer.String].
func numbered(items []tree.Node) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		came := 0
		for i := range items {
			name := "-"
			if !items[i].Added() {
				name, came = strconv.Itoa(came), came+1
			}
			if !yield(i, name) {
				return
			}
		}
	}
}

// isEmptyList: such a list is in files alone, an API server keeps none.
func isEmptyList(n *tree.Node) bool {
	return n.Kind() == tree.Array && len(n.Items()) == 0
}
