// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestShownOutput checks that no page shows only three dots as the output of a command: they may shorten an output, and
// never replace all of it. TestPages in the module e2e runs the commands and compares the outputs.
func TestShownOutput(t *testing.T) {
	n := 0
	for _, file := range pages(t) {
		for _, block := range strings.Split(contents(t, file), "\n```console\n")[1:] {
			block, _, _ = strings.Cut(block, "\n```")
			for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
				n++
				lines := strings.Split(part, "\n")
				if len(lines) > 1 && lines[len(lines)-1] == "..." && (len(lines) == 2 || lines[len(lines)-2] == "EOF") {
					t.Errorf("%s: the output of this command is not shown: %s", file, lines[0])
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d commands are found", n)
	}
}
