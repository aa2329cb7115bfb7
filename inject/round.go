// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"maps"
	"slices"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// round is one round (see fixpoint.go): decide, render, plan. The next round reuses its memory.
type round struct {
	injector *Injector
	subject  subject
	owners   owners
	input    cel.Input
	journal  jsontree.Journal
	room     []candidate // memory for one candidate of each template
	canaries canaryChoice

	contributed []candidate // what templates have added, see owners

	leftOut map[string]string // reasons by template
	added   bool              // whether this round has added something
	shown   int               // the number of containers that expressions saw when this round began

	spent uint64 // cost of the expressions of the templates of the namespace, in all rounds
}

// startPod prepares for the rounds of one pod.
func (r *round) startPod(i *Injector, facts requestFacts, nodes *jsontree.Arena) {
	r.injector, r.journal.Nodes, r.canaries.replaced = i, nodes, i.replaced
	s := &r.subject
	s.loadedSet, s.request, s.nodes, s.proven = &i.loadedSet, facts, nodes, nil
	r.room = slices.Grow(r.room[:0], len(i.templates))[:len(i.templates)]
}

// rememberAdded keeps what the templates added in the last round, because later rounds need it.
func (r *round) rememberAdded() {
	if !r.added {
		return
	}
	r.added = false
	for _, c := range r.owners.candidates {
		if c.added {
			r.contributed = append(r.contributed, *c)
		}
	}
}

// forgetAdded forgets what the templates added, except for what they added to the pod before it was copied.
func (r *round) forgetAdded(earlier []candidate) {
	r.added, r.contributed = false, append(r.contributed[:0], earlier...)
}

// beginRound begins another round. Grown reports whether earlier rounds added something to the pod.
func (r *round) beginRound(pod *jsontree.Node, grown bool) {
	r.rememberAdded()
	r.journal.Keep()
	r.subject.beginRound(pod, grown)
	facts := &r.subject.request
	r.owners = owners{subject: &r.subject, input: &r.input, candidates: r.owners.candidates[:0], contributed: r.contributed}
	r.input = cel.Input{
		Namespace: facts.namespace, ServiceAccount: facts.account, Nodes: r.subject.nodes, Done: facts.done,
		Request: request.Info{Operation: facts.operation, Username: facts.username, DryRun: facts.dryRun},
	}
	r.leftOut, r.added = nil, false
	view, shown := r.visiblePod(nil)
	r.input.Pod, r.shown = r.subject.foreseenPart(view, r.subject.schema), shown
}

// visiblePod returns the pod as the expressions of a template see it, and the number of containers in it. If t is nil, it is the pod
// that templates see that are not required. The pod has no hidden containers, no generated name and no annotations that the API
// server drops, and it has the profiles that the API server makes of annotations for AppArmor. The number of containers is 0 if no
// expression reads them.
func (r *round) visiblePod(t *loaded) (pod *jsontree.Node, containers int) {
	pod = r.subject.pod
	if r.injector.readsContainers {
		pod, containers = r.subject.withoutHidden(t)
	}
	if metadata := pod.Get("metadata"); r.injector.readsName && cel.HasGeneratedName(metadata) {
		nodes := r.subject.nodes
		pod = r.subject.storeNode(nodes.With(pod, "metadata", nodes.Without(metadata, "name")))
	}
	annotations := pod.At("metadata", "annotations")
	if kept := r.subject.withoutDropped(annotations); kept != annotations {
		nodes := r.subject.nodes
		pod = r.subject.storeNode(nodes.With(pod, "metadata", nodes.With(pod.Get("metadata"), "annotations", *kept)))
	}
	return r.subject.withAppArmors(pod), containers
}

// decideAll decides about every template, in order. It renders all templates before it plans any,
// because all of them together determine which containers are the user's. If this exposes a
// container, required templates are rendered again.
func (r *round) decideAll(decisions []Decision) {
	s, o := &r.subject, &r.owners
	r.renderAll(decisions)
	if r.injector.proves {
		r.exposeUnproven(decisions)
	}
	for _, c := range o.candidates {
		c.altered = alteredFields(s, c.t, &c.fragment, func(list string, found int, own *jsontree.Node) []Difference {
			return o.alteredBeside(c, list, found, own)
		})
	}
	for _, c := range o.candidates {
		if s.request.isGone() {
			return
		}
		if r.added {
			// Expressions read the additions of earlier templates. If these matter, another round follows, which sees them as
			// the API server will store them.
			view, _ := r.visiblePod(c.t)
			if s.request.file || s.readsGated {
				view = s.foreseenPart(view, s.schema)
			}
			c.input.See(view)
		}
		if c.planAdditions(o, &r.journal) {
			r.added, c.added = true, true
			s.dropCached()
			o.users = [2][]appContainer{}
		}
	}
}

