// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"
)

// Limits are what templates and a workload say about how its pods are updated. The zero value says nothing.
type Limits struct {
	MinReady       time.Duration
	Bake           *time.Duration
	MaxUnavailable []Unavailable
}

// The defaults of a rollout.
const (
	// DefaultMaxUnavailable is the default of maxUnavailable.
	DefaultMaxUnavailable = "25%"
	// DefaultMinReady is the default of minReady.
	DefaultMinReady = 5 * time.Second
	// DefaultBake is the default of bake. A change that fails within this time never makes more pods unready than
	// maxUnavailable allows.
	DefaultBake = 90 * time.Second
	// DefaultFirst is the default of first.
	DefaultFirst = 1
)

// DefaultShares returns the default of waves.
func DefaultShares() []string { return []string{"5%", "25%", "100%"} }

// Strictest returns limits that respect both.
func (l Limits) Strictest(other Limits) Limits {
	l.MinReady = max(l.MinReady, other.MinReady)
	if l.Bake == nil || other.Bake != nil && *other.Bake > *l.Bake {
		l.Bake = other.Bake
	}
	l.MaxUnavailable = append(slices.Clip(l.MaxUnavailable), other.MaxUnavailable...)
	return l
}

// Rules returns the rules for a workload with these limits. Those of the user who started the rollout come first, if
// there are any: the longest MinReady of all counts, the Bake that is given or the longest one, and the
// MaxUnavailable that is given or the smallest one.
func (l Limits) Rules(given Limits, timeout time.Duration) Rules {
	bake, most := DefaultBake, l.MaxUnavailable
	switch {
	case given.Bake != nil:
		bake = *given.Bake
	case l.Bake != nil:
		bake = *l.Bake
	}
	if len(given.MaxUnavailable) > 0 {
		most = given.MaxUnavailable
	}
	if len(most) == 0 {
		most = []Unavailable{{25, true}}
	}
	return Rules{MaxUnavailable: most, Proof: max(l.MinReady, given.MinReady, bake), Timeout: timeout}
}
