// SPDX-License-Identifier: Apache-2.0

package status

import (
	"github.com/pillion-dev/pillion/inject/explain"
	"github.com/pillion-dev/pillion/inject/paint"
)

// styleOf returns the color of a state.
func styleOf(s explain.State) string {
	switch s {
	case explain.Current:
		return paint.Green
	case explain.Outdated:
		return paint.Yellow
	case explain.Missing:
		return paint.Red
	case explain.Altered:
		return paint.Magenta
	}
	return ""
}
