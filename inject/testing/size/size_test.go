// SPDX-License-Identifier: Apache-2.0

package size_test

import (
	"fmt"
	"testing"

	"github.com/pillion-dev/pillion/inject/testing/size"
)

// recorder is a test that records what is reported about it.
type recorder struct {
	testing.TB
	reported string
}

func (r *recorder) Attr(key, value string)         { r.reported = key + " " + value }
func (r *recorder) Skipf(format string, as ...any) { r.reported = fmt.Sprintf(format, as...) }

func TestChoose(t *testing.T) {
	for value, want := range map[string]int{"": 2, "quick": 2, "full": 50} {
		t.Setenv(size.Variable, value)
		r := &recorder{TB: t}
		if got := size.Choose(r, 2, 50); got != want || r.reported != fmt.Sprintf("size %d of 50", want) {
			t.Errorf("%s=%q chooses %d and reports %q, want %d", size.Variable, value, got, r.reported, want)
		}
	}
}

func TestSkipUnlessFull(t *testing.T) {
	const skipped = "only with TEST_SIZE=full (make verify): it is long"
	for value, want := range map[string]string{"": skipped, "quick": skipped, "full": ""} {
		t.Setenv(size.Variable, value)
		r := &recorder{TB: t}
		if size.SkipUnlessFull(r, "it is long"); r.reported != want {
			t.Errorf("%s=%q: %q, want %q", size.Variable, value, r.reported, want)
		}
	}
}
