// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
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
			names = append(names, benchmark(size, row[1], cpuUnit), benchmark(size, row[1], allocsUnit))
		}
		for _, kind := range []string{"injected", "judged"} {
			names = append(names, benchmark(size, "50/matching=2/cel=true/handler=pillion/request="+kind, cpuUnit))
		}
	}
	for _, w := range []string{"injected", "opted-out", "judged", "features-injected", "features-judged", "heavy-injected", "heavy-judged"} {
		names = append(names, "bytes/"+w+"/request", "bytes/"+w+"/answer")
	}
	for _, c := range constructs() {
		for _, unit := range []string{cpuUnit, allocsUnit} {
			names = append(names, constructBenchmark(c.name, true, unit), constructBenchmark(c.name, false, unit))
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

func TestWriteReadmes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	empty := map[string]string{}
	for _, section := range sections() {
		path := filepath.Join(root, section.file)
		empty[path] += fmt.Sprintf("before\n<!-- %s: written by make bench -->\nold\n<!-- end of %[1]s -->\nafter\n", section.name)
	}
	put := func(texts map[string]string) {
		for path, text := range texts {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(s samples) (map[string]string, error) {
		err := s.writeReadmes(root)
		texts := map[string]string{}
		for path := range empty {
			text, _ := os.ReadFile(path)
			texts[path] = string(text)
		}
		return texts, err
	}
	put(empty)
	partial := whole()
	delete(partial, "latency/pillion/50")
	if texts, err := write(partial); err == nil || !maps.Equal(texts, empty) {
		t.Errorf("a partial run wrote %v\n%s", err, texts)
	}
	first, err := write(whole())
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{
		"manifests/docs/costs.md": {"| latency at 500 requests/s, median (µs) | 2,000 | 2,000 | 1.00 (1.00 to 1.00) | 1.5 |\n", "before\n", "\nafter\n", "| 4 | ", "| four optional strings | constants | 2.00 | 2.00 | 1.00 (1.00 to 1.00) | +0 |\n"},
		"e2e/bench/README.md":     {"| **Pillion, one sidecar** | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 | 2,000 |\n"},
	} {
		text := first[filepath.Join(root, file)]
		for _, part := range want {
			if !strings.Contains(text, part) || strings.Contains(text, "old") {
				t.Errorf("there is no %q in %s\n%s", part, file, text)
			}
		}
	}
	if again, err := write(whole()); err != nil || !maps.Equal(again, first) {
		t.Errorf("the second time it is %v\n%s", err, again)
	}
	without := map[string]string{filepath.Join(root, "e2e/bench/README.md"): "# Title\n"}
	put(without)
	if texts, err := write(whole()); err == nil || texts[filepath.Join(root, "manifests/docs/costs.md")] != first[filepath.Join(root, "manifests/docs/costs.md")] {
		t.Errorf("without sections it wrote %v\n%s", err, texts)
	}
}

// TestShippedReadmes checks that the shipped pages have the sections that the report writes.
func TestShippedReadmes(t *testing.T) {
	t.Parallel()
	for _, section := range sections() {
		text, err := os.ReadFile(filepath.Join("../..", section.file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := replaceSection(string(text), section.name, ""); err != nil {
			t.Errorf("%s: %v", section.file, err)
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

// TestSimulate compares the simulation with queueing theory: the mean wait for one server is
// ρS/2(1-ρ) if every call takes the time S (Pollaczek and Khinchine).
func TestSimulate(t *testing.T) {
	t.Parallel()
	m := model{replicas: 1, cores: 1, rate: 100, length: 1000, patience: 1e6, apiServer: 1e6, classes: []class{{1, 0.008, 0}}}
	o := m.simulate()
	var sum float64
	for _, wait := range o.waits {
		sum += wait
	}
	mean := sum / float64(len(o.waits)/2) // the calls of the second webhook reach no server
	if want := 0.8 * 0.008 / (2 * 0.2); math.Abs(mean-want) > want/10 || math.Abs(o.busy-0.8) > 0.02 || o.shed != 0 {
		t.Errorf("mean wait %v, want %v; busy %v, shed %v", mean, want, o.busy, o.shed)
	}

	m = model{replicas: 1, cores: 1, rate: 100, burst: 5000, every: 10, length: 30, patience: 1, timeout: 5, classes: []class{{1, 0.005, 0.003}}}
	one := m.simulate()
	m.replicas = 3
	three := m.simulate()
	if one.shed == 0 || one.again <= one.shed || one.quantile(1) > m.timeout+m.patience || three.shed >= one.shed || three.quantile(0.5) >= one.quantile(0.5) {
		t.Errorf("one replica: shed %v, waits up to %v; three: %v, %v", one.shed, one.quantile(1), three.shed, three.quantile(1))
	}
}
