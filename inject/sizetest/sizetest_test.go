// SPDX-License-Identifier: Apache-2.0

package sizetest_test

import (
	"testing"

	"github.com/pillion-dev/pillion/inject/sizetest"
)

func TestChoose(t *testing.T) {
	for value, want := range map[string]int{"": 2, "quick": 2, "full": 50} {
		t.Setenv(sizetest.Variable, value)
		if got := sizetest.Choose(t, 2, 50); got != want {
			t.Errorf("%s=%q chooses %d, want %d", sizetest.Variable, value, got, want)
		}
	}
}

func TestSkipUnlessFull(t *testing.T) {
	skipped := map[string]bool{"": true, "quick": true, "full": false}
	for value, want := range skipped {
		t.Setenv(sizetest.Variable, value)
		reached := false
		t.Run("skips", func(t *testing.T) {
			defer func() { reached = !t.Skipped() }()
			sizetest.SkipUnlessFull(t, "")
		})
		if reached == want {
			t.Errorf("%s=%q: the test ran: %t", sizetest.Variable, value, reached)
		}
	}
}
