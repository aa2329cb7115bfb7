// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
)

// samples are the measurements of a run by name. Measurements of one round have the same
// index, so that two names can be compared in pairs.
type samples map[string][]float64

func (s samples) add(name string, value float64) { s[name] = append(s[name], value) }

// ratios returns the ratios of a to b, round by round.
func (s samples) ratios(a, b string) []float64 {
	var all []float64
	for i := range min(len(s[a]), len(s[b])) {
		all = append(all, s[a][i]/s[b][i])
	}
	return all
}

// missing returns an error with the names that a report needs and the run lacks.
func (s samples) missing(names ...string) error {
	for _, name := range names {
		if len(s[name]) == 0 {
			return fmt.Errorf("the run has no measurement of %q", name)
		}
	}
	return nil
}

func median(values []float64) float64 {
	return quantile(slices.Sorted(slices.Values(values)), 0.5)
}

// quantile returns a quantile of sorted values. Between two values, it returns their mean.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	low, high := int(math.Floor(at)), int(math.Ceil(at))
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}

// spread returns the median and, in parentheses, minimum and maximum.
func spread(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s to %s)", digits(median(values)), digits(slices.Min(values)), digits(slices.Max(values)))
}

// digits formats a number with three significant digits.
func digits(v float64) string {
	switch {
	case math.Abs(v) >= 100:
		return group(fmt.Sprintf("%.0f", v))
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	case math.Abs(v) >= 0.1 || v == 0:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// group inserts commas into an integer.
func group(n string) string {
	for i := len(n) - 3; i > 0 && n[i-1] != '-'; i -= 3 {
		n = n[:i] + "," + n[i:]
	}
	return n
}
