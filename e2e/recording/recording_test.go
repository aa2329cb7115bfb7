// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
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

// TestPace checks that a recording takes its time whatever the command took, that the lines come in order, and that a wait
// that readers should notice stays one.
func TestPace(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 60, 1000} {
		lines := make([]line, n)
		for i := range lines {
			lines[i].at = time.Hour + time.Duration(i)*time.Millisecond
		}
		lines[n-1].at += time.Minute
		got := pace(lines)
		end := got[n-1].at - got[0].at
		if n > 2 && got[n-1].at-got[n-2].at != longest {
			t.Errorf("of %d lines, the last one is shown after %s", n, got[n-1].at-got[n-2].at)
		}
		if end > takes || end < takes-time.Millisecond {
			t.Errorf("%d lines take %s, want %s", n, end, takes)
		}
		if !slices.IsSortedFunc(got, func(a, b line) int { return int(a.at - b.at) }) {
			t.Errorf("%d lines are not in order", n)
		}
	}
	if takes+atEnd != 15*time.Second {
		t.Errorf("a recording takes %s", takes+atEnd)
	}
}

// TestCut checks that a recording begins with the command, and then where something happens.
func TestCut(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	r.print(0, "$ make demo\nbuilding\n  built\n\n1. The pod\n+ image\n")
	lines, err := cut(r.lines, "1. The pod")
	if err != nil {
		t.Fatal(err)
	}
	r.lines = lines
	if text := r.text(); text != "$ make demo\n\n1. The pod\n+ image\n" {
		t.Errorf("the lines are\n%s", text)
	}
	if _, err := cut(lines, "2. Why"); err == nil {
		t.Error("there is no error for a text that is not there")
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
