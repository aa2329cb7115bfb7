// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	cpuUnit    = "cpu-ns/op" // of a benchmark's own metric
	allocsUnit = "allocs/op"
)

// handlers runs the benchmarks of this module once in each round.
func handlers(ctx context.Context, o *options, dir string, s samples) error {
	binary := filepath.Join(dir, "bench.test")
	if err := command(ctx, nil, "go", "test", "-c", "-o", binary, "."); err != nil {
		return err
	}
	for round := range o.count {
		o.say("handlers, round %d of %d", round+1, o.count)
		var out bytes.Buffer
		if err := command(ctx, &out, binary, "-test.run=^$", "-test.bench="+o.bench, "-test.benchtime="+o.benchtime); err != nil {
			return err
		}
		for line := range strings.Lines(out.String()) {
			parseBenchmark(line, s)
		}
	}
	return nil
}

var benchmarkLine = regexp.MustCompile(`^Benchmark\S*?/(\S+?)(-\d+)?\s+\d+\s+(.*)`)

// parseBenchmark adds each value of a line of go test's output as "<name of the benchmark>
// <unit>".
func parseBenchmark(line string, s samples) {
	m := benchmarkLine.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil {
		return
	}
	fields := strings.Fields(m[3])
	for i := 1; i < len(fields); i += 2 {
		if value, err := strconv.ParseFloat(fields[i-1], 64); err == nil {
			s.add(m[1]+" "+fields[i], value)
		}
	}
}

// command runs a program. The error contains the program's error output.
func command(ctx context.Context, out *bytes.Buffer, name string, args ...string) error {
	return commandIn(ctx, out, ".", name, args...)
}

func commandIn(ctx context.Context, out *bytes.Buffer, dir, name string, args ...string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
	cmd.WaitDelay = 10 * time.Second // also ends child processes that the program has left behind
	if out != nil {
		cmd.Stdout = out
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, said.String())
	}
	return nil
}
