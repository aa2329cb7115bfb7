// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// Checker walks a YAML document along a Go type. It finds unknown keys, wrong types and duplicate
// keys, each with its line. If scope is set, expressions are allowed, and it compiles them. The parts
// that it returns render to the value.
type Checker struct {
	file     string
	problems problem.Problems
	compiler *cel.Compiler
	params   []v1alpha1.Param // that expressions may read
	scope    *cel.Scope       // nil if expressions are not allowed here
	os       v1alpha1.OS      // the template's operating system; "" is Linux
	meant    map[string]bool  // paths of keys that are missing because they are misspelled

	written map[*yaml.Node]bool // values of which the text counts, for example 010 as a string

	// invalid matches what reads a parameter, a variable or a loop's variable that is invalid, see [Checker.LeaveOutReads].
	invalid []*regexp.Regexp

	asksIfSet bool // see [Checker.AsksIfSet]
}

// maxProblems limits the problems of one document, because many users may create templates.
const maxProblems = 200

// isFull reports whether there are so many problems that more are not needed.
func (c *Checker) isFull() bool { return len(c.problems) >= maxProblems }

// NewChecker returns a checker of a document of a file.
func NewChecker(file string) *Checker {
	return &Checker{file: file, meant: map[string]bool{}, written: map[*yaml.Node]bool{}}
}

// Problems returns the problems so far.
func (c *Checker) Problems() problem.Problems { return c.problems }

// UseCompiler sets what compiles expressions in the document, the parameters that they may read, and the operating system of the
// template; "" is Linux.
func (c *Checker) UseCompiler(compiler *cel.Compiler, declared []v1alpha1.Param, os v1alpha1.OS) {
	c.compiler, c.params, c.os = compiler, declared, os
}

// SetScope allows expressions in what is checked next, with the variables of a scope.
func (c *Checker) SetScope(scope *cel.Scope) { c.scope = scope }

// LeaveOutReads leaves out, from now on, problems of expressions that read one of these parameters or variables, because it is
// invalid: such an expression would only report that again. Of is params or variables. A name that is no identifier stands for all.
func (c *Checker) LeaveOutReads(of string, names ...string) {
	for _, name := range names {
		if !cel.IsIdentifier(name) {
			c.invalid = append(c.invalid, regexp.MustCompile(`\b`+of+`\b`))
			continue
		}
		c.invalid = append(c.invalid, regexp.MustCompile(`\b`+of+`\.\??`+name+`\b`))
	}
}

// ReadsInvalid reports whether an expression in a node reads something that is invalid.
func (c *Checker) ReadsInvalid(y *yaml.Node) bool {
	return slices.ContainsFunc(c.invalid, func(r *regexp.Regexp) bool { return r.MatchString(y.Value) }) || slices.ContainsFunc(y.Content, c.ReadsInvalid)
}

// IsMisspelled reports whether a key is missing because another one is a misspelling of it.
func (c *Checker) IsMisspelled(path string) bool { return c.meant[path] }

// IsString reports whether the characters of a scalar count, not the value that they have in YAML, for example 010 as a string.
func (c *Checker) IsString(y *yaml.Node) bool { return c.written[y] }

// AsksIfSet reports whether a variable defines what happens in a container that has it with another value, see [IfSetKey].
func (c *Checker) AsksIfSet() bool { return c.asksIfSet }

// ReportProblem records a problem with a node at a path of the document.
func (c *Checker) ReportProblem(y *yaml.Node, path, format string, args ...any) {
	if c.meant[path] || c.isFull() {
		return // the misspelled key is reported already
	}
	p := problem.Problem{File: c.file, Line: y.Line, Path: path, Message: fmt.Sprintf(format, args...)}
	if (strings.Contains(p.Message, "CEL:") || CountExpressions(y) > 0) && c.ReadsInvalid(y) {
		return
	}
	c.problems = append(c.problems, p)
}

// ForbidKeys reports the keys of an object that it must not have.
func (c *Checker) ForbidKeys(y *yaml.Node, path, message string, keys ...string) {
	for _, key := range keys {
		if found := yamlnode.Child(y, key); found != nil {
			c.ReportProblem(found, problem.JoinPath(path, key), "%s", message)
		}
	}
}

// PodJSON is a Pod in a struct for [Decode]. Its keys and types are checked as those of a Pod.
type PodJSON []byte

// UnmarshalJSON implements json.Unmarshaler.
func (p *PodJSON) UnmarshalJSON(text []byte) error {
	*p = bytes.Clone(text)
	return nil
}

// CountExpressions returns the number of ${...} in a node and below it.
func CountExpressions(y *yaml.Node) (n int) {
	for _, item := range y.Content {
		n += CountExpressions(item)
	}
	return n + strings.Count(y.Value, "${")
}
