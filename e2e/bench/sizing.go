// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// The load for sizing.
const (
	createsPerSecond, burst = 500, 3000
	sizedNamespaces         = 5000
	sizedReplicas           = 4
)

// sizing returns the requirements of a large cluster, from measurements with 50 templates of
// which two match a pod.
func sizing(s samples) (string, error) {
	classes, err := s.classes()
	if err != nil {
		return "", err
	}
	if err := s.missing("memory/pillion-50", "namespaces/none", "namespaces/many", "namespaces/count"); err != nil {
		return "", err
	}
	var mutate, validate float64 // µs for the mean pod
	var mutates, validates []string
	for _, c := range classes {
		mutate += c.share * c.mutate * 1e6
		validate += c.share * c.validate * 1e6
		mutates = append(mutates, fmt.Sprintf("%g × %s", c.share, digits(c.mutate*1e6)))
		validates = append(validates, fmt.Sprintf("%g × %s", c.share, digits(c.validate*1e6)))
	}
	perNamespace := max(0, median(s["namespaces/many"])-median(s["namespaces/none"])) * 1024 / median(s["namespaces/count"])
	memory := median(s["memory/pillion-50"])
	replicaMemory := memory + perNamespace*sizedNamespaces/1024
	var text strings.Builder
	fmt.Fprintf(&text, `* **CPU.** The mean pod costs, over TLS, %s = %s µs to inject
  and %s = %s µs to check. So a create costs %s µs of a core. If another webhook changes the pod after Pillion, and the
  API server calls Pillion again, it costs %s µs. %d creates/s use **%s cores** (%s).
* **Memory.** %s MiB under load with 50 templates, and %s KB for each namespace. With %s namespaces, that is **%s MiB**
  for each replica. Of pods, it remembers up to 32 of those that were created last, in at most 3 MiB, however many there are.
* **Waiting.** This is simulated with these costs. Requests arrive at random, at %d creates/s. Every 20 s, %s pods arrive
  at the same time. Each goes to any of the replicas, which have one core each. A request that would wait for more than
  a second [gets HTTP 429](load.md#overload), and the API server sends it again a second later, for 5 s. Then it is rejected, and
  a controller retries.

| replicas | busy | waiting without bursts: p50, p99, p99.9 | with bursts | sent again | rejected |
|---:|---:|---:|---:|---:|---:|
`, strings.Join(mutates, " + "), digits(mutate), strings.Join(validates, " + "), digits(validate), digits(mutate+validate), digits(2*mutate+validate), createsPerSecond,
		digits(createsPerSecond*(mutate+validate)/1e6), digits(createsPerSecond*(2*mutate+validate)/1e6),
		digits(memory), digits(perNamespace), group(fmt.Sprint(sizedNamespaces)), digits(replicaMemory),
		createsPerSecond, group(fmt.Sprint(burst)))
	needed := 0
	for replicas := 1; replicas <= sizedReplicas; replicas++ {
		m := model{replicas: replicas, cores: 1, rate: createsPerSecond, every: 20, length: 60, patience: 1, timeout: 5, apiServer: 0.002, classes: classes}
		steady := m.simulate()
		m.burst = burst
		burst := m.simulate()
		fmt.Fprintf(&text, "| %d | %.0f%% | %s | %s | %.1f%% | %.1f%% |\n", replicas, 100*steady.busy, waits(steady), waits(burst), 100*burst.again, 100*burst.shed)
		if needed == 0 && burst.shed == 0 {
			needed = replicas + 1
		}
	}
	if needed == 0 {
		return "", fmt.Errorf("%d replicas are not enough", sizedReplicas)
	}
	fmt.Fprintf(&text, "\nSo **%d replicas** of one core and %s MiB are enough, even if one of them is down. For such bursts, request a core for each.\n", needed, digits(replicaMemory))
	return text.String(), nil
}

func waits(o outcome) string {
	var all []string
	for _, q := range []float64{0.5, 0.99, 0.999} {
		all = append(all, digits(1000*o.quantile(q)))
	}
	return strings.Join(all, ", ") + " ms"
}

// classes returns the pods of a cluster by size. The cost of a call is the handler's time for
// that size, plus the overhead of the server for the typical pod.
func (s samples) classes() ([]class, error) {
	cost := func(kind string) (func(podSize) float64, error) {
		name := "50/matching=2/cel=true/handler=pillion/request=" + kind
		for _, size := range podSizes() {
			if err := s.missing(benchmark(size, name, cpuUnit), "cpu/"+kind+"/pillion-50"); err != nil {
				return nil, err
			}
		}
		handler := func(size podSize) float64 { return median(s[benchmark(size, name, cpuUnit)]) / 1e9 }
		around := max(0, median(s["cpu/"+kind+"/pillion-50"])/1e6-handler(typicalSize()))
		return func(size podSize) float64 { return handler(size) + around }, nil
	}
	mutate, err := cost("injected")
	if err != nil {
		return nil, err
	}
	validate, err := cost("judged")
	if err != nil {
		return nil, err
	}
	var all []class
	for _, size := range podSizes() {
		all = append(all, class{size.share, mutate(size), validate(size)})
	}
	return all, nil
}
