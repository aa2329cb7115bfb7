// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"encoding/json"
	"fmt"
)

// Placement is where the template's containers go. Those of one list stay next to each other, in the
// template's order, because init containers start in the order of their list.
type Placement struct {
	// InitContainers defaults to First if there is a native sidecar among them, so that it serves the
	// pod's init containers too, and else to Last.
	InitContainers Position `json:"initContainers,omitzero"`
	// Containers defaults to Last.
	Containers Position `json:"containers,omitzero"`
}

// Position is a position in a list of containers.
type Position struct {
	// End is also for a pod that has no container After or Before. In a template, it can be a ${...};
	// see [Template.Placement].
	End    End    `json:"-"`
	After  string `json:"after,omitempty"`
	Before string `json:"before,omitempty"`
}

// In returns the position in the list initContainers or containers.
func (p *Placement) In(list string) Position {
	if list == containerLists[0] {
		return p.InitContainers
	}
	return p.Containers
}

// UnmarshalJSON reads an end or an object.
func (p *Position) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &p.End)
	}
	type object Position
	return json.Unmarshal(data, (*object)(p))
}

// End is an end of a list of containers: First or Last.
type End string

// The ends of a list of containers.
const (
	First End = "First"
	Last  End = "Last"
)

// Placement returns where the template's containers go in one pod. It returns an error if an
// expression fails, or if its value is no [End].
func (t *Template) Placement(in *Input, values Values) (Placement, error) {
	placement := t.Spec.Placement
	for i, position := range []*Position{&placement.InitContainers, &placement.Containers} {
		program := t.ends[i]
		if program == nil {
			continue
		}
		text, err := program.evalText(in.with(values, nil))
		if position.End = End(text); err == nil && position.End != First && position.End != Last {
			err = fmt.Errorf("%q gives %q, but First or Last is needed here", program.source, text)
		}
		if err != nil {
			return placement, fmt.Errorf("spec.placement.%s: %w", containerLists[i], err)
		}
	}
	return placement, nil
}

// containerLists are the lists of containers that a template adds to.
var containerLists = [...]string{"initContainers", "containers"}
