// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSourceSum(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sum := func(main string) string {
		for name, text := range map[string]string{"main.go": main, "go.mod": "module m", "go.sum": ""} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		sum, err := sourceSum(dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	if one, two, again := sum("package main"), sum("package  main"), sum("package main"); one == two || one != again {
		t.Errorf("sums are %s, %s and again %s", one, two, again)
	}
}
