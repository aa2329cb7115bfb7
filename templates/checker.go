// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
)

// checker walks a YAML document along a Go type and finds unknown keys, wrong
// types and doubled keys, each with its line. Where expressions are allowed
// (env is set) it compiles them; what it returns renders to the value.
type checker struct {
	file     string
	problems Problems
	compiler *compiler
	env      *cel.Env        // nil: no expressions here
	os       corev1.OSName   // that the template is for; "" is Linux
	meant    map[string]bool // paths of keys that are missing because they are misspelled
}

func (c *checker) problem(y *yaml.Node, path, format string, args ...any) {
	if c.meant[path] {
		return // the misspelled key is problem enough
	}
	c.problems = append(c.problems, Problem{File: c.file, Line: y.Line, Path: path, Message: fmt.Sprintf(format, args...)})
}
