// SPDX-License-Identifier: Apache-2.0

//go:build !race

package webhook_test

// raceEnabled: a sync.Pool forgets on purpose then.
const raceEnabled = false
