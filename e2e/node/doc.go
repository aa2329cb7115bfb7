// SPDX-License-Identifier: Apache-2.0

// Package node runs a complete Kubernetes cluster with one real node: the control plane of the
// package cluster, the kubelet, kube-proxy, the scheduler, containerd and runc. Everything runs
// in Linux namespaces that end with the process that entered them. Its tests install Pillion as
// users do, and run real containers.
package node
