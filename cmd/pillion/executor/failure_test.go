// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
)

// TestFailure checks which events of a pod are about its present image.
func TestFailure(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "shop", UID: "u"}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "agent", Image: "agent"}}
	for what, test := range map[string]struct {
		after           time.Duration
		reason, message string
		want            bool
	}{
		"before the change":       {-time.Second, "Failed", "Error: ErrImagePull", false},
		"in the same second":      {0, "Failed", "Error: ErrImagePull", false},
		"after it":                {time.Second, "Failed", "Error: ErrImagePull", true},
		"of an earlier image":     {time.Second, "Failed", `Failed to pull image "agent:bad": not found`, false},
		"of this image":           {time.Second, "Failed", `Failed to pull image "docker.io/library/agent:latest": not found`, true},
		"back-off before a start": {time.Second, "BackOff", "Back-off restarting failed container", false},
		"something else":          {time.Second, "Unhealthy", "Liveness probe failed", false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("limit") == "" {
					t.Errorf("all events are read at once: %s", r.URL)
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}, Items: []corev1.Event{{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, Type: corev1.EventTypeWarning, Reason: test.reason, Message: test.message,
					InvolvedObject: corev1.ObjectReference{UID: "u", FieldPath: "spec.initContainers{agent}"}, LastTimestamp: metav1.NewTime(since.Add(test.after)),
				}}})
			}))
			t.Cleanup(server.Close)
			d, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
			must(t, err)
			if why := (executor.Kubernetes{Interface: d}).Failure(t.Context(), pod, "agent", since); (why != "") != test.want {
				t.Errorf("%q", why)
			}
		})
	}
}
