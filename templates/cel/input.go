// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/request"
)

// Input is the input of a template besides its parameters. It is for one template and one evaluation
// of a pod.
type Input struct {
	Pod       *jsontree.Node
	Namespace request.Namespace
	// ServiceAccount is the pod's. It may be nil if no expression reads it.
	ServiceAccount *request.ServiceAccount
	Request        request.Info
	// Done is closed if the result is no longer needed. It may be nil. No evaluation starts after
	// that; one takes 20 ms at most, see MaxCost.
	Done <-chan struct{}
	// Nodes is memory for the rendered nodes, or nil.
	Nodes *jsontree.Arena
	// Total counts the cost of the expressions of several inputs together, in CEL's units. Beyond [MaxTotal], they fail. It may
	// be nil.
	Total *uint64

	spent     uint64                    // cost of the expressions so far
	steps     int                       // steps of those evaluated without CEL
	locals    [maxLocals]*jsontree.Node // variables of macros in them
	values    params.Values
	given     params.Indexes // parameters that the pod or its namespace sets
	container *jsontree.Node // only in forEachContainer
	variables []evaluated
	params    ref.Val
	namespace ref.Val
	account   ref.Val
	loops     []loopValue // the variables of the loops around the part that is rendered, see [Scope.loopNames]
	looped    int         // items of loops so far
	output    int         // bytes of the strings in them

	// matched are the entries of forEachContainer that were for a container, by their indexes.
	matched uint64
}

// loopValue is a loop's variable with its value.
type loopValue struct {
	name  string
	value ref.Val
}

// See sets the pod. The values of variables are forgotten, because they may depend on the pod.
func (in *Input) See(pod *jsontree.Node) { in.Pod, in.variables = pod, nil }

// Spent returns the cost of the expressions so far, in CEL's units.
func (in *Input) Spent() uint64 { return in.spent }

// Spend counts the cost of an expression.
func (in *Input) Spend(cost uint64) {
	in.spent += cost
	in.spendOfTotal(cost)
}

// spendOfTotal counts the cost of an expression that is evaluated for a message only.
func (in *Input) spendOfTotal(cost uint64) {
	if in.Total != nil {
		*in.Total += cost
	}
}

// SpentTooMuch reports whether expressions have cost more than they may.
func (in *Input) SpentTooMuch() bool {
	return in.spent > MaxTemplateCost || in.Total != nil && *in.Total > MaxTotal
}

// isDone reports whether the caller no longer waits for the result.
func (in *Input) isDone() bool {
	select {
	case <-in.Done:
		return true
	default:
		return false
	}
}

// WithValues sets the parameters and the container of the next evaluations, and returns in. The container is nil outside of
// forEachContainer.
func (in *Input) WithValues(set params.Values, container *jsontree.Node) *Input {
	in.values, in.container, in.params = set, container, nil
	return in
}

// WithGiven sets which parameters the pod or its namespace sets, and returns in. What depends on none of them was rendered when
// the template was loaded.
func (in *Input) WithGiven(given params.Indexes) *Input {
	in.given = given
	return in
}

// IsGiven reports whether the pod or its namespace sets one of these parameters.
func (in *Input) IsGiven(any params.Indexes) bool { return in.given&any != 0 }

// maxMatched is the number of entries for which an input records whether they matched.
const maxMatched = 64

// NoteMatch records that an entry of forEachContainer is for a container.
func (in *Input) NoteMatch(entry int) { in.matched |= 1 << entry }

// MayMatch reports whether an entry of forEachContainer was for a container. It also returns true for entries about which nothing
// is recorded, because there are too many.
func (in *Input) MayMatch(entry int) bool { return entry >= maxMatched || in.matched&(1<<entry) != 0 }

var errLoopOutput = fmt.Errorf("the items of %s have more than %d bytes", ForEachKey, maxLoopOutput)

// ChargeOutput counts the bytes of a value in a loop. It returns an error if there are too many.
func (in *Input) ChargeOutput(n *jsontree.Node) error {
	if len(in.loops) == 0 {
		return nil
	}
	if in.output += n.Size(); in.output > maxLoopOutput {
		return errLoopOutput
	}
	return nil
}

// ResetLoops forgets how many items and bytes loops have made.
func (in *Input) ResetLoops() { in.looped, in.output = 0, 0 }

// ResolveName implements cel.Activation.
func (in *Input) ResolveName(name string) (any, bool) {
	switch name {
	case "params":
		if in.params == nil {
			in.params = values.OfFields(values.ParamsType, in.values, in.values.LookUp)
		}
		return in.params, true
	case "pod":
		return values.Of(in.Pod), true
	case "ns":
		if in.namespace == nil {
			in.namespace = values.OfNamespace(&in.Namespace)
		}
		return in.namespace, true
	case request.AccountVariable:
		if in.account == nil {
			in.account = values.OfServiceAccount(in.accountOrEmpty())
		}
		return in.account, true
	case "variables":
		return in, true
	case "request":
		return values.OfRequest(&in.Request), true
	case "container":
		return values.Of(in.container), in.container != nil
	}
	for i := range in.loops {
		if in.loops[i].name == name {
			return in.loops[i].value, true
		}
	}
	return nil, false
}

// Parent implements cel.Activation.
func (in *Input) Parent() cel.Activation { return nil }

// lazy is a variable of a template. It is evaluated when an expression reads it for the first time.
type lazy struct {
	name     string
	index    int
	evaluate func(*Input) (ref.Val, error)
}

// evalOnce returns the value for a pod.
func (l *lazy) evalOnce(in *Input) (ref.Val, error) {
	for len(in.variables) <= l.index {
		in.variables = append(in.variables, evaluated{})
	}
	if r := &in.variables[l.index]; r.done {
		return r.value, r.err
	}
	locals := in.locals // of the macros around it
	value, err := l.evaluate(in)
	if err != nil {
		err = fmt.Errorf("variables.%s: %w", l.name, err)
	}
	in.locals = locals
	in.variables[l.index] = evaluated{value, err, true}
	return value, err
}

// evaluated is the result of a variable for one pod.
type evaluated struct {
	value ref.Val
	err   error
	done  bool
}

// accountOrEmpty returns the ServiceAccount, which is not nil.
func (in *Input) accountOrEmpty() *request.ServiceAccount {
	if in.ServiceAccount == nil {
		return &request.ServiceAccount{}
	}
	return in.ServiceAccount
}
