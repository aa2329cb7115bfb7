// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
)

// samples are the measurements of a run, by name; those of one round have the same index, so that two names can
// be compared in pairs.
type samples map[string][]float64

func (s samples) add(name string, value float64) { s[name] = append(s[name], value) }

// ratios are a's over b's, round by round.
func (s samples) ratios(a, b string) []float64 {
	var all []float64
	for i := range min(len(s[a]), len(s[b])) {
		all = append(all, s[a][i]/s[b][i])
	}
	return all
}

// missing names what a report needs and a run does not have.
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

// quantile of sorted values; the middle one of two is their mean.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	low, high := int(math.Floor(at)), int(math.Ceil(at))
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}

// spread is the median and, in brackets, the least and the most.
func spread(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s to %s)", digits(median(values)), digits(slices.Min(values)), digits(slices.Max(values)))
}

// digits are three that count.
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

// group sets commas into a number without a fraction.
func group(n string) string {
	for i := len(n) - 3; i > 0 && n[i-1] != '-'; i -= 3 {
		n = n[:i] + "," + n[i:]
	}
	return n
}
