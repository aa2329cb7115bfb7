// SPDX-License-Identifier: Apache-2.0

// Package executor applies a rollout to a cluster: wave by wave, with the limits that the user sets,
// until all pods are current or something fails. The package rollout decides which pods may change when.
package executor
