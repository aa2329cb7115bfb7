// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/programs"
)

const (
	readyWithin = 2 * time.Minute
)

// Node is a control plane with one node.
type Node struct {
	*cluster.Cluster

	dir      string
	steps    *programs.Steps
	programs string // the folder with the node's programs

	scheduler *daemon
	daemons   []*daemon // of the node, in the order of their start
}

// Start starts a control plane and a node, and returns when the node is ready and has the images of
// BuildImages. It must run inside the namespaces of Enter.
func Start(ctx context.Context, steps *programs.Steps, dir string) (*Node, error) {
	found, err := programs.Kubernetes(ctx, steps)
	if err != nil {
		return nil, err
	}
	n := &Node{dir: dir, steps: steps}
	if n.programs, err = programs.Node(ctx, steps); err != nil {
		return nil, err
	}
	n.Cluster, err = cluster.StartPrograms(ctx, steps, found, "--bind-address", "0.0.0.0", "--advertise-address", Address,
		"--kubelet-preferred-address-types", "InternalIP", "--enable-aggregator-routing=false") // webhooks are called through kube-proxy
	if err != nil {
		return nil, err
	}
	if n.scheduler, err = startDaemon(ctx, dir, "kube-scheduler", filepath.Join(n.programs, "kube-scheduler"),
		"--kubeconfig", n.Kubeconfig, "--leader-elect=false", "--secure-port", "0"); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	if err := errors.Join(n.writeConfigs(), makeCgroups(dir)); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	if err := steps.Do("containerd, kubelet, kube-proxy, until the node is ready", func() error { return n.Boot(ctx) }); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

// Boot starts the programs of the node, and returns when the node is ready.
func (n *Node) Boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	since := time.Now()
	for _, command := range [][]string{
		{"containerd", "--config", n.path("containerd.toml")},
		{
			filepath.Join(n.programs, "kubelet"), "--config", n.path("kubelet.yaml"), "--kubeconfig", n.Kubeconfig,
			"--root-dir", n.path("kubelet"), "--cert-dir", n.path("kubelet-certs"), "--hostname-override", Name, "--node-ip", Address,
		},
		{filepath.Join(n.programs, "kube-proxy"), "--config", n.path("kube-proxy.yaml")},
	} {
		d, err := startDaemon(ctx, n.dir, filepath.Base(command[0]), command...)
		if err != nil {
			return err
		}
		n.daemons = append(n.daemons, d)
		if d.name == "containerd" {
			if err := n.importImages(ctx); err != nil {
				return fmt.Errorf("%w\n%s", err, n.Logs())
			}
		}
	}
	if err := cluster.Poll(ctx, func() error { return n.ready(ctx, since) }); err != nil {
		return fmt.Errorf("the node is not ready: %w\n%s", err, n.Logs())
	}
	return nil
}

// importImages waits for containerd and gives it the images. There is no registry.
func (n *Node) importImages(ctx context.Context) error {
	return cluster.Poll(ctx, func() error {
		return command(ctx, "ctr", "--address", n.socket(), "--namespace", "k8s.io", "images", "import", n.path(imagesName))
	})
}

// ready returns an error until the kubelet of this boot says that the node is ready.
func (n *Node) ready(ctx context.Context, since time.Time) error {
	node, err := n.Client.CoreV1().Nodes().Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
				return nil
			}
			return fmt.Errorf("%s since %s: %s", c.Status, c.LastHeartbeatTime, c.Message)
		}
	}
	return errors.New("its kubelet has not reported")
}

// Stop ends the cluster. The namespaces end with the process, and with them what else runs.
func (n *Node) Stop() error {
	for _, d := range slices.Backward(n.daemons) {
		d.kill()
	}
	n.daemons = nil
	if n.scheduler != nil {
		n.scheduler.kill()
	}
	killAll(n.containerProcesses())
	return n.Cluster.Stop()
}

// Logs returns the ends of the logs of the node's programs.
func (n *Node) Logs() string {
	var all []string
	for _, d := range n.daemons {
		all = append(all, d.tail())
	}
	return strings.Join(all, "\n")
}
