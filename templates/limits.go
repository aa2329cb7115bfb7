// SPDX-License-Identifier: Apache-2.0

package templates

// What expressions may cost at run time, in CEL's units, each and all of one
// template together for one pod: a thousand times what a template needs. CEL's own accounting gets
// slower with the length of what is gone through, so that is bounded as well:
// what is longer cannot be read by an expression.
const (
	costLimit  = 100_000
	totalLimit = 500_000
	maxItems   = 1_000    // of a list, or members of an object
	maxText    = 16 << 10 // bytes of a text
	maxNesting = 3        // of lists in lists, while an expression is worked out
)

// maxOutput bounds the text that one leaf may become, in bytes; the API server
// takes no object over 3 MiB.
const maxOutput = 64 << 10

// maxDirectSteps is how much the functions of one template do for one pod; then CEL, which counts better, takes over. Nor do
// they read longer texts than maxDirect bytes, or know deeper loops than maxLocals.
const (
	maxDirectSteps = 5_000
	maxDirect      = 1 << 10
	maxLocals      = 2
)
