// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// noteWhere adds a note if the template adds nothing to the containers of the pod, and for each name in the pod's annotations that
// should be the name of a container and is not. Both are probably mistakes.
func (c *candidate) noteWhere(o *owners) {
	if !c.t.HasForEach() {
		return
	}
	apps := o.userContainers(c.t.Spec.Required)
	if len(apps) > 0 && (len(c.apps) == 0 || c.subject.request.detail) {
		if wheres := c.t.Unmatched(&c.input, c.values); len(wheres) > 0 {
			c.recordNote(fmt.Sprintf("no container of the pod matches where: %s", strings.Join(wheres[:min(len(wheres), maxConflicts)], "; nor where: ")))
		}
	}
	if c.t.NamesContainers() {
		c.noteNames(c.t.NamedContainers(&c.input, c.values))
	}
}

func (c *candidate) noteNames(named []templates.NamedContainer) {
	if len(named) == 0 {
		return
	}
	there, names := map[string]bool{}, []string(nil)
	for _, list := range schema.ContainerLists() {
		items := c.subject.pod.At("spec", list).Items()
		for i := range items {
			name := items[i].Get("name").Text()
			if there[name] = true; len(names) < longList {
				names = append(names, name)
			}
		}
	}
	for _, n := range named {
		if !there[n.Name] && len(c.decision.Notes) < maxConflicts {
			c.recordNote(fmt.Sprintf("the annotation %s names the container %q, which the pod does not have%s", n.Annotation, problem.Cut(n.Name, maxName), problem.DidYouMean(n.Name, names)))
		}
	}
}

// maxName is the maximum length of a container's name in a note.
const maxName = 63
