// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"encoding/json"
	"slices"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
)

// Placement is where the template's containers go. Those of one list stay next to each other, in the
// template's order, because init containers start in the order of their list.
type Placement struct {
	// InitContainers defaults to First if there is a native sidecar among them, so that it serves the
	// pod's init containers too, and else to Last.
	InitContainers Position `json:"initContainers,omitempty"`
	// Containers defaults to Last.
	Containers Position `json:"containers,omitempty"`
}

// Position is a position in a list of containers.
type Position struct {
	End    End    `json:"-"` // also if the pod has no container After or Before
	After  string `json:"after,omitempty"`
	Before string `json:"before,omitempty"`
}

// In returns the position in the list initContainers or containers.
func (p *Placement) In(list string) Position {
	if list == "initContainers" {
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

// placement checks the positions.
func (c *checker) placement(y *yaml.Node, t *Template) {
	placement := child(child(y, "spec"), "placement")
	for _, list := range []string{"initContainers", "containers"} {
		position, p := child(placement, list), t.Spec.Placement.In(list)
		if position == nil || position.Kind != yaml.MappingNode {
			continue
		}
		path := "spec.placement." + list
		switch name := p.After + p.Before; {
		case p.After != "" && p.Before != "":
			c.problem(position, path, "has both after and before; leave one out")
		case len(position.Content) == 0:
			c.problem(position, path, "must be First, Last, {after: NAME} or {before: NAME}")
		case name != "" && slices.Contains(t.Containers, name):
			c.problem(position, path, "names the template's own container %s; name a container of the pods, or of a template with a lower order", name)
		}
	}
}

// defaults sets the ends, given the compiled spec.pod.
func (p *Placement) defaults(pod *part) {
	if p.Containers.End == "" {
		p.Containers.End = Last
	}
	if p.InitContainers.End == "" {
		p.InitContainers.End = Last
		known := pod.known()
		for _, c := range known.At("spec", "initContainers").Items() {
			if c.Get("restartPolicy").IsText(string(corev1.ContainerRestartPolicyAlways)) {
				p.InitContainers.End = First
			}
		}
	}
}
