// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"io"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// Config returns the configuration for the API of the kubeconfig's cluster, or, without a
// kubeconfig, of the cluster that this process runs in.
func Config(kubeconfig string) (*rest.Config, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("connecting to the Kubernetes API: %w", err)
	}
	config.UserAgent = "pillion/" + cli.BuildVersion().Version
	config.QPS, config.Burst = 50, 100 // so that a write never waits because watches are starting
	return config, nil
}

// NewClient returns a client for objects without Go types. The clients of all API groups, with
// their types, would double the size of the program.
func NewClient(kubeconfig string) (dynamic.Interface, error) {
	config, err := Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(config)
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("this process does not run in a cluster: use --kubeconfig FILE (pillion serve also runs without a Kubernetes API, with --standalone)")
	}
	return config, err
}

// Quiet turns off the log of client-go, because commands print their errors themselves.
func Quiet() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
}
