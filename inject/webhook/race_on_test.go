// SPDX-License-Identifier: Apache-2.0

//go:build race

package webhook_test

// raceEnabled reports whether the race detector is on. A sync.Pool then drops values at random.
const raceEnabled = true
