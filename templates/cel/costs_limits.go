// SPDX-License-Identifier: Apache-2.0

package cel

// These limit the cost of expressions at run time, in CEL's units: of each one, and of all
// expressions of a template together for one pod. They are a thousand times what a template needs.
const (
	MaxCost         = 100_000
	MaxTemplateCost = 500_000
	maxNesting      = 3 // of nested lists during an evaluation
)

// MaxTotal limits the cost of all expressions that count in [Input.Total], for one pod: those of the templates of a namespace,
// however often the pod is inspected. Each inspection evaluates them again, so without this limit a tenant could make
// the work as long as the caller waits.
const MaxTotal = 2_000_000

// maxDirectSteps is the maximum number of steps in the direct functions of one template for one
// pod. After that, CEL takes over, which accounts more exactly. The direct functions also read no
// strings longer than maxDirect bytes, and support no loops nested deeper than maxLocals.
const (
	maxDirectSteps = 5_000
	maxDirect      = 1 << 10
	maxLocals      = 2
)

// ForEachKey in an object that is a list item makes one item for each value of a list.
const ForEachKey = "${forEach}"

// These limit the items that loops make: of one loop in one list, of all loops of a template for
// one pod, and the bytes of their strings.
const (
	maxLoop       = 100
	maxLoops      = 1_000
	maxLoopOutput = 1 << 20
)
