// SPDX-License-Identifier: Apache-2.0

package values_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// TestParseQuantity checks that quantities that would take hours are rejected, and that usual ones
// are not.
func TestParseQuantity(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"0", "1", "100m", "64Mi", "1E", "1Ei", "1e3", "1E-3", "-5", ".5", "12e6"} {
		if _, err := values.ParseQuantity(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "x", "1e-30000000", "1e2147483647", "1E+99999", strings.Repeat("1", 65), "1e"} {
		if _, err := values.ParseQuantity(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
