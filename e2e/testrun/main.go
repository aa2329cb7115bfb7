// SPDX-License-Identifier: Apache-2.0

// Testrun runs a go test -json command, in one or more folders, and shows its events as go test does. Then it prints
// what go test does not show: the number of tests, the skipped ones by reason, the size of each property that ran in
// its quick form, and the CPU time.
//
//	testrun -in .,e2e/chart go test -json ./...
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// The package inject/testing/size of the root module, which this module does not import, defines these.
const (
	sizeVariable  = "TEST_SIZE"
	sizeAttribute = "size" // its value is, for example, "200 of 5000"
)

func main() {
	folders := flag.String("in", ".", "run the command in each of these `folders`, separated by commas")
	flag.Parse()
	s := newSummary(os.Stdout)
	started := time.Now()
	err := s.runAll(strings.Split(*folders, ","), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	s.print(time.Since(started))
	if s.failed || err != nil {
		os.Exit(1)
	}
}

// summary is what is known about the tests so far.
type summary struct {
	w             io.Writer
	failed        bool
	passes, fails int
	skips         map[string]int    // by reason
	sizes         map[string]string // of properties, by test
	output        map[string]string // of tests that have not ended, by package and test
	cpu           time.Duration
}

func newSummary(w io.Writer) *summary {
	return &summary{w: w, skips: map[string]int{}, sizes: map[string]string{}, output: map[string]string{}}
}

// runAll runs the command in each folder. If one fails, it still runs the others.
func (s *summary) runAll(folders, command []string) error {
	if len(command) == 0 {
		return errors.New("name the command, as in: testrun go test -json PACKAGE")
	}
	var all error
	for _, folder := range folders {
		if err := s.run(folder, command); err != nil {
			all = errors.Join(all, fmt.Errorf("%s in %s: %w", strings.Join(command, " "), folder, err))
		}
	}
	return all
}

// run runs the command in a folder. It fails if the command does, even without failed events: a command that cannot
// start has no events.
func (s *summary) run(folder string, command []string) error {
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...)
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = s.show(events)
	err = errors.Join(err, cmd.Wait())
	s.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() // of its children too
	return err
}

// event is one line of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath, Key, Value string
}

// show prints events until the end of the input.
func (s *summary) show(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(s.w, lines.Text())
			continue
		}
		s.add(e)
	}
	return lines.Err()
}

// add counts an event, and prints the output of failed tests and of packages. If a test ends its process, for example
// by a panic, no event says that the test failed: what it printed is shown when its package fails.
func (s *summary) add(e event) {
	test := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.w, e.Output)
	case "build-fail":
		s.failed = true
	case "attr":
		if e.Key == sizeAttribute {
			s.sizes[e.Test] = e.Value
		}
	case "output":
		if e.Test != "" {
			s.output[test] += e.Output
		} else if e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]") {
			fmt.Fprint(s.w, e.Output)
		}
	case "pass":
		if e.Test != "" {
			s.passes++
		}
		delete(s.output, test)
	case "skip":
		if e.Test != "" {
			s.skips[reason(s.output[test])]++
		}
		delete(s.output, test)
	case "fail":
		s.failed = true
		if e.Test != "" {
			s.fails++
		}
		for _, of := range slices.Sorted(maps.Keys(s.output)) {
			if of == test || e.Test == "" && strings.HasPrefix(of, test) {
				fmt.Fprint(s.w, s.output[of])
				delete(s.output, of)
			}
		}
	}
}

// reason returns the reason for which a test was skipped.
func reason(output string) string {
	why := "no reason given"
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		why = line
		if _, text, ok := strings.Cut(line, ".go:"); ok {
			if _, text, ok = strings.Cut(text, ": "); ok {
				why = text
			}
		}
	}
	return why
}

// print writes the summary. Subtests count as tests.
func (s *summary) print(took time.Duration) {
	skipped := 0
	for _, why := range slices.Sorted(maps.Keys(s.skips)) {
		fmt.Fprintf(s.w, "skipped: %d tests: %s\n", s.skips[why], why)
		skipped += s.skips[why]
	}
	var quick []string
	for _, test := range slices.Sorted(maps.Keys(s.sizes)) {
		if n, full, _ := strings.Cut(s.sizes[test], " of "); n != full {
			quick = append(quick, test+" "+s.sizes[test])
		}
	}
	if len(quick) > 0 {
		fmt.Fprintf(s.w, "quick sizes (%s=full runs all): %s\n", sizeVariable, strings.Join(quick, ", "))
	}
	fmt.Fprintf(s.w, "%d passed, %d failed, %d skipped\n", s.passes, s.fails, skipped)
	fmt.Fprintf(s.w, "%.0f CPU seconds in %s\n", s.cpu.Seconds(), took.Round(time.Second))
}
