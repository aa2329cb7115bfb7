// SPDX-License-Identifier: Apache-2.0

// Package check turns facts about a cluster into the results of pillion check. It does no I/O.
package check
