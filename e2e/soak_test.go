// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

var soakTime = flag.Duration("soak", 0, "how long TestSoak goes on; everything happens twice at least")

const (
	// stepWithin is far more than a step takes.
	stepWithin = 2 * time.Minute
	// soakBetween is the number of creates between two steps, and soakLooks how often memory is measured
	// meanwhile.
	soakBetween, soakLooks = 100, 5
	// mostMemory is the MiB that a replica may have resident, with pods of 3 MiB in between: three quarters of its limit.
	// In ten minutes, 132 were measured.
	mostMemory = 192
	// mostGrowth is the MiB by which what is kept may grow from the first third of the looks to the last; a collection
	// while a pod of 3 MiB is worked on leaves 5 more. In ten minutes it is half a KiB of each request.
	mostGrowth = 10
)

// soakTemplate has the versions that the soak publishes.
const soakTemplate = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: guard}
spec:
  required: true
  pod:
    metadata: {annotations: {soak.example.com/pillion-templates: v%[1]d}}
    spec:
      initContainers:
      - name: guard
        restartPolicy: Always
        image: registry.example/guard:%[1]d
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 16Mi}}
        volumeMounts: [{name: guard, mountPath: /guard}]
      volumes: [{name: guard, emptyDir: {}}]
  forEachContainer:
  - add: {volumeMounts: [{name: guard, mountPath: /var/guard}]}
