// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// slowPods creates pods after a time.
type slowPods struct {
	dynamic.NamespaceableResourceInterface

	mirror, others time.Duration
	err            error // about others
}

func (s slowPods) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return s
}
func (s slowPods) Namespace(string) dynamic.ResourceInterface { return s }

func (s slowPods) Create(ctx context.Context, pod *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	takes, err := s.others, s.err
	if pod.GetAnnotations()[corev1.MirrorPodAnnotationKey] != "" {
		takes, err = s.mirror, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(takes):
		return pod, err
	}
}

// TestPodWithoutAnswer checks that check stops waiting for a pod only if Pillion is the reason, and otherwise returns the API server's
// answer.
func TestPodWithoutAnswer(t *testing.T) {
	t.Parallel()
	denied := errors.New("failed calling webhook")
	for name, test := range map[string]struct {
		pods  slowPods
		takes time.Duration
		hung  bool
	}{
		"at once":                  {slowPods{}, 0, false},
		"denied at once":           {slowPods{err: denied}, 0, false},
		"slow":                     {slowPods{mirror: time.Second, others: 3 * time.Second}, 3 * time.Second, false},
		"the webhook hangs":        {slowPods{others: time.Hour}, promptly, true},
		"denied after a long time": {slowPods{mirror: time.Hour, others: 10 * time.Second, err: denied}, 10 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				made, timeout, err := (&Client{Interface: test.pods}).dryRunPromptly(t.Context(), "shop", []byte(`{"spec": {"containers": [{"name": "check"}]}}`))
				wantErr := test.pods.err
				if test.hung {
					wantErr = nil
				}
				if took := time.Since(began); took != test.takes || (timeout != "") != test.hung || !errors.Is(err, wantErr) || (made == nil) != test.hung {
					t.Errorf("after %s: %v, %q, %v; want %s", took, made, timeout, err, test.takes)
				}
			})
		})
	}
}
