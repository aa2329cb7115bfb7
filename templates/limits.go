// SPDX-License-Identifier: Apache-2.0

package templates

import "fmt"

// These limit the cost of expressions at run time, in CEL's units: of each one, and of all
// expressions of a template together for one pod. They are a thousand times what a template needs.
// CEL's own accounting gets slower for longer input. Input is therefore limited as well, and
// expressions cannot read what is longer.
const (
	costLimit  = 100_000
	totalLimit = 500_000
	maxItems   = 1_000    // in a list, or members of an object
	maxText    = 16 << 10 // bytes of a string
	maxNesting = 3        // of nested lists during an evaluation
)

// MaxTotal limits the cost of all expressions that count in [Input.Total], for one pod: those of the templates of a namespace,
// however often the pod is inspected. Each inspection evaluates them again, so without this limit a tenant could make
// the work as long as the caller waits.
const MaxTotal = 2_000_000

// maxOutput is the maximum size of a string that one leaf renders to, in bytes. The API server
// accepts no object over 3 MiB.
const maxOutput = 64 << 10

// maxDirectSteps is the maximum number of steps in the direct functions of one template for one
// pod. After that, CEL takes over, which accounts more exactly. The direct functions also read no
// strings longer than maxDirect bytes, and support no loops nested deeper than maxLocals.
const (
	maxDirectSteps = 5_000
	maxDirect      = 1 << 10
	maxLocals      = 2
)

// errTooLong is returned before a string grows longer than any API server accepts.
var errTooLong = fmt.Errorf("an expression gives more than %d bytes", maxOutput)
