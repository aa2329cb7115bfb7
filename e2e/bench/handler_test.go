// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/inject/webhook"
)

func handler(t testing.TB, s templateSet) http.Handler {
	t.Helper()
	dir := t.TempDir()
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	h, err := newHandler(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// BenchmarkHandler measures everything except the network. Names are key=value, for benchstat.
func BenchmarkHandler(b *testing.B) {
	for _, size := range podSizes() {
		pod, out := podJSON(size), podJSON(size, optOut)
		b.Run(fmt.Sprintf("pod=%s/bytes=%d", size.name, len(review(pod))), func(b *testing.B) {
			for _, set := range []templateSet{
				{n: 1, matching: 1},
				{n: 5, matching: 5},
				{n: 20, matching: 20},
				{n: 1, matching: 1, cel: true},
				{n: 5, matching: 5, cel: true},
				{n: 20, matching: 20, cel: true},
				{n: 20, matching: 1, cel: true},
				{n: 50, matching: 2, cel: true},
			} {
				benchmarkSet(b, fmt.Sprintf("templates=%d/matching=%d/cel=%t", set.n, set.matching, set.cel), set, pod, out)
			}
			benchmarkSet(b, "templates=2/matching=2/cel=features", templateSet{features: true}, podJSON(size, askFor), out)
			benchmarkSet(b, "templates=2/matching=2/cel=heavy", templateSet{heavy: true}, podJSON(size, setLevel), out)
			for name, h := range references() {
				b.Run("templates=1/matching=1/cel=false/handler="+name+"/request=injected", func(b *testing.B) { send(b, h, webhook.PathMutate, pod, name != "read-only") })
			}
		})
	}
}

func benchmarkSet(b *testing.B, name string, set templateSet, pod, out []byte) {
	b.Helper()
	h := handler(b, set)
	final, err := mutated(b.Context(), h, pod)
	if err != nil {
		b.Fatal(err)
	}
	name += "/handler=pillion/request="
	b.Run(name+"injected", func(b *testing.B) { send(b, h, webhook.PathMutate, pod, true) })
	b.Run(name+"opted-out", func(b *testing.B) { send(b, h, webhook.PathMutate, out, false) })
	b.Run(name+"judged", func(b *testing.B) { send(b, h, webhook.PathValidate, final, false) })
}

// send sends one review again and again. What each costs around the handler is a request without headers
// of its own and a writer that forgets.
func send(b *testing.B, h http.Handler, path string, pod []byte, patched bool) {
	b.Helper()
	answer, err := ask(b.Context(), h, path, pod)
	if err != nil || bytes.Contains(answer, []byte(`"patch":`)) != patched {
		b.Fatalf("%v %s", err, answer)
	}
	body := review(pod)
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, path+"?timeout=5s", nil)
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(len(body))
	reader := bytes.NewReader(body)
	closer := io.NopCloser(reader)
	w := &discardWriter{header: http.Header{}}
	b.ReportAllocs()
	before := cpu.Used(b)
	for b.Loop() {
		reader.Reset(body)
		r.Body = closer // which handlers wrap
		h.ServeHTTP(w, r)
	}
	b.ReportMetric(float64(cpu.Used(b)-before)/float64(b.N), cpuUnit)
}

type discardWriter struct{ header http.Header }

func (w *discardWriter) Header() http.Header       { return w.header }
func (*discardWriter) WriteHeader(int)             {}
func (*discardWriter) Write(p []byte) (int, error) { return len(p), nil }

// TestReferences checks that the compared webhooks make the same changes.
func TestReferences(t *testing.T) {
	t.Parallel()
	for _, size := range podSizes() {
		pod := podJSON(size)
		for _, cel := range []bool{false, true} {
			want := injected(t, handler(t, templateSet{n: 1, matching: 1, cel: cel}), pod)
			if untouched := injected(t, references()["read-only"], pod); cmp.Equal(want, untouched) {
				t.Fatalf("%s: Pillion added nothing", size.name)
			}
			for name, h := range references() {
				if diff := cmp.Diff(want, injected(t, h, pod)); name != "read-only" && diff != "" {
					t.Errorf("%s: - Pillion, + %s:\n%s", size.name, name, diff)
				}
			}
		}
	}
}

// TestFeatures checks that the shipped templates give each pod both sidecars, the parameters of the pod, and all
// additions to its containers.
func TestFeatures(t *testing.T) {
	t.Parallel()
	for _, size := range podSizes() {
		pod := injected(t, handler(t, templateSet{features: true}), podJSON(size, askFor))
		if n := len(pod.Spec.InitContainers); n != 2 || !slices.Contains(pod.Spec.InitContainers[0].Args, "--prop=host=logs.example") {
			t.Errorf("%s: %d init containers, the first with %v", size.name, n, pod.Spec.InitContainers[0].Args)
		}
		for _, c := range pod.Spec.Containers {
			if len(c.Env) != size.env+2 || len(c.VolumeMounts) != 2 {
				t.Errorf("%s: %s has %d variables and %d mounts", size.name, c.Name, len(c.Env), len(c.VolumeMounts))
			}
		}
	}
}

// TestHeavy is TestFeatures for the templates with more CEL.
func TestHeavy(t *testing.T) {
	t.Parallel()
	for _, size := range podSizes() {
		pod := injected(t, handler(t, templateSet{heavy: true}), podJSON(size, setLevel))
		if n := len(pod.Spec.InitContainers); n != 2 || pod.Spec.InitContainers[0].Args[0] != "--level=debug" {
			t.Errorf("%s: %d init containers, the first with %v", size.name, n, pod.Spec.InitContainers[0].Args)
		}
		for _, c := range pod.Spec.Containers {
			if len(c.Env) != size.env+5 || len(c.VolumeMounts) != 2 {
				t.Errorf("%s: %s has %d variables and %d mounts", size.name, c.Name, len(c.Env), len(c.VolumeMounts))
			}
		}
	}
}

// injected returns the pod with what a handler adds, except for the revision.
func injected(t *testing.T, h http.Handler, pod []byte) *corev1.Pod {
	t.Helper()
	after, err := mutated(t.Context(), h, pod)
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.Pod{}
	if err := json.Unmarshal(after, object); err != nil {
		t.Fatal(err)
	}
	delete(object.Annotations, injectedAnnotation)
	return object
}

// TestSizes checks that generated reviews are as large as real ones.
func TestSizes(t *testing.T) {
	t.Parallel()
	for _, s := range podSizes() {
		if got := len(review(podJSON(s))); s.bytes > 0 && max(got, s.bytes)*100 > min(got, s.bytes)*110 {
			t.Errorf("%s: %d bytes, want about %d", s.name, got, s.bytes)
		}
	}
}
