// SPDX-License-Identifier: Apache-2.0

package status

import "github.com/pillion-dev/pillion/inject/explain"

// Terminal colors (ECMA-48, SGR).
const (
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	red     = "\x1b[31m"
	magenta = "\x1b[35m"
	bold    = "\x1b[1m"
	reset   = "\x1b[0m"
)

// styleOf returns the color of a state.
func styleOf(s explain.State) string {
	switch s {
	case explain.Current:
		return green
	case explain.Outdated:
		return yellow
	case explain.Missing:
		return red
	case explain.Altered:
		return magenta
	}
	return ""
}

// barCells is the width of a bar.
const barCells = 10

type share struct {
	state explain.State
	cells int
}

// shares divides a bar. A state with any pod has at least one cell, so that one missing pod of many is seen; the state
// with the most pods gives the cells for that.
func shares(t *Tally) []share {
	all := []share{{state: explain.Current}, {state: explain.Outdated}, {state: explain.Missing}, {state: explain.Altered}}
	sum, used, most := t.Pods-t.NotWanted, 0, 0
	if sum <= 0 {
		return nil
	}
	for i := range all {
		n := *t.of(all[i].state)
		all[i].cells = n * barCells / sum
		if n > 0 {
			all[i].cells = max(1, all[i].cells)
		}
		used += all[i].cells
		if n > *t.of(all[most].state) {
			most = i
		}
	}
	all[most].cells += barCells - used
	return all
}
