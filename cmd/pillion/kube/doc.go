// SPDX-License-Identifier: Apache-2.0

// Package kube connects to a cluster and follows its objects.
package kube
