// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"github.com/google/cel-go/cel"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Input is what a template may look at besides its parameters. It belongs to one
// template's look at one pod.
type Input struct {
	Pod       *tree.Node
	Namespace Namespace
	Request   RequestInfo
	// Done is closed when nobody waits for the result any more; nil is never. No
	// expression is begun then; one takes 20 ms at most, see costLimit.
	Done <-chan struct{}
	// Nodes is memory for what is rendered, or nil.
	Nodes *tree.Arena

	spent     uint64 // what the expressions have cost so far
	steps     int    // of those that did without CEL
	locals    [maxLocals]*tree.Node
	values    Values
	given     paramSet   // those of values that are no default
	container *tree.Node // in forEachContainer
	namespace *namespaceView
}

// with gives an evaluation these variables.
func (in *Input) with(values Values, container *tree.Node) *Input {
	in.values, in.container = values, container
	return in
}

// ResolveName implements cel.Activation.
func (in *Input) ResolveName(name string) (any, bool) {
	switch name {
	case "params":
		return in.values, true
	case "pod":
		return celValue(in.Pod), true
	case "ns":
		if in.namespace == nil {
			in.namespace = &namespaceView{Namespace: &in.Namespace}
		}
		return in.namespace, true
	case "request":
		return &in.Request, true
	case "container":
		return celValue(in.container), in.container != nil
	}
	return nil, false
}

// Parent implements cel.Activation.
func (in *Input) Parent() cel.Activation { return nil }
