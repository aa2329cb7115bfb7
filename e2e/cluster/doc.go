// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes control plane on this machine, with Pillion: etcd, kube-apiserver,
// kube-controller-manager and `pillion serve`. The API server calls Pillion through the shipped webhook configurations.
// There are no nodes: controllers create pods, but the pods never run.
package cluster
