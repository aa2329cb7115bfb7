// SPDX-License-Identifier: Apache-2.0

package status

import "testing"

// TestShares checks that a bar has all its cells, and that no state with pods is missing in it.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tally Tally
		want  [4]int // current, outdated, missing, altered
	}{
		{Tally{Pods: 4, Current: 4}, [4]int{10, 0, 0, 0}},
		{Tally{Pods: 8, NotWanted: 4, Current: 2, Missing: 2}, [4]int{5, 0, 5, 0}},
		{Tally{Pods: 1000, Current: 998, Outdated: 1, Altered: 1}, [4]int{8, 1, 0, 1}},
		{Tally{Pods: 3, Outdated: 1, Missing: 1, Altered: 1}, [4]int{0, 4, 3, 3}},
		{Tally{Pods: 3, NotWanted: 3}, [4]int{}},
	} {
		var got [4]int
		for i, s := range shares(&c.tally) {
			got[i] = s.cells
		}
		if got != c.want {
			t.Errorf("%+v: %v, want %v", c.tally, got, c.want)
		}
	}
}
