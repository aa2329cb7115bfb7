// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"slices"
	"testing"
)

// TestDivide checks that a bar has all its cells, and that no share with a count is missing in it.
func TestDivide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ counts, want []int }{
		{[]int{4, 0, 0, 0}, []int{10, 0, 0, 0}},
		{[]int{2, 0, 2, 0}, []int{5, 0, 5, 0}},
		{[]int{998, 1, 0, 1}, []int{8, 1, 0, 1}},
		{[]int{0, 1, 1, 1}, []int{0, 4, 3, 3}},
		{[]int{0, 0, 0, 0}, nil},
	} {
		var shares []Share
		for _, n := range c.counts {
			shares = append(shares, Share{Count: n})
		}
		if got := divideCells(10, shares); !slices.Equal(got, c.want) {
			t.Errorf("%d: %d, want %d", c.counts, got, c.want)
		}
	}
}

// TestBar checks that only shares with a count and strings with a style have a style.
func TestBar(t *testing.T) {
	t.Parallel()
	if got, want := Bar(3, Share{Green, 2}, Share{Yellow, 0}, Share{"", 1}), Green+"██"+reset+"█"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Text(true, "", "a") + Text(false, Red, "b") + Text(true, Red, "c"); got != "ab"+Red+"c"+reset {
		t.Errorf("%q", got)
	}
}
