// SPDX-License-Identifier: Apache-2.0

package status

import (
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/terminal"
)

// styleOf returns the color of a state.
func styleOf(s explain.State) string {
	switch s {
	case explain.Current:
		return terminal.Green
	case explain.Outdated:
		return terminal.Yellow
	case explain.Missing:
		return terminal.Red
	case explain.Altered:
		return terminal.Magenta
	}
	return ""
}
