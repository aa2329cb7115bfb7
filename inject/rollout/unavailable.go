// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strconv"
	"strings"
)

// Unavailable is how many pods of a workload may be unavailable at a time because of a rollout.
type Unavailable struct {
	n       int
	percent bool
}

// ParseUnavailable parses a number or a percentage.
func ParseUnavailable(text string) (u Unavailable, err error) {
	number, percent := strings.CutSuffix(text, "%")
	u.percent = percent
	if u.n, err = strconv.Atoi(number); err != nil || u.n < 1 || percent && u.n > 100 {
		return u, fmt.Errorf("must be a number of pods of at least 1, or a percentage such as 25%%, not %q", text)
	}
	return u, nil
}

// IsZero reports whether the number is not set.
func (u Unavailable) IsZero() bool { return u == Unavailable{} }

// Of returns the number of pods. Percentages are rounded down, but it is at least one.
func (u Unavailable) Of(pods int) int {
	if !u.percent {
		return u.n
	}
	return max(1, pods*u.n/100)
}
