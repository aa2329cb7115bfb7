// SPDX-License-Identifier: Apache-2.0

// Package terminal has the lines, colors and bars of what commands print on a terminal.
package terminal

import "strings"

// The styles (ECMA-48, SGR).
const (
	Green   = "\x1b[32m"
	Yellow  = "\x1b[33m"
	Red     = "\x1b[31m"
	Magenta = "\x1b[35m"
	Cyan    = "\x1b[36m"
	Bold    = "\x1b[1m"
	Dim     = "\x1b[2m"

	reset = "\x1b[0m"
)

// Text returns a string in a style, or unchanged if there are no colors or no style.
func Text(colour bool, style, text string) string {
	if !colour || style == "" {
		return text
	}
	return style + text + reset
}

// Share is a part of a bar: for example, the pods in one state.
type Share struct {
	Style string
	Count int
}

// Cells is the width of the bars of reports.
const Cells = 10

// Bar returns a bar of so many cells in the styles of the shares, or "" if all counts are 0.
func Bar(cells int, shares ...Share) string {
	var bar strings.Builder
	for i, n := range divideCells(cells, shares) {
		if n > 0 {
			bar.WriteString(Text(true, shares[i].Style, strings.Repeat("█", n)))
		}
	}
	return bar.String()
}

// divideCells divides the cells of a bar among the counts. A share with a count has at least one cell, so that one missing pod of many is
// visible. The cells for that are taken from the share with the highest count.
func divideCells(cells int, shares []Share) []int {
	all, sum, used, most := make([]int, len(shares)), 0, 0, 0
	for i, s := range shares {
		sum += s.Count
		if s.Count > shares[most].Count {
			most = i
		}
	}
	if sum == 0 {
		return nil
	}
	for i, s := range shares {
		all[i] = s.Count * cells / sum
		if s.Count > 0 {
			all[i] = max(1, all[i])
		}
		used += all[i]
	}
	all[most] += cells - used
	return all
}