// exposeUnproven exposes the hidden containers that no template renders, and renders again if there are any. A template that sees
// exposed containers may then render further hidden ones, so that fewer containers have to be exposed. But what stays hidden must
// be what templates render without seeing it: otherwise two forged containers could prove each other. If the smaller set does not
// have that property, the larger one is used.
func (r *round) exposeUnproven(decisions []Decision) {
	s, o := &r.subject, &r.owners
	first := s.proven == nil
	all := s.unprovenNames(o.candidates, o.leftOut)
	if s.exposed = all; first {
		s.recordProven()
	}
	if len(all) == 0 {
		return
	}
	r.renderAll(decisions)
	fewer := s.unprovenNames(o.candidates, o.leftOut)
	if maps.Equal(fewer, all) {
		return
	}
	s.exposed = fewer
	if r.renderAll(decisions); !maps.Equal(s.unprovenNames(o.candidates, o.leftOut), fewer) {
		s.exposed = all
		r.renderAll(decisions)
	} else if first {
		s.recordProven()
	}
}

// renderAll decides about all templates as far as that is possible before anything is planned. Those that are rendered become the
// candidates.
func (r *round) renderAll(decisions []Decision) {
	s, o := &r.subject, &r.owners
	o.candidates, o.leftOut, o.flipped = o.candidates[:0], nil, o.flipped[:0]
	if len(r.canaries.replaced) > 0 {
		r.canaries.chooseForPod(s, decisions, r.renderTemplate)
		r.canaries.wantedBases = r.canaries.wantedBases[:0]
		for _, base := range r.canaries.replaced {
			if s.canaryOf[base] != nil && r.wantsBase(base) { // decided now, because nothing is added yet
				r.canaries.wantedBases = append(r.canaries.wantedBases, base)
			}
		}
	}
	for i, t := range s.templates {
		if s.request.isGone() {
			return
		}
		d, c := &decisions[i], &r.room[len(o.candidates)]
		if t.base != nil {
			*c = r.canaries.candidates[i]
		} else {
			r.renderTemplate(t, d, c)
		}
		switch d.Code {
		case "":
			o.candidates = append(o.candidates, c)
		case CodePodNotMatched, CodeUnknownServiceAccount, CodeConditionFalse, CodeInvalidParameter, CodeRenderFailed:
			o.flipped = append(o.flipped, t)
		}
	}
	r.canaries.fallBack(s, decisions)
	// From the next round on, the pod records that a canary fell back. Such a canary claims no container that the user wrote, so it
	// must not in this round either.
	o.flipped = slices.DeleteFunc(o.flipped, func(t *loaded) bool { return decisions[t.index].Code == CodeFellBack && !s.isRecorded(t) })
}

// renderTemplate decides about one template as far as that is possible before anything is planned, and renders it. If its condition
// is false, that may be because a container with one of its own names was changed and is therefore visible. Then it is rendered
// again without such containers, see visibility.go.
func (r *round) renderTemplate(t *loaded, d *Decision, c *candidate) {
	s := &r.subject
	if r.renderVisible(t, d, c); d.Code != CodeConditionFalse || s.unseen[t] || !s.showsOwn(t) {
		return
	}
	if s.unseen == nil {
		s.unseen = map[*loaded]bool{}
	}
	s.unseen[t] = true
	if r.renderVisible(t, d, c); d.Code == CodeConditionFalse {
		delete(s.unseen, t)
	}
}

// renderVisible is [round.renderTemplate] with the containers that are visible now. Required templates see exposed containers, too.
func (r *round) renderVisible(t *loaded, d *Decision, c *candidate) {
	s, o := &r.subject, &r.owners
	*d = Decision{Template: t.Name, Revision: t.Revision, Mode: t.Spec.Validate.Mode, audit: t.audit}
	*c = candidate{subject: s, t: t, input: r.input, decision: d, placed: t.Spec.Placement}
	if t.Namespace != "" {
		c.byCluster = o.addedByClusterTo
		c.input.Total = &r.spent
	}
	if t.Spec.Required && len(s.exposed) > 0 || s.unseen[t] {
		view, _ := r.visiblePod(t)
		c.input.Pod = s.foreseenPart(view, s.schema)
	}
	if code, why := r.leaveOut(t); why != "" && s.canaryOf[t.baseOrSelf()] == nil {
		d.Code, d.Message = code, why
		if r.injector.proves {
			out := &candidate{subject: s, t: t, input: c.input, decision: &Decision{}, byCluster: c.byCluster}
			if code, _ := out.renderFragment(r.injector.rules); code == "" {
				o.leftOut = append(o.leftOut, out)
			}
		}
	} else {
		d.Code, d.Message = c.renderFragment(r.injector.rules)
	}
	_, d.Requested = s.requested.lookupName(t.Name)
}

// isOfOtherTier is [subject.isOfOtherTier] for the template with an index.
func (r *round) isOfOtherTier(i int) bool { return r.subject.isOfOtherTier(r.injector.templates[i]) }

// leaveOut returns why a template is left out, or "".
func (r *round) leaveOut(t *loaded) (Code, string) {
	if why := r.subject.request.denied[t.Name]; why != "" && t.Namespace != "" {
		return CodeConflict, why
	}
	return CodeRenderFailed, r.leftOut[t.Name]
}

// wantsBase reports whether a template that a canary replaces would be for the pod if the canary did not take its place.
func (r *round) wantsBase(base *loaded) bool {
	canary := r.subject.canaryOf[base]
	delete(r.subject.canaryOf, base)
	defer func() { r.subject.canaryOf[base] = canary }()
	var d Decision
	var c candidate
	r.renderTemplate(base, &d, &c)
	return d.Code == ""
}
