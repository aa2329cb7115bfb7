// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// whole is a run in which every measurement is 1000, 2000 and 4000.
func whole() samples {
	s := samples{}
	names := []string{
		"create/none", "memory/pillion-20", "memory/constant", "memory/pillion-50", "ready/pillion-20", "ready/constant",
		"namespaces/none", "namespaces/many", "namespaces/count", "cpu/injected/pillion-50", "cpu/judged/pillion-50",
	}
	for _, size := range podSizes() {
		for _, row := range handlerRows() {
			names = append(names, benchmark(size, row[1], cpuUnit), benchmark(size, row[1], "allocs/op"))
		}
		for _, kind := range []string{"injected", "judged"} {
			names = append(names, benchmark(size, "50/matching=2/cel=true/handler=pillion/request="+kind, cpuUnit))
		}
	}
	for _, c := range comparisons() {
		names = append(names, c.of, c.to)
	}
	for _, name := range names {
		s[name] = []float64{4000, 1000, 2000}
	}
	return s
}

const emptyReadme = "# Title\n<!-- bench: written by make bench -->\nold\n<!-- end of bench -->\nbetween\n<!-- sizing: written by make bench -->\n<!-- end of sizing -->\nlast\n"

func TestWriteReadme(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "README.md")
	write := func(s samples) (string, error) {
		err := s.writeReadme(path)
		text, _ := os.ReadFile(path)
		return string(text), err
	}
	if err := os.WriteFile(path, []byte(emptyReadme), 0o600); err != nil {
		t.Fatal(err)
	}
	partial := whole()
	delete(partial, "latency/pillion/50")
	if text, err := write(partial); err == nil || text != emptyReadme {
		t.Errorf("a partial run wrote %v\n%s", err, text)
	}
	first, err := write(whole())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| **Pillion, one sidecar** | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 | 2,000 |\n",
		"| latency at 500 requests/s, median (µs) | 2,000 | 2,000 | 1.00 (1.00 to 1.00) | 1.5 |\n",
		"| 4 | ", "\nbetween\n", "\nlast\n",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("there is no %q in\n%s", want, first)
		}
	}
	if again, err := write(whole()); err != nil || again != first || strings.Contains(again, "old") {
		t.Errorf("the second time it is %v\n%s", err, again)
	}
	if err := os.WriteFile(path, []byte("# Title\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := write(whole()); err == nil || text != "# Title\n" {
		t.Errorf("without sections it wrote %v\n%s", err, text)
	}
}

// TestShippedReadme: the sections are there to be written.
func TestShippedReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range sections() {
		if _, err := replaceSection(string(text), section.name, ""); err != nil {
			t.Error(err)
		}
	}
}

func TestParseBenchmark(t *testing.T) {
	t.Parallel()
	s := samples{}
	parseBenchmark("BenchmarkHandler/pod=small/request=opted-out-2 \t 448\t 636717 ns/op\t 105.5 cpu-ns/op\t 49372 B/op\t 318 allocs/op\n", s)
	parseBenchmark("PASS\n", s)
	if got := s["pod=small/request=opted-out cpu-ns/op"]; len(got) != 1 || got[0] != 105.5 || len(s) != 4 {
		t.Errorf("got %v", s)
	}
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	s := samples{"create/none": {1, 2, 3, 10, 10, 10}, "create/noop": {2, 4, 4, 11, 12, 40}}
	s.added(3)
	if got := s["added/noop"]; len(got) != 2 || got[0] != 1 || got[1] != 2 {
		t.Errorf("added: %v", got)
	}
	if got := spread([]float64{12345, 1, 30}); got != "30.0 (1.00 to 12,345)" {
		t.Errorf("spread: %s", got)
	}
	if got := s.ratios("create/noop", "create/none"); got[0] != 2 || len(got) != 6 {
		t.Errorf("ratios: %v", got)
	}
}

// TestSimulate compares with what queueing theory says of one server: a mean wait of ρS/2(1-ρ) where every call
// takes S (Pollaczek and Khinchine).
func TestSimulate(t *testing.T) {
	t.Parallel()
	m := model{replicas: 1, cores: 1, rate: 100, length: 1000, patience: 1e6, apiServer: 1e6, classes: []class{{1, 0.008, 0}}}
	o := m.simulate()
	var sum float64
	for _, wait := range o.waits {
		sum += wait
	}
	mean := sum / float64(len(o.waits)/2) // the calls of the second webhook find nobody
	if want := 0.8 * 0.008 / (2 * 0.2); math.Abs(mean-want) > want/10 || math.Abs(o.busy-0.8) > 0.02 || o.shed != 0 {
		t.Errorf("mean wait %v, want %v; busy %v, shed %v", mean, want, o.busy, o.shed)
	}

	m = model{replicas: 1, cores: 1, rate: 100, burst: 5000, every: 10, length: 30, patience: 5, classes: []class{{1, 0.005, 0.003}}}
	one := m.simulate()
	m.replicas = 3
	three := m.simulate()
	if one.shed == 0 || one.quantile(1) > m.patience || three.shed >= one.shed || three.quantile(0.5) >= one.quantile(0.5) {
		t.Errorf("one replica: shed %v, waits up to %v; three: %v, %v", one.shed, one.quantile(1), three.shed, three.quantile(1))
	}
}
