// SPDX-License-Identifier: Apache-2.0

package templates

// paramIndexes is a set of parameters, by their indexes in the declaration.
type paramIndexes uint64

// maxPreset is the maximum number of parameters in a set. Parts that depend on later parameters are
// rendered for each pod.
const maxPreset = 64
