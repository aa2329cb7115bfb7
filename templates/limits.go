// SPDX-License-Identifier: Apache-2.0

package templates

import "fmt"

// Expressions cannot read what is longer than these limits. CEL's own accounting of costs gets slower for longer input.
const (
	maxItems = 1_000    // in a list, or members of an object
	maxText  = 16 << 10 // bytes of a string
)

// maxOutput is the maximum size of a string that one leaf renders to, in bytes. The API server
// accepts no object over 3 MiB.
const maxOutput = 64 << 10

// errTooLong is returned before a string grows longer than any API server accepts.
var errTooLong = fmt.Errorf("an expression gives more than %d bytes", maxOutput)
