// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"
)

// TestLibrary runs the tests of the templates that come with Pillion, and of those for other injectors.
func TestLibrary(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if code := run([]string{"test", "../../templates/library", "../../templates/from"}, nil, &out, &out); code != exitOK {
		t.Errorf("exit code %d\n%s", code, &out)
	}
}
