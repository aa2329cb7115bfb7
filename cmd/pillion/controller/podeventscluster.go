// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/manifests"
)

// podEventsQPS limits the requests of podEvents. The templates of a namespace take one request each, so a burst of them is
// rare.
const podEventsQPS = 20

// podEvents returns a podEvents that reads and writes the cluster, or nil if the flag says that there are no Events. Pillion runs in
// the namespace system.
func (o *Options) podEvents(config *rest.Config, system string, templates *followed, log *slog.Logger) (*podEvents, error) {
	if !o.events {
		return nil, nil
	}
	c, err := cluster.NewClient(config, system)
	if err != nil {
		return nil, err
	}
	if err := c.Limit(podEventsQPS); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	owners, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	examiner := c.NewExaminer(templates.knownSince, time.Now)
	e := newPodEvents()
	e.log, e.optedIn = log, examiner.OptedIn
	if e.self, err = os.Hostname(); err != nil || e.self == "" {
		e.self = manifests.ControllerName
	}
	e.examine = func(ctx context.Context, ns *corev1.Namespace, pods ...string) (map[string][]cluster.Mistake, error) {
		return examiner.Examine(ctx, ns, templates.contentsVersion(), pods...)
	}
	e.namespace = func(ctx context.Context, name string) (*corev1.Namespace, error) {
		return client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	}
	e.owner = func(ctx context.Context, namespace string, of metav1.OwnerReference) (*metav1.OwnerReference, error) {
		resource, ok := madeByControllers(of)
		if !ok {
			return nil, nil
		}
		gv, err := schema.ParseGroupVersion(of.APIVersion)
		if err != nil {
			return nil, err
		}
		object, err := owners.Resource(gv.WithResource(resource)).Namespace(namespace).Get(ctx, of.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && object.UID != of.UID {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return metav1.GetControllerOf(object), nil
	}
	e.create = func(ctx context.Context, event *eventsv1.Event) error {
		_, err := client.EventsV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
		return err
	}
	return e, nil
}
