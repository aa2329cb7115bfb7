// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// State is what a pod that exists has of a template.
type State string

// The states. A pod's own is the first of them that one of its templates has.
const (
	// Missing: it should have been injected, and was not.
	Missing State = "missing"
	// Altered: it was injected by the template as it is now, and is not as it was.
	Altered State = "altered"
	// Outdated: it was injected by another revision of the template, or a new pod
	// would not get it any more. What differs is the template's, and no damage.
	Outdated State = "outdated"
	// Current: all of it is there.
	Current State = "current"
	// NotWanted: the pod has none of it and is to have none.
	NotWanted State = "not wanted"
)

// States are all of them, in their order.
func States() []State { return []State{Missing, Altered, Outdated, Current, NotWanted} }

// Evidence is what a pod shows of its injection.
type Evidence struct {
	// InjectedBy is the revision that it says it was injected by, by template.
	InjectedBy map[string]string
	containers []string
}

// EvidenceOf reads it; there is none in what is no pod.
func EvidenceOf(pod []byte) Evidence {
	type named []struct{ Name string }
	var p struct {
		Spec struct{ InitContainers, Containers named }
	}
	e := Evidence{InjectedBy: inject.InjectedBy(pod)}
	if json.Unmarshal(pod, &p) != nil {
		return e
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		e.containers = append(e.containers, c.Name)
	}
	return e
}

// bare reports whether the pod has none of the template's containers, whatever it
// says. A template that has none itself leaves no pod bare.
func (e *Evidence) bare(t *templates.Template) bool {
	return len(t.Containers) > 0 && !slices.ContainsFunc(t.Containers, func(name string) bool { return slices.Contains(e.containers, name) })
}

// State reports what the pod has of a template, from a decision about the pod as it
// is (with [inject.Request.Detail]).
func (e *Evidence) State(t *templates.Template, d *inject.Decision) State {
	by := e.InjectedBy[d.Template]
	if t.ReadsRequest() {
		return e.said(t, by)
	}
	wanted := d.Code.Wanted()
	switch {
	case !wanted && (by == "" || e.bare(t)):
		return NotWanted
	case !wanted:
		return Outdated
	case d.Code == inject.CodePresent && len(d.Altered) == 0 && (by == "" || by == d.Revision):
		return Current
	case e.bare(t), by == "" && d.Code != inject.CodePresent:
		return Missing
	case by != "" && (by != d.Revision || !rendered(d.Code)):
		return Outdated
	}
	return Altered
}

// rendered reports whether it is known what the pod should have. If not, nobody can say what was altered.
func rendered(c inject.Code) bool {
	return c != inject.CodeInvalidParameter && c != inject.CodeRenderFailed
}

// said is the state by what the pod says alone: whether it should have had a template
// depends on who made it, which nobody knows any more.
func (e *Evidence) said(t *templates.Template, by string) State {
	switch {
	case by == "":
		return NotWanted
	case e.bare(t):
		return Missing
	case by != t.Revision:
		return Outdated
	}
	return Current
}

// ByRequest is the sentence about a template that [templates.Template.ReadsRequest].
func ByRequest(template string) string {
	return fmt.Sprintf("The template %s depends on the user who creates a pod (its expressions read request), which is unknown for existing pods. "+
		"Pillion uses the pod's annotation instead.", template)
}
