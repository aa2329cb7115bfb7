// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/cmd/pillion/check"
	"github.com/pillion-dev/pillion/manifests"
)

// Versions reads the versions of the API server and of the replicas. What it cannot read is unknown, with the reason. If no replica
// answers, the tag of the image of their Deployment counts.
func (c *Client) Versions(ctx context.Context) *check.Versions {
	v := &check.Versions{}
	var err error
	if v.Kubernetes, err = c.serverVersion(ctx); err != nil {
		v.Unknown = NoAnswer(err).Error()
		return v
	}
	if v.Servers, v.Unknown = c.replicaVersions(ctx); len(v.Servers) > 0 {
		return v
	}
	d, err := c.Resource(apps.WithResource("deployments")).Namespace(c.system).Get(ctx, manifests.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		v.Unknown = fmt.Sprintf("there is no Deployment %s in the namespace %s", manifests.Name, c.system)
	case err == nil:
		if tag := imageTag(d); tag != "" {
			v.Servers, v.Unknown = []check.ServerVersion{{Version: tag}}, ""
		}
	}
	return v
}

// imageTag returns the tag of the image of a Deployment's first container, or "".
func imageTag(d *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return ""
	}
	fields, _ := containers[0].(map[string]any)
	image, _ := fields["image"].(string)
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	return tag
}

// replicaVersions asks the running replicas through the API server.
func (c *Client) replicaVersions(ctx context.Context) (all []check.ServerVersion, unknown string) {
	list, err := c.Resource(core.WithResource("pods")).Namespace(c.system).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + manifests.Name})
	if apierrors.IsForbidden(err) {
		return nil, "you are not allowed to list pods in the namespace " + c.system
	}
	if err != nil {
		return nil, NoAnswer(err).Error()
	}
	api, err := c.restClient()
	if err != nil {
		return nil, err.Error()
	}
	var lock sync.Mutex
	var asked sync.WaitGroup
	unknown = "no replica runs"
	for i := range list.Items {
		pod := &list.Items[i]
		if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase != string(corev1.PodRunning) || pod.GetDeletionTimestamp() != nil {
			continue
		}
		asked.Go(func() {
			version, why := c.replicaVersion(ctx, api, pod.GetName())
			lock.Lock()
			defer lock.Unlock()
			if unknown = why; why == "" {
				all = append(all, version)
			}
		})
	}
	asked.Wait()
	if len(all) > 0 {
		unknown = ""
	}
	return all, unknown
}

// replicaVersion reads the metrics of a replica.
func (c *Client) replicaVersion(ctx context.Context, api rest.Interface, pod string) (v check.ServerVersion, unknown string) {
	at := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/proxy/metrics", c.system, net.JoinHostPort(pod, strconv.Itoa(manifests.AdminPort)))
	metrics, err := api.Get().AbsPath(at).Do(ctx).Raw()
	if apierrors.IsForbidden(err) {
		return v, "you are not allowed to get pods/proxy in the namespace " + c.system
	}
	if err != nil {
		return v, NoAnswer(err).Error()
	}
	v = check.ReadServerVersion(metrics)
	if v.Replica = pod; v.Version == "" {
		return v, "the metrics of " + pod + " have no pillion_build_info"
	}
	return v, ""
}
