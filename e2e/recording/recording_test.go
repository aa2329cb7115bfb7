// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden file")

// TestDraw compares a recording of given output with a golden file. The output comes in pieces that end within a
// sequence, a character and a line break, as those of a terminal may.
func TestDraw(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	r.print(0, "$ make demo\n")
	for at, piece := range []string{
		"\r\n\x1b[1mA <real> Kubernetes\x1b[0m\r\n", "  … building  3s\r\x1b[K  … building  4s", "\r\x1b[K  \xe2", "\x9c\x93 built  5.0s\r", "\n\x1b[", "1;32m+  image: a\x1b[0m & more\r\n",
	} {
		r.print(time.Duration(at)*3*time.Second/2, piece)
	}
	if text := r.text(); text != "$ make demo\n\nA <real> Kubernetes\n  ✓ built  5.0s\n+  image: a & more\n" {
		t.Errorf("the lines are\n%s", text)
	}
	got, path := draw("make demo", pace(r.lines)), filepath.Join("testdata", "want.svg")
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("it draws\n%s", got)
	}
}

// TestPace checks that waits are as they were, but neither too short to read nor too long.
func TestPace(t *testing.T) {
	t.Parallel()
	got := pace([]line{{at: 0}, {at: time.Millisecond}, {at: time.Second}, {at: time.Minute}})
	for i, want := range []time.Duration{0, shortest, shortest + 999*time.Millisecond, shortest + 999*time.Millisecond + longest} {
		if got[i].at != want {
			t.Errorf("line %d is shown after %s, want %s", i, got[i].at, want)
		}
	}
}

// TestPrivate checks that no recording names the machine or its user.
func TestPrivate(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{host, here, filepath.Join(os.TempDir(), "x")} {
		if err := private("a " + text + " b"); err == nil || !strings.Contains(err.Error(), "nothing is written") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := private("$ make demo\n"); err != nil {
		t.Error(err)
	}
}
