// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestBounded checks that a level of nesting in a condition does not double the work.
func TestBounded(t *testing.T) {
	repeated := func(levels int) string {
		return "pod.metadata.labels[?'app'].orValue('').matches('^" + strings.Repeat("(", levels) + "a" + strings.Repeat("b)+", levels) + "$')"
	}
	within := func(levels int) string {
		text := fmt.Sprintf("x%d == 'no' && pod.metadata.labels['z'] == 'q'", levels-1)
		for i := levels - 1; i >= 0; i-- {
			list := "pod.spec.containers[0].name"
			if i > 0 {
				list = fmt.Sprint("x", i-1)
			}
			text = fmt.Sprintf("[%s].exists(x%d, %s)", list, i, text)
		}
		return text
	}
	items := func(levels int) string {
		text := fmt.Sprintf("x%d.name == 'a' && x0.name == 'b' && x0.image == 'c'", levels-1)
		for i := levels - 1; i >= 0; i-- {
			text = fmt.Sprintf("pod.spec.containers.exists(x%d, %s)", i, text)
		}
		return text
	}
	for name, nested := range map[string]func(int) string{"repeated": repeated, "within": within, "items": items} {
		cost := func(levels int) float64 {
			template := withCondition(t, nested(levels))
			return testing.AllocsPerRun(1, func() { meet(t, template) })
		}
		some, double := cost(9), cost(18)
		t.Logf("%s: %.0f allocations, with twice as many levels %.0f", name, some, double)
		if double > 40*some { // without bounds it is 2⁹ times as much
			t.Errorf("%s: %.0f allocations, with twice as many levels %.0f", name, some, double)
		}
	}
}
