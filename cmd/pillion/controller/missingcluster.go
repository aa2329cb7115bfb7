// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
)

// missingQPS limits the requests of missing: pages of pods, and namespaces.
const missingQPS = 50

// newMissing returns a missing that reads the cluster. Pillion runs in the namespace system.
func newMissing(config *rest.Config, system string, templates *followed, log *slog.Logger) (*missing, error) {
	c, err := cluster.NewClient(config, system)
	if err != nil {
		return nil, err
	}
	if err := c.Limit(missingQPS); err != nil {
		return nil, err
	}
	limited := rest.CopyConfig(config)
	limited.QPS, limited.Burst = missingQPS, missingQPS
	client, err := kubernetes.NewForConfig(limited)
	if err != nil {
		return nil, err
	}
	examiner := c.NewExaminer(templates.knownSince, time.Now)
	return &missing{
		in: map[string]*missingNamespace{}, optedIn: examiner.OptedIn, version: templates.contentsVersion, now: time.Now, log: log, all: templates.All,
		namespace: func(ctx context.Context, name string) (*corev1.Namespace, error) {
			ns, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil, nil
			}
			return ns, err
		},
		count: func(ctx context.Context, ns *corev1.Namespace) (map[types.NamespacedName]int64, error) {
			return examiner.CountMissing(ctx, ns, templates.contentsVersion(), unknownMissing)
		},
	}, nil
}