`

// soakSource is where a template comes from, and its text, which has a verb for the version.
type soakSource struct {
	configMap, text string // the name of the ConfigMap, or of the template in the API server
	object          bool
	used, newest    atomic.Int64 // the version that all replicas have at least, and the one published last
}

// brokenVersion is no pod's: it is of templates that cannot be used.
const brokenVersion = -1

// version is the version that the pod got, as the template's annotation records it.
func (f *soakSource) version(pod *corev1.Pod) (n int64, err error) {
	text := pod.Annotations["soak.example.com/"+f.configMap]
	if _, err := fmt.Sscanf(text, "v%d", &n); err != nil {
		return 0, fmt.Errorf("the version of the template in %s is %q", f.configMap, text)
	}
	return n, nil
}

func soakSources() [2]*soakSource {
	return [...]*soakSource{
		{configMap: "pillion-templates", text: soakTemplate}, // is mounted into the replicas
		{configMap: "labelled", object: true, text: "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: labelled}\n" +
			"spec: {default: true, pod: {metadata: {annotations: {soak.example.com/labelled: v%d}}}}\n"},
	}
}

// soak is what happens while pods are created.
type soak struct {
	*installed
	sources [2]*soakSource
	load    *soakLoad
	version int64
	number  int      // of the next replica
	away    []window // of an API server
	alone   []window // of one replica, because the other one crashed
	memory  map[string]soakMemory
	warm    int // memory measurements until all that a replica keeps has been used: those of the first time round
}

// soakMemory is a replica's at each look, in MiB.
type soakMemory struct {
	resident []float64
	kept     []float64 // what the last collection left: the next one is due when there is twice of it
}

// soakStep is one thing that happens to clusters. It returns when its consequences are over.
type soakStep struct {
	name string
	run  func(context.Context) error
}

// TestSoak checks that during all these steps every pod of a namespace that opted in is either injected or
// denied with a reason, that no pod of another namespace fails, and that memory use stays flat.
func TestSoak(t *testing.T) {
	skipUnlessFull(t, "it disturbs everything for minutes; the tests of rotations, replicas and failures have one disturbance each")
	i := &installed{Cluster: newCluster(t), namespace: "shop"}
	i.apply(t, "self-signed")
	s := &soak{installed: i, sources: soakSources(), memory: map[string]soakMemory{}}
	// From the start, for a set without it would count for minutes, and pods without it be right.
	mounted, labelled := s.sources[0], s.sources[1]
	if err := errors.Join(s.write(t.Context(), mounted, 0, ""), s.write(t.Context(), labelled, 0, "")); err != nil {
		t.Fatal(err)
	}
	i.run(t)
	s.number = len(i.replicas)
	s.load = i.startSoak(t, s.sources)

	end := time.Now().Add(*soakTime)
	steps := []soakStep{
		{"mounted templates change", s.publish(mounted)},
		{"mounted templates break and mend", s.breakAndMend(mounted)},
		{"a replica crashes", s.crash},
		{"a template in the API server changes", s.publish(labelled)},
		{"a replica is replaced", s.replace},
		{"the API server restarts", s.restartAPIServer},
	}
	s.warm = len(steps) * soakLooks
	for n := 0; (n < 2*len(steps) || time.Now().Before(end)) && !t.Failed(); n++ {
		if err := s.step(t, steps[n%len(steps)]); err != nil {
			t.Error(err)
		}
	}
	if err := s.load.more(testContext(t), soakBetween); err != nil {
		t.Error(err)
	}
	s.load.stop()
	s.report(t)
}

func (s *soak) step(t *testing.T, step soakStep) error {
	ctx, cancel := context.WithTimeout(t.Context(), stepWithin)
	defer cancel()
	began := time.Now()
	if err := step.run(ctx); err != nil {
		return fmt.Errorf("%s: %w", step.name, err)
	}
	took := time.Since(began)
	t.Logf("%s: %s; %d creates so far", step.name, took.Round(time.Millisecond), s.load.created.Load())
	for range soakLooks {
		if err := errors.Join(s.load.more(ctx, soakBetween/soakLooks), s.measure(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// publish gives the replicas another version, and waits until all have it.
func (s *soak) publish(from *soakSource) func(context.Context) error {
	return func(ctx context.Context) error {
		before, err := s.revisions(ctx)
		if err != nil {
			return err
		}
		s.version++
		from.newest.Store(s.version)
		if err := s.write(ctx, from, s.version, ""); err != nil {
			return err
		}
		err = poll(ctx, func() error {
			now, err := s.revisions(ctx)
			if err == nil && (len(slices.Compact(slices.Clone(now))) != 1 || slices.Contains(before, now[0])) {
				err = fmt.Errorf("the revisions are %v, and were %v", now, before)
			}
			return err
		})
		if err == nil {
			from.used.Store(s.version)
		}
		return err
	}
}

// write replaces the template by that version, with more text behind it.
func (s *soak) write(ctx context.Context, to *soakSource, version int64, more string) error {
	if to.object {
		_, err := s.RunKubectl(ctx, fmt.Appendf(nil, to.text, version), "apply", "-f", "-")
		return err
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"soak.yaml": fmt.Sprintf(to.text, version) + more}})
	if err != nil {
		return err
	}
	_, err = s.Client.CoreV1().ConfigMaps(pillionNamespace).Patch(ctx, to.configMap, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// breakAndMend writes templates that cannot be used, and then valid ones. In between, the earlier templates stay in use.
func (s *soak) breakAndMend(what *soakSource) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := s.write(ctx, what, brokenVersion, "nonsense: true\n"); err != nil {
			return err
		}
		if err := poll(ctx, func() error { return s.wantProblems(ctx, true) }); err != nil {
			return err
		}
		if err := s.load.more(ctx, soakBetween); err != nil {
			return err
		}
		if err := s.publish(what)(ctx); err != nil {
			return err
		}
		return poll(ctx, func() error { return s.wantProblems(ctx, false) })
	}
}

func (s *soak) wantProblems(ctx context.Context, want bool) error {
	for _, r := range s.replicas {
		metrics, err := r.Metrics(ctx)
		if err != nil {
			return err
		}
		if n := metrics.Gauge("pillion_template_problems", nil); n > 0 != want {
			return fmt.Errorf("a replica has %v problems", n)
		}
	}
	return nil
}

// last is the replica that the steps affect. The first one lives as long as the test, so that its memory can
// be measured.
func (s *soak) last() int { return len(s.replicas) - 1 }

// crash kills a replica. Connections to it break in the middle of requests, and the API server notices that.
func (s *soak) crash(ctx context.Context) error {
	from := time.Now()
	err := s.replicas[s.last()].Crash(ctx)
	s.alone = append(s.alone, window{from, time.Now().Add(apiServerLag)})
	return err
}

// replace is a rolling update of one replica, by which no request is lost.
func (s *soak) replace(ctx context.Context) error {
	next, err := s.replicas[s.last()].Replace(ctx, s.number)
	s.number++
	if next != nil {
		s.replicas[s.last()] = next
	}
	return err
}

func (s *soak) restartAPIServer(ctx context.Context) error {
	from := time.Now()
	err := s.RestartAPIServer(ctx)
	s.away = append(s.away, window{from, time.Now().Add(apiServerLag)})
	return err
}

// measure records the memory of each replica.
func (s *soak) measure(ctx context.Context) error {
	for _, r := range s.replicas {
		metrics, err := r.Metrics(ctx)
		if err != nil {
			return err
		}
		m := s.memory[r.Admin]
		m.resident = append(m.resident, metrics.Gauge("process_resident_memory_bytes", nil)/(1<<20))
		m.kept = append(m.kept, metrics.Gauge("go_memstats_next_gc_bytes", nil)/(2<<20))
		s.memory[r.Admin] = m
	}
	return nil
}

func (s *soak) revisions(ctx context.Context) ([]string, error) {
	all := make([]string, len(s.replicas))
	for n, r := range s.replicas {
		metrics, err := r.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		if values := metrics.Label("pillion_templates", "revision"); len(values) == 1 {
			all[n] = values[0]
		}
	}
	return all, nil
}

// poll calls f until it reports no problem, and returns its last result.
func poll(ctx context.Context, f func() error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(context.Context) (bool, error) {
		last = f()
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
