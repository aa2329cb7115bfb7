// SPDX-License-Identifier: Apache-2.0

// Package cluster reads from a cluster what commands report: what is installed, what pods have, and why.
package cluster
