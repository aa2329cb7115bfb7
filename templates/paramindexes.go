// SPDX-License-Identifier: Apache-2.0

package templates

// Indexes is a set of parameters, by their indexes in the declaration.
type Indexes uint64

// MaxIndexes is the maximum number of parameters in a set. Parts that depend on later parameters are
// rendered for each pod.
const MaxIndexes = 64
