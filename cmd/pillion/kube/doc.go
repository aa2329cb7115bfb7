// SPDX-License-Identifier: Apache-2.0

// Package kube connects to a cluster and watches its objects.
package kube
