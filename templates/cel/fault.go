// SPDX-License-Identifier: Apache-2.0

package cel

import "fmt"

// FaultError is an error of a part of a template for one pod.
type FaultError struct {
	path string
	line int      // in the template's file
	read []string // the parameters that the part reads
	err  error
}

// NewFault returns an error at a path of a template, and at a line of its file, which may be 0. Read are the parameters that
// the part at that path reads.
func NewFault(path string, line int, read []string, err error) *FaultError {
	return &FaultError{path, line, read, err}
}

// Error returns the error with its place. In a template without lines, which is one line of JSON, all
// lines are 1.
func (f *FaultError) Error() string {
	if f.line > 1 {
		return fmt.Sprintf("%s (line %d): %v", f.path, f.line, f.err)
	}
	return fmt.Sprintf("%s: %v", f.path, f.err)
}

// Unwrap returns the error without its place.
func (f *FaultError) Unwrap() error { return f.err }

// ForgetLine removes the line: users have never seen the text of an object.
func (f *FaultError) ForgetLine() { f.line = 0 }

// Params returns the parameters that the part reads.
func (f *FaultError) Params() []string { return f.read }
