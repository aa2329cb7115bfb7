// SPDX-License-Identifier: Apache-2.0

package cel

// MaxCost limits the cost of one expression at run time, and MaxTemplateCost that of all expressions of a template together for one
// pod, in CEL's units. They are a thousand times what a template needs. maxNesting limits the levels of nested lists during an
// evaluation.
const (
	MaxCost         = 100_000
	MaxTemplateCost = 500_000
	maxNesting      = 3
)

// MaxTotal limits the cost of all expressions that count in [Input.Total], for one pod: those of the templates of a namespace,
// however often the pod is inspected. Each inspection evaluates them again, so without this limit a tenant could make
// the work as long as the caller waits.
const MaxTotal = 2_000_000

// maxFastSteps is the maximum number of steps on the fast path of one template for one pod. After that, CEL takes over, which
// accounts more exactly. The fast path also reads no strings longer than maxFastText bytes, and supports no macros nested deeper
// than maxLocals.
const (
	maxFastSteps = 5_000
	maxFastText  = 1 << 10
	maxLocals    = 2
)

// ForEachKey in an object that is a list item makes one item for each value of a list.
const ForEachKey = "${forEach}"

// maxLoop limits the items that one loop makes in one list, maxLoops those of all loops of a template for one pod, and maxLoopOutput
// the bytes of their strings.
const (
	maxLoop       = 100
	maxLoops      = 1_000
	maxLoopOutput = 1 << 20
)
