// SPDX-License-Identifier: Apache-2.0

package values

import "fmt"

// MaxItems and MaxText limit what expressions can read: the items of a list or the members of an object, and the bytes of a
// string. CEL's own accounting of costs gets slower for longer input.
const (
	MaxItems = 1_000
	MaxText  = 16 << 10
)

// MaxOutput is the maximum size of the string or the JSON that an expression gives, in bytes. The API server accepts no object
// over 3 MiB.
const MaxOutput = 64 << 10

// ErrTooLong is the error of an expression that gives more than [MaxOutput] bytes.
var ErrTooLong = fmt.Errorf("an expression gives more than %d bytes", MaxOutput)
