// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// State is the state of an existing pod compared with a template.
type State string

// The states. The state of a pod is the first one that one of its templates has.
const (
	// Missing means that the template should have been injected and was not.
	Missing State = "missing"
	// Altered means that the current revision was injected, and its values have changed since.
	Altered State = "altered"
	// Outdated means that another revision of the template was injected, or that a new pod would
	// no longer get the template or would get another one in its place. Only the templates have changed; nothing is broken.
	Outdated State = "outdated"
	// Current means that all values of the template are there.
	Current State = "current"
	// NotWanted means that the pod has nothing of the template and must not have it.
	NotWanted State = "not wanted"
)

// States returns all states in order.
func States() []State { return []State{Missing, Altered, Outdated, Current, NotWanted} }

// Evidence is what a pod records about its injection.
type Evidence struct {
	// InjectedBy is the recorded revision of each template.
	InjectedBy map[string]string
	containers []string // their names
}

// EvidenceOf reads the evidence from a pod. It returns no evidence if the JSON is not a pod.
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

// Without removes one of the two records that the injection of a canary leaves: its own, and the same one for the template that it
// replaced. Decisions are those about the pod.
//
// If the canary still exists and is for the pod, its own record stays. If it no longer exists, the other record stays, so that the pod
// is compared with the template that the canary replaced.
func (e *Evidence) Without(set *templates.Set, decisions []inject.Decision) {
	exists, recorded := map[string]bool{}, map[string]bool{}
	for _, t := range set.Templates {
		exists[t.Name], recorded[e.InjectedBy[t.Name]] = true, true
	}
	maps.DeleteFunc(e.InjectedBy, func(name, revision string) bool { return !exists[name] && recorded[revision] })
	for i, t := range set.Templates {
		if t.Spec.Replaces != "" && e.InjectedBy[t.Name] != "" && decisions[i].Code.Wanted() {
			delete(e.InjectedBy, t.Spec.Replaces)
		}
	}
}

// lacksContainers reports whether the pod has none of the template's containers, regardless of its
// annotations. It returns false for a template without containers.
func (e *Evidence) lacksContainers(t *templates.Template) bool {
	return len(t.Containers) > 0 && !slices.ContainsFunc(e.containers, t.Brings)
}

// State returns the state for a template, from a decision about the existing pod (with
// [inject.Request.Detail]).
func (e *Evidence) State(t *templates.Template, d *inject.Decision) State {
	by := e.InjectedBy[d.Template]
	if t.ReadsRequest() {
		return e.recordedState(t, by)
	}
	wanted := d.Code.Wanted()
	switch {
	case !wanted && (by == "" || e.lacksContainers(t)):
		return NotWanted
	case !wanted:
		return Outdated
	case d.Code == inject.CodePresent && len(d.Altered) == 0 && (by == "" || by == d.Revision):
		if d.NewPods != "" {
			return Outdated
		}
		return Current
	case e.lacksContainers(t), by == "" && d.Code != inject.CodePresent:
		return Missing
	case by != "" && (by != d.Revision || d.Code == inject.CodeInvalidParameter || d.Code == inject.CodeRenderFailed):
		return Outdated // if the template was not rendered, altered values cannot be detected
	}
	return Altered
}

// StatesIn returns the state of a pod for each template that it has or should have, by the template's name. The request has the
// pod. A template that the pod records and that no longer exists is outdated.
func StatesIn(injector *inject.Injector, req inject.Request) (map[string]State, error) {
	req.Detail = true
	r, err := injector.Inject(req)
	if err != nil {
		return nil, err
	}
	set, states := injector.For(req.Namespace.Name).Set(), map[string]State{}
	evidence := EvidenceOf(req.Object)
	evidence.Without(set, r.Decisions)
	for i, t := range set.Templates {
		states[t.Name] = evidence.State(t, &r.Decisions[i])
	}
	for name := range evidence.InjectedBy {
		if _, ok := states[name]; !ok {
			states[name] = Outdated
		}
	}
	return states, nil
}

// IsBehind reports whether a pod in this state differs from what a new pod would be.
func (s State) IsBehind() bool { return s != Current && s != NotWanted }

// recordedState returns the state according to the pod's annotations alone. Whether the pod should have
// had the template depends on the user that created it, which is no longer known.
func (e *Evidence) recordedState(t *templates.Template, by string) State {
	switch {
	case by == "":
		return NotWanted
	case e.lacksContainers(t):
		return Missing
	case by != t.Revision:
		return Outdated
	}
	return Current
}

// ByRequest returns the sentence about a template that [templates.Template.ReadsRequest].
func ByRequest(template string) string {
	return fmt.Sprintf("The template %s depends on the user who creates a pod (its expressions read request), which is unknown for existing pods. "+
		"Pillion uses the pod's annotation instead.", template)
}
