// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// Planner finds out what the running pods of a namespace need.
type Planner struct {
	Injector  *inject.Injector
	Namespace request.Namespace
	// Called reports whether the API server would call Pillion for a new pod. It is nil if that is
	// unknown.
	Called func(pod []byte) bool
	// Mutated is set if other webhooks or policies may change new pods here. What they add cannot be
	// distinguished from what an older revision of a template added.
	Mutated bool
	// Resizes is set if the API server can resize running pods.
	Resizes bool
	// Added is set if only containers that a webhook added may change in place, and not those that the creator of the pod
	// wrote. So it is for the controller, whose ServiceAccount may not do more.
	Added bool
	// Only is the template whose changes pods get, or "" for all templates.
	Only string
	// Invalid has the reason for each template of the namespace whose content is invalid. Pillion may still use
	// an earlier content, which is unknown.
	Invalid map[string]string
}

// target is what the pod would be if it were created now.
type target struct {
	base, pod []byte
	stripped  bool // the base is the running pod
	result    *inject.Result
}

// computeTarget computes what the pod would be now. It returns the reason if a new pod would not get what it
// should.
func (p *Planner) computeTarget(pod, owner []byte) (t *target, why string, err error) {
	t = &target{}
	var claims []string
	if t.base, claims, t.stripped, err = p.computeBase(pod, owner); err != nil {
		return nil, "", err
	}
	if t.base == nil {
		return nil, noBase, nil
	}
	t.result, err = p.Injector.Inject(inject.Request{Operation: "CREATE", Namespace: p.Namespace, Object: t.base, OptedIn: p.isCalled(t.base), Claims: claims, Detail: true})
	if err != nil {
		return nil, "", err
	}
	t.pod = t.result.InjectedJSON()
	for i := range t.result.Decisions {
		if d := &t.result.Decisions[i]; d.Code.Failed() {
			return nil, fmt.Sprintf("a new pod could not get %s: %s", d.Template, d.Sentence()), nil
		}
	}
	return t, "", nil
}

// Recreate returns what a new pod in place of a running one would be before admission, and the names of its claims. Owner
// is the object that has created the pod, with a pod template, or nil if that is unknown. If there is no answer, why is
// the reason.
func (p *Planner) Recreate(pod, owner []byte) (base []byte, claims []string, why string, err error) {
	if base, claims, _, err = p.computeBase(pod, owner); err == nil && base == nil {
		why = noBase
	}
	return base, claims, why, err
}

// noBase is why it is unknown what a new pod would be.
const noBase = "all its containers have the names of templates' containers, so the app's own ones are unknown"

// computeBase returns what a new pod in place of a running one would be before admission, and the names of its claims. It is
// made from the running pod if the owner is nil or has no pod template. It is nil if that is impossible.
func (p *Planner) computeBase(pod, owner []byte) (base []byte, claims []string, isStripped bool, err error) {
	if owner != nil {
		if base, claims, err = fromOwner(owner, pod); err != nil || base != nil {
			return base, claims, false, err
		}
	}
	base, err = stripTemplates(pod, p.templatesInUse())
	return base, claims, true, err
}

// whyInvalid returns why the content of a template that a pod has is unknown, or "".
func (p *Planner) whyInvalid(states map[string]explain.State) string {
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if why := p.Invalid[name]; why != "" {
			return why
		}
	}
	return ""
}

func (p *Planner) isCalled(pod []byte) bool { return p.Called != nil && p.Called(pod) }

func (p *Planner) templatesInUse() []*templates.Template {
	return p.Injector.For(p.Namespace.Name).Set().Templates
}

// statesOf returns the state of a pod for each of its templates.
func (p *Planner) statesOf(pod []byte) (map[string]explain.State, error) {
	return explain.StatesIn(p.Injector, inject.Request{Operation: "CREATE", Namespace: p.Namespace, Object: pod, OptedIn: p.isCalled(pod)})
}

func worstState(states map[string]explain.State) explain.State {
	order := explain.States()
	at := len(order) - 1
	for _, s := range states {
		at = min(at, slices.Index(order, s))
	}
	return order[at]
}

// templateByRequest returns a template that is not current and that depends on who creates a pod.
func (p *Planner) templateByRequest(states map[string]explain.State) string {
	for _, t := range p.templatesInUse() {
		if s, ok := states[t.Name]; ok && t.ReadsRequest() && s.IsBehind() {
			return t.Name
		}
	}
	return ""
}

// ownContainers returns the names of the containers in a pod of the templates that the rollout is about, without those
// that users wrote.
func (p *Planner) ownContainers(doc object, states map[string]explain.State) (names []string) {
	annotations := ensureObject(ensureObject(doc, "metadata"), "annotations")
	annotation := func(key string) string {
		value, _ := annotations[key].(string)
		return value
	}
	for _, list := range containerLists() {
		for _, item := range listItems(ensureObject(doc, "spec"), list) {
			name, _ := item["name"].(string)
			about := slices.ContainsFunc(p.templatesInUse(), func(t *templates.Template) bool { return states[t.Name] != "" && t.Brings(name) })
			if about && broughtByTemplate(p.templatesInUse(), annotation, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
