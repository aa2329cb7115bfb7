// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// TestStepsAtTheSameTime lets two sequences wait for each other, which ends only if they run at the same time. A step that fails ends
// no other one, and the first step runs before all of them.
func TestStepsAtTheSameTime(t *testing.T) {
	t.Parallel()
	version, why := "", ""
	left, right := make(chan string), make(chan string)
	err := runSteps(t.Context(), &cli.Progress{}, step{"the version", func(context.Context) error { version = "v1"; return nil }, nil},
		[]step{
			{"left", func(context.Context) error { left <- version; return errors.New("it is broken") }, func(text string) { why = text }},
			{"then", func(context.Context) error { right <- version; return nil }, nil},
		},
		[]step{{"right", func(context.Context) error {
			if got := <-left + <-right; got != "v1v1" {
				t.Errorf("the version is %q", got)
			}
			return nil
		}, nil}},
	)
	if err != nil || why != "it is broken" {
		t.Errorf("%v, %q", err, why)
	}
	if err := runSteps(t.Context(), &cli.Progress{}, step{"the version", func(context.Context) error { return errors.New("no cluster") }, nil}); err == nil {
		t.Error("the others ran without a cluster")
	}
}
