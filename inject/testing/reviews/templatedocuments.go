// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"fmt"
	"strings"
)

// Documents returns one to four templates in YAML: some of the cluster, and then some of a namespace. They are named t0,
// t1 ... in this order. Spec returns the spec of the template with a number, for example [Sets.Template]. In some sets,
// templates of a kind are canaries of the first one of that kind.
func (g *Sets) Documents(namespace string, spec func(i int) string) (all []string) {
	n := 1 + g.IntN(4)
	specs := make([]string, n)
	for i := range specs {
		specs[i] = spec(i)
	}
	ofCluster := n
	if g.oneIn(2) {
		ofCluster = g.IntN(n + 1)
	}
	g.replaceFirst(specs[:ofCluster], 0)
	g.replaceFirst(specs[ofCluster:], ofCluster)
	for i, text := range specs {
		kind, metadata := "ClusterSidecarTemplate", fmt.Sprintf("name: t%d", i)
		if i >= ofCluster {
			kind, metadata = "SidecarTemplate", metadata+", namespace: "+namespace
		}
		all = append(all, fmt.Sprintf("{apiVersion: pillion.dev/v1alpha1, kind: %s, metadata: {%s}, spec: {%s}}", kind, metadata, text))
	}
	return all
}

// replaceFirst lets some of the specs replace the first one, whose template has the number first.
func (g *Sets) replaceFirst(specs []string, first int) {
	if len(specs) > 1 && g.oneIn(2) {
		copy(specs, Replacing(specs, first, g.Uint64()))
	}
}

// Placed returns a spec with a random placement, and sometimes with an order or required.
func (g *Sets) Placed(spec string) string {
	var fields []string
	fields = append(fields, g.maybeText(4, func() string { return "required: true" })...)
	fields = append(fields, g.maybeText(4, func() string { return "order: " + g.pickString("-1", "1") })...)
	fields = append(fields, g.maybeText(2, g.placementField)...)
	return strings.Join(append(fields, spec), ", ")
}
