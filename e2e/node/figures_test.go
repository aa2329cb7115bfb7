// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the table in FIGURES.md, after all tests passed")

// report collects what the tests measured.
type report struct {
	mu   sync.Mutex
	rows [][3]string
}

func (f *report) add(scenario, what, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, [3]string{scenario, what, value})
}

func (f *report) print() {
	for _, row := range f.rows {
		fmt.Printf("%-22s %-62s %s\n", row[0], row[1], row[2])
	}
}

// write writes the page with all figures.
func (f *report) write(took time.Duration) error {
	version, err := env.Client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Figures of the tests on a real node\n\n`make node UPDATE=1` writes this page. It was written on a machine with %d CPUs, with Kubernetes %s. All\n"+
		"tests took %s from the start of the control plane. [The tests](../README.md#run-the-tests-on-a-real-node) lists what they show. During an\n"+
		"installation, pods that are created before the template is in use have no sidecar.\n\n"+
		"| test | figure | value |\n|---|---|---|\n", runtime.NumCPU(), version.GitVersion, took.Round(time.Second))
	last := ""
	for _, row := range f.rows {
		test := ""
		if row[0] != last {
			test, last = " `"+row[0]+"`", row[0]
		}
		fmt.Fprintf(&b, "|%s | %s | %s |\n", test, row[1], row[2])
	}
	return os.WriteFile("FIGURES.md", []byte(b.String()), 0o644)
}

// figure logs a figure and adds it to the table that is printed after the tests.
func figure(t *testing.T, what string, value any) {
	t.Helper()
	text := fmt.Sprint(value)
	if d, ok := value.(time.Duration); ok {
		text = seconds(d)
	}
	t.Logf("%s: %s", what, text)
	figures.add(t.Name(), what, text)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
