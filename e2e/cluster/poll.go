// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Intervals of polls. What comes soon is seen soon, and what takes long costs little CPU time while tests wait for it.
const (
	firstPoll   = 10 * time.Millisecond
	longestPoll = 250 * time.Millisecond
)

// poller waits between two looks, each time a third longer.
type poller struct{ interval time.Duration }

// next returns a channel for the end of the next interval.
func (p *poller) next() <-chan time.Time {
	p.interval = min(max(p.interval+p.interval/3, firstPoll), longestPoll)
	return time.After(p.interval)
}

// Poll calls f until it succeeds. If ctx is done first, the error contains the last error of
// f.
func Poll(ctx context.Context, f func() error) error {
	var poll poller
	var last error
	for {
		err := f()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		case <-poll.next():
		}
	}
}

// shortID returns a random part for the names of a run's objects.
func shortID() string { return strings.ToLower(rand.Text()[:8]) }

// markerPod returns a pod that every Pod Security level admits.
func markerPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:  "marker",
				Image: "registry.example/marker:1",
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}
