// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"github.com/google/cel-go/cel"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Input is the input of a template besides its parameters. It belongs to one template in one look
// of a pod.
type Input struct {
	Pod       *tree.Node
	Namespace Namespace
	Request   RequestInfo
	// Done is closed if the result is no longer needed. It may be nil. No evaluation starts after
	// that; one takes 20 ms at most, see costLimit.
	Done <-chan struct{}
	// Nodes is memory for the rendered nodes, or nil.
	Nodes *tree.Arena

	spent     uint64 // cost of the expressions so far
	steps     int    // steps of those evaluated without CEL
	locals    [maxLocals]*tree.Node
	values    Values
	given     paramSet   // parameters whose value is not the default
	container *tree.Node // only in forEachContainer
	namespace *namespaceView
}

// with sets the variables of an evaluation and returns in.
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
