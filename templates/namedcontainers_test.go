// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestNamedContainersCost checks that finding the names of containers in a where has a bound, however many comparisons
// the where has. These are found in all of it, also in parts that are not evaluated for a pod.
func TestNamedContainersCost(t *testing.T) {
	cost := func(comparisons int) float64 {
		found, problems := Parse("x", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: a}, spec: {params: [{name: p, default: x}],
			forEachContainer: [{where: "true`+strings.Repeat(" || container.name == lists.range(20000).map(i, params.p)[0]", comparisons)+`", add: {env: [{name: A, value: b}]}}]}}`))
		if problems != nil {
			t.Fatal(problems)
		}
		annotations := jsontree.Members(jsontree.Field("a.pillion.dev/p", jsontree.Text("y")))
		values, err := found[0].Values(&annotations, nil, &request.Namespace{})
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(1, func() { found[0].NamedContainers(&cel.Input{Pod: new(jsontree.Members())}, values) })
	}
	if few, many := cost(10), cost(80); many > 1.5*few {
		t.Errorf("80 comparisons take %v allocations, and 10 take %v", many, few)
	}
}
