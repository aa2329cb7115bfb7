// SPDX-License-Identifier: Apache-2.0

// Profile reads a CPU profile from standard input and writes what the compiler needs of it (go doc cmd/go, -pgo) to
// standard output: functions, lines and weights, but not where on which machine the measured binary was.
package main

import (
	"fmt"
	"os"

	"github.com/google/pprof/profile"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
		os.Exit(1)
	}
}

func run() error {
	p, err := profile.Parse(os.Stdin)
	if err != nil {
		return fmt.Errorf("read a CPU profile: %w", err)
	}
	for _, m := range p.Mapping {
		m.File, m.BuildID = "", ""
	}
	for _, f := range p.Function {
		f.Filename = ""
	}
	p.TimeNanos, p.Comments = 0, nil
	return p.Compact().Write(os.Stdout)
}
