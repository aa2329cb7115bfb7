// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// listedPod is a pod of a list: its JSON, and what commands read of it themselves.
type listedPod struct {
	Metadata metav1.ObjectMeta
	Status   struct {
		Phase      corev1.PodPhase
		Conditions []corev1.PodCondition
	}

	text []byte
}

func readListedPod(text []byte) (*listedPod, error) {
	p := &listedPod{text: text}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("a pod cannot be read: %w", err)
	}
	return p, nil
}

// hasEnded reports whether all containers of the pod have ended.
func (p *listedPod) hasEnded() bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// eachPod passes the pods of a namespace, or for "" of all namespaces, to each, one by one. It calls restart as [podLister.eachObject]
// does.
func (c *Client) eachPod(ctx context.Context, namespace, selector string, each func(*listedPod) error, restart func()) error {
	return readPages(ctx, selector, func(ctx context.Context, options metav1.ListOptions) (string, error) {
		list, err := c.listPods(ctx, namespace, options, func(text []byte) error {
			pod, err := readListedPod(withKind(text))
			if err != nil {
				return err
			}
			return each(pod)
		})
		return list.Continue, err
	}, restart)
}

// listPods passes the pods of a list, or of one page of it, to each, one by one, as JSON that changes after the call. It holds only one
// pod in memory at a time: as objects, the pods of a list would take many times as much.
func (c *Client) listPods(ctx context.Context, namespace string, options metav1.ListOptions, each func(text []byte) error) (metav1.ListMeta, error) {
	path := "/api/v1/pods"
	if namespace != "" {
		path = "/api/v1/namespaces/" + namespace + "/pods"
	}
	var failed error // of each: an error of the stream would name the list
	pods := kube.NewStream(c.api, path)
	pods.Read = func(text []byte) (runtime.Object, error) {
		failed = each(text)
		return nil, failed
	}
	list, err := pods.ReadPage(ctx, options)
	if failed != nil {
		err = failed
	}
	return list, err
}

// withKind copies the JSON of a pod of a list. The API server leaves out the kind there.
func withKind(text []byte) []byte {
	const kind = `{"kind":"Pod","apiVersion":"v1",`
	if !bytes.HasPrefix(text, []byte(`{"metadata":`)) {
		return bytes.Clone(text)
	}
	return slices.Concat([]byte(kind), text[1:])
}
