// SPDX-License-Identifier: Apache-2.0

package params

// Indexes is a set of parameters, by their indexes in the declaration.
type Indexes uint64

// MaxIndexes is the number of parameters that a set can have. What depends on later parameters is rendered for each pod.
const MaxIndexes = 64
