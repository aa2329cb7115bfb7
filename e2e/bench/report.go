// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// section is a generated part of a page, between two comments with its name.
type section struct {
	file  string // path from the root of the repository
	name  string
	write func(samples) (string, error)
}

func sections() []section {
	const costs, own = "manifests/docs/costs.md", "e2e/bench/README.md"
	return []section{{costs, "bench", ratios}, {costs, "constructs", constructCosts}, {own, "handlers", sizes}, {costs, "sizing", sizing}}
}

// writeReadmes writes all sections, or none.
func (s samples) writeReadmes(root string) error {
	texts := map[string]string{}
	for _, section := range sections() {
		path := filepath.Join(root, section.file)
		if texts[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			texts[path] = string(text)
		}
		content, err := section.write(s)
		if err != nil {
			return fmt.Errorf("no page is changed: %w", err)
		}
		if texts[path], err = replaceSection(texts[path], section.name, content); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for path, text := range texts {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// replaceSection replaces the content between the section's comments.
func replaceSection(text, name, content string) (string, error) {
	opening, closing := "<!-- "+name+": written by make bench -->\n", "<!-- end of "+name+" -->\n"
	before, rest, ok1 := strings.Cut(text, opening)
	_, after, ok2 := strings.Cut(rest, closing)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("there is no section between %q and %q", strings.TrimSpace(opening), strings.TrimSpace(closing))
	}
	return before + opening + content + closing + after, nil
}

// benchmark returns the name of a handler's benchmark, with pod size and unit.
func benchmark(size podSize, name, unit string) string {
	return fmt.Sprintf("pod=%s/bytes=%d/templates=%s %s", size.name, len(review(podJSON(size))), name, unit)
}

// handlerRows returns the rows of the table about handlers, with their benchmarks.
func handlerRows() [][2]string {
	return [][2]string{
		{"only read the body", bodyRead},
		{"Pillion, the pod opted out", optedOut},
		{"**Pillion, one sidecar**", injectedOne},
		{"Pillion, one sidecar, 20 templates of which one matches", "20/matching=1/cel=true/handler=pillion/request=injected"},
		{"Pillion, two templates with CEL, forEachContainer and parameters", featuresInjected},
		{"Pillion, two templates with CEL in nearly every place", heavyInjected},
		{"Pillion, 20 sidecars", "20/matching=20/cel=true/handler=pillion/request=injected"},
		{"Pillion, the final pod checked", "1/matching=1/cel=true/handler=pillion/request=judged"},
		{"decoded to Kubernetes' types, operations written by hand", typedDirect},
		{"decoded to Kubernetes' types, a diff", typedDiff},
		{"controller-runtime, `PatchResponseFromRaw`", "1/matching=1/cel=false/handler=controller-runtime/request=injected"},
	}
}

const (
	bodyRead         = "1/matching=1/cel=false/handler=read-only/request=injected"
	optedOut         = "1/matching=1/cel=true/handler=pillion/request=opted-out"
	featuresInjected = "2/matching=2/cel=features/handler=pillion/request=injected"
	heavyInjected    = "2/matching=2/cel=heavy/handler=pillion/request=injected"
	injectedOne      = "1/matching=1/cel=true/handler=pillion/request=injected"
	typedDirect      = "1/matching=1/cel=false/handler=typed-direct/request=injected"
	typedDiff        = "1/matching=1/cel=false/handler=typed-diff/request=injected"
)

// sizes returns the table of costs by pod size.
func sizes(s samples) (string, error) {
	var text strings.Builder
	fmt.Fprint(&text, "| CPU of a request without HTTP and TLS, µs |")
	for _, size := range podSizes() {
		fmt.Fprintf(&text, " %.3g KB |", float64(len(review(podJSON(size))))/1000)
	}
	fmt.Fprintf(&text, " allocations |\n|---|%s\n", strings.Repeat("---:|", len(podSizes())+1))
	for _, row := range handlerRows() {
		fmt.Fprintf(&text, "| %s |", row[0])
		for _, size := range podSizes() {
			name := benchmark(size, row[1], cpuUnit)
			if err := s.missing(name); err != nil {
				return "", err
			}
			fmt.Fprintf(&text, " %s |", digits(median(s[name])/1000))
		}
		fmt.Fprintf(&text, " %s |\n", group(fmt.Sprintf("%.0f", median(s[benchmark(typicalSize(), row[1], allocsUnit)]))))
	}
	return text.String(), nil
}

// ratios returns the table that compares Pillion with alternatives.
func ratios(s samples) (string, error) {
	var text strings.Builder
	fmt.Fprint(&text, "| | Pillion | the other | ratio | target |\n|---|---:|---:|---:|---:|\n")
	for _, c := range comparisons() {
		if err := s.missing(c.of, c.to); err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s |\n", c.what, digits(median(s[c.of])/c.unit), digits(median(s[c.to])/c.unit), spread(s.ratios(c.of, c.to)), c.target)
	}
	limits, err := s.limits()
	if err != nil {
		return "", err
	}
	bodies, err := s.bodies()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&text, "%s\n%s(%s, %s/%s, on %d CPUs.)\n", limits, bodies, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	return text.String(), nil
}

// comparison compares Pillion with an alternative.
type comparison struct {
	what, of, to string
	unit         float64 // factor from the samples' unit to the README's
	target       string
}

func comparisons() []comparison {
	typical := func(name string) string { return benchmark(typicalSize(), name, cpuUnit) }
	return []comparison{
		{"handler, opted out, compared with reading the body (µs of CPU)", typical(optedOut), typical(bodyRead), 1000, "3"},
		{"handler, one sidecar, compared with operations by hand (µs of CPU)", typical(injectedOne), typical(typedDirect), 1000, "0.125"},
		{"handler, one sidecar, compared with a diff (µs of CPU)", typical(injectedOne), typical(typedDiff), 1000, "0.04"},
		{"server over TLS, one sidecar, compared with the same answer without work (µs of CPU)", "cpu/injected/pillion", "cpu/injected/constant", 1, "1.4"},
		{"the same, opted out", "cpu/opted-out/pillion", "cpu/opted-out/constant", 1, ""},
		{"the same, the final pod checked", "cpu/judged/pillion", "cpu/judged/constant", 1, ""},
		{"the same, two templates with CEL, forEachContainer and parameters", "cpu/features-injected/pillion-features", "cpu/features-injected/constant", 1, "1.6"},
		{"the same, the final pod checked", "cpu/features-judged/pillion-features", "cpu/features-judged/constant", 1, "1.6"},
		{"the same, two templates with CEL in nearly every place", "cpu/heavy-injected/pillion-heavy", "cpu/heavy-injected/constant", 1, ""},
		{"the same, the final pod checked", "cpu/heavy-judged/pillion-heavy", "cpu/heavy-judged/constant", 1, ""},
		{"latency at 500 requests/s, median (µs)", "latency/pillion/50", "latency/constant/50", 1, "1.5"},
		{"latency at 500 requests/s, p99 (µs)", "latency/pillion/99", "latency/constant/99", 1, ""},
		{"latency at 500 requests/s, p99.9 (µs)", "latency/pillion/99.9", "latency/constant/99.9", 1, ""},
		{"what two webhooks add to a pod's create, compared with two that do nothing (ms)", "added/pillion", "added/noop", 1, "1.3"},
		{"the same, opted out", "added/pillion-opted-out", "added/noop", 1, ""},
		{"the same, compared with two that answer with the same patch, without reading the pod", "added/pillion", "added/constant-patch", 1, ""},
		{"the cost of that patch in the API server: these two, compared with two that do nothing", "added/constant-patch", "added/noop", 1, ""},
	}
}

// limits returns the lines about measurements with an absolute target.
func (s samples) limits() (string, error) {
	if err := s.missing("memory/pillion-20", "ready/pillion-20", "create/none"); err != nil {
		return "", err
	}
	return fmt.Sprintf("| memory under load, 20 templates (MiB) | %s | %s | | 80 MiB |\n", digits(median(s["memory/pillion-20"])), digits(median(s["memory/constant"]))) +
		fmt.Sprintf("| ready after the start, 20 templates (ms) | %s | %s | | 150 ms |\n\n", digits(median(s["ready/pillion-20"])), digits(median(s["ready/constant"]))) +
		fmt.Sprintf("To create a pod without webhooks takes %s ms here. For a patch, the API server encodes the pod, applies the patch, decodes and defaults\n"+
			"the result, and runs all mutating plugins again. The brackets contain the lowest and the highest value of the rounds.", digits(median(s["create/none"]))), nil
}

// bodies returns the lines about the sizes of requests and answers.
func (s samples) bodies() (string, error) {
	var all []string
	for _, w := range []string{"injected", "opted-out", "judged", "features-injected", "features-judged", "heavy-injected", "heavy-judged"} {
		request, answer := "bytes/"+w+"/request", "bytes/"+w+"/answer"
		if err := s.missing(request, answer); err != nil {
			return "", err
		}
		all = append(all, fmt.Sprintf("%s and %s", group(fmt.Sprint(median(s[request]))), group(fmt.Sprint(median(s[answer])))))
	}
	return "Over TLS, both servers read the same AdmissionReview of a pod of median size, and send the same bytes. The other server has Pillion's\n" +
		"answer ready. Bytes read and sent, by row: `" + strings.Join(all, "; ") + "`.\n" +
		"The compiler knows from a profile (`make profile`) what to optimize in Pillion, and not in the other server.\n" +
		"The templates with CEL, forEachContainer and parameters are `fluent-bit` and `opentelemetry-collector` of\n" +
		"[the library](../../templates/library/README.md), which the pod requests. Those with CEL in nearly every place are in\n" +
		"[e2e/bench/heavy](../../e2e/bench/heavy).\n", nil
}

// added replaces the times of creates by the time that the webhooks of each way add, in ms:
// the median of the paired differences in each block.
func (s samples) added(block int) {
	for _, way := range []string{"noop", "constant-patch", "pillion", "pillion-opted-out"} {
		with, without := s["create/"+way], s["create/none"]
		for start := 0; start+block <= min(len(with), len(without)); start += block {
			differences := make([]float64, block)
			for i := range block {
				differences[i] = with[start+i] - without[start+i]
			}
			s.add("added/"+way, median(differences))
		}
	}
}
