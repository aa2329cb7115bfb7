// SPDX-License-Identifier: Apache-2.0

// Skips runs a go test -json command and shows its events as go test does. Then it lists the
// skipped tests by reason, because go test does not show these.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	failed, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

// run runs the command. It fails if the command does, even without failed events: a command
// that cannot start has no events.
func run(command []string) (failed bool, err error) {
	if len(command) == 0 {
		return true, errors.New("name the command, as in: skips go test -json PACKAGE")
	}
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return true, err
	}
	if err := cmd.Start(); err != nil {
		return true, err
	}
	failed, err = show(events, os.Stdout)
	return failed, errors.Join(err, cmd.Wait())
}

// event is one line of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath string
}

// show prints events until the end of the input, and reports whether a test failed. If a test ends
// its process, for example by a panic, no event says that it failed: what it printed is shown then.
func show(r io.Reader, w io.Writer) (failed bool, err error) {
	output, reasons := map[string]string{}, map[string]int{} // by test; number of skipped tests by reason
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(w, lines.Text())
			continue
		}
		test := e.Package + " " + e.Test
		switch e.Action {
		case "build-output":
			fmt.Fprint(w, e.Output)
		case "build-fail":
			failed = true
		case "output":
			if e.Test != "" {
				output[test] += e.Output
			} else if e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]") {
				fmt.Fprint(w, e.Output)
			}
		case "skip":
			if e.Test != "" {
				reasons[reason(output[test])]++
			}
			delete(output, test)
		case "fail":
			failed = true
			for _, of := range slices.Sorted(maps.Keys(output)) {
				if of == test || e.Test == "" && strings.HasPrefix(of, test) {
					fmt.Fprint(w, output[of])
					delete(output, of)
				}
			}
		case "pass":
			delete(output, test)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(w, "skipped: %d tests: %s\n", reasons[why], why)
	}
	return failed, lines.Err()
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
