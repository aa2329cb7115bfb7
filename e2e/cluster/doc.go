// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes control plane on this machine, out of programs that it builds
// itself from Go modules, with Pillion beside it: etcd, kube-apiserver, kube-controller-manager and
// `pillion serve`, called through the shipped webhook configurations. There are no nodes: controllers
// make pods, and nothing runs them.
package cluster
