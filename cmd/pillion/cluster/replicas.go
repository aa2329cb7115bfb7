// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/cmd/pillion/check"
	"github.com/pillion-dev/pillion/manifests"
)

// readReplicas asks every running replica of pillion serve for its state, through the API server.
func (l *podLister) readReplicas(ctx context.Context) (r check.Replicas, err error) {
	var pods []corev1.Pod
	err = allOf(ctx, l, l.Resource(core.WithResource("pods")).Namespace(l.system), "app.kubernetes.io/name="+manifests.Name, &pods)
	if r.Unknown, err = whyForbidden(err, "list", "pods", l.system); err != nil || r.Unknown != "" {
		return r, err
	}
	api, err := l.restClient()
	if err != nil {
		return r, err
	}
	for i := range pods {
		if pods[i].Status.Phase == corev1.PodRunning && pods[i].DeletionTimestamp == nil {
			r.All = append(r.All, check.Replica{Pod: pods[i].Name})
		}
	}
	var all sync.WaitGroup
	for i := range r.All {
		all.Go(func() { l.readReplica(ctx, api, &r.All[i]) })
	}
	all.Wait()
	return r, nil
}

// readReplica reads /readyz?verbose of a replica. A replica that is not ready answers too, with an error
// code.
func (l *podLister) readReplica(ctx context.Context, api rest.Interface, r *check.Replica) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	at := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/proxy/readyz", l.system, net.JoinHostPort(r.Pod, strconv.Itoa(manifests.AdminPort)))
	answer, err := api.Get().AbsPath(at).Param("verbose", "").Do(ctx).Raw()
	switch {
	case apierrors.IsForbidden(err):
		r.Unknown = "you are not allowed to get pods/proxy in the namespace " + l.system
	case errors.Is(err, context.DeadlineExceeded):
		r.Unknown = fmt.Sprintf("no answer through the API server within %s", dialWithin)
	case err != nil && (len(answer) == 0 || answer[0] != '['):
		r.Unknown = err.Error()
	default:
		r.Answer = string(answer)
	}
}

// restClient returns a client for paths that have no objects.
func (c *Client) restClient() (rest.Interface, error) {
	d, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return nil, err
	}
	return d.RESTClient(), nil
}
