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
// does. It holds only one pod in memory at a time: as objects, the pods of a page would take many times as much.
func (c *Client) eachPod(ctx context.Context, namespace, selector string, each func(*listedPod) error, restart func()) error {
	path := "/api/v1/pods"
	if namespace != "" {
		path = "/api/v1/namespaces/" + namespace + "/pods"
	}
	var failed error // of each: an error of the stream would name the list
	pods := kube.NewStream(c.api, path)
	pods.Read = func(text []byte) (runtime.Object, error) {
		pod, err := readListedPod(withKind(text))
		if failed = err; err == nil {
			failed = each(pod)
		}
		return nil, failed
	}
	err := readPages(ctx, selector, func(ctx context.Context, options metav1.ListOptions) (string, error) {
		list, err := pods.ReadPage(ctx, options)
		return list.Continue, err
	}, restart)
	if failed != nil {
		return failed
	}
	return err
}

// withKind copies the JSON of a pod of a list. The API server leaves out the kind there.
func withKind(text []byte) []byte {
	const kind = `{"kind":"Pod","apiVersion":"v1",`
	if !bytes.HasPrefix(text, []byte(`{"metadata":`)) {
		return bytes.Clone(text)
	}
	return slices.Concat([]byte(kind), text[1:])
}
