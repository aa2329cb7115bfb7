// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// manyPods streams a list of pods as an API server does. Their metadata has the size of that of real
// pods, of which the larger part is managedFields.
type manyPods struct{ n int }

func (m manyPods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" || r.URL.Query().Get("fieldSelector") != unfinishedPods {
		http.Error(w, "only a watch of unfinished pods", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json;stream=watch")
	out := json.NewEncoder(w)
	send := func(kind string, o *metav1.PartialObjectMetadata) {
		o.APIVersion, o.Kind, o.ResourceVersion = "meta.k8s.io/v1", "PartialObjectMetadata", "7"
		_ = out.Encode(map[string]any{"type": kind, "object": o})
	}
	for i := range m.n {
		o := pod(fmt.Sprint("team-", i%500), fmt.Sprintf("web-7d4b9c5f6d-%05d", i), map[string]string{agentKey: first, proxyKey: second, "example.com/note": strings.Repeat("x", 200)})
		o.UID, o.Labels = "4f0c5f3e-8a44-4d1c-9c9e-2f8f5a4a5b11", map[string]string{"app": "web", "pod-template-hash": "7d4b9c5f6d"}
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":"` + strings.Repeat("x", 2000) + `"}`)}}
		send("ADDED", o)
	}
	send("BOOKMARK", &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// forgetful is a queue that drops all requests.
type forgetful struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (forgetful) AddAfter(reconcile.Request, time.Duration) {}

// BenchmarkPods measures what it takes to read the pods of a large cluster. The peak of the memory is
// that of the process, with the server.
func BenchmarkPods(b *testing.B) {
	const n = 100_000
	server := httptest.NewServer(manyPods{n})
	b.Cleanup(server.Close) // after the context has ended
	client, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		b.Fatal(err)
	}
	before := heap()
	for b.Loop() {
		p := newPods(client)
		if err := p.Start(b.Context(), forgetful{}); err != nil {
			b.Fatal(err)
		}
		if err := p.WaitForSync(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(heap()-before)/n, "B/pod")
		if len(p.with) != n {
			b.Fatalf("%d pods", len(p.with))
		}
	}
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		if m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status); m != nil {
			kib, _ := strconv.ParseFloat(string(m[1]), 64)
			b.ReportMetric(kib/1024, "peak-MiB")
		}
	}
}
