// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"fmt"

	"github.com/pillion-dev/pillion/inject/drift"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Rendering renders templates for one pod, each by itself, and adds nothing to the pod. Callers that want to know what was added to
// an injected pod take the additions of one template from the pod before they render the next one.
type Rendering struct{ round round }

// Additions are what one template adds to a pod.
type Additions struct {
	Fragment *jsontree.Node // a partial Pod, with the record of the injection
	Apps     []AppAdditions // for the user's containers
}

// AppAdditions are what one template adds to a container of the user's.
type AppAdditions struct {
	List      string          // that has the container
	Index     int             // of the container in the list
	Fragments []jsontree.Node // partial containers
}

// NewRendering returns a Rendering for a pod. The request describes the pod, which may have been changed since.
func (i *Injector) NewRendering(req *Request, pod *jsontree.Node) *Rendering {
	r := &Rendering{}
	r.round.startPod(i, req.factsFor(i, pod), &jsontree.Arena{})
	r.round.beginRound(pod, false)
	return r
}

// Render returns what a template adds to a pod that has nothing of it. If that is not known, it returns an error that continues a
// sentence about the template.
func (r *Rendering) Render(template string) (*Additions, error) {
	t := r.round.injector.byName[template]
	if t == nil {
		return nil, errors.New("there is no template of that name")
	}
	c := &candidate{subject: &r.round.subject, t: t, input: r.round.input, decision: &Decision{}}
	if code, message := c.renderFragment(r.round.injector.rules); code != "" {
		return nil, fmt.Errorf("would not be injected now (%s: %s), so its additions are unknown", code, message)
	}
	if err := r.round.owners.renderApps(c); err != nil {
		return nil, fmt.Errorf("its additions cannot be computed now: %w", err)
	}
	all := &Additions{Fragment: &c.fragment}
	for i := range c.apps {
		app := &c.apps[i]
		all.Apps = append(all.Apps, AppAdditions{app.list, app.index, app.fragments})
	}
	return all, nil
}

// ReplacePod continues with another pod, from which something was removed.
func (r *Rendering) ReplacePod(pod *jsontree.Node) {
	r.round.subject.replacePod(pod)
	r.round.owners.users = [2][]appContainer{}
}

// FindDifference returns the JSON Pointer to the first place at which the pod differs from the result of injecting it again, or "". It
// ignores what an API server sets.
func (r *Rendering) FindDifference(again *jsontree.Node) string {
	s := &r.round.subject
	found := drift.Comparison{Pod: &s.compared, Field: schema.Pod().AsField(), Again: true}.FindDifference(s.pod, again)
	if found == nil {
		return ""
	}
	return found.At
}
