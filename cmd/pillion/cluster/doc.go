// SPDX-License-Identifier: Apache-2.0

// Package cluster reads the data for reports from a cluster: what is installed, and the state of pods.
package cluster
