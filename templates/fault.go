// SPDX-License-Identifier: Apache-2.0

package templates

import "fmt"

// fault is an error of a part of a template for one pod.
type fault struct {
	path string
	line int      // in the template's file
	read []string // the parameters that the part reads
	err  error
}

// Error returns the error with its place. In a template without lines, which is one line of JSON, all
// lines are 1.
func (f *fault) Error() string {
	if f.line > 1 {
		return fmt.Sprintf("%s (line %d): %v", f.path, f.line, f.err)
	}
	return fmt.Sprintf("%s: %v", f.path, f.err)
}

// Unwrap returns the error without its place.
func (f *fault) Unwrap() error { return f.err }
