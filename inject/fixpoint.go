// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Additions may change the values of expressions. Inject therefore repeats the work until the result is a fixed point: a second run
// over the injected pod would add nothing. It leaves out a template if the additions never end, or if the validating webhook would
// report the result.
//
// A round inspects the pod once with all templates, and may add to it. A pass is a sequence of rounds in which the same templates
// are left out. It ends when another round would add nothing.

const (
	// maxRoundsPerPass is the maximum number of rounds in one pass. Two rounds are enough unless templates depend on each other's
	// additions in a chain.
	maxRoundsPerPass = 16
	// maxRoundsPerPod is the maximum number of rounds for one pod in all passes, including those that begin again because a
	// template must be left out. Of 600 random sets of up to three templates, none needs more than 17.
	maxRoundsPerPod = 64
)

const addsWithoutEnd = "its expressions read its own additions, so it adds more without end; change the expressions"

// fixedPointSearch is the work on one pod. It is used again for the next pod.
type fixedPointSearch struct {
	round     round
	result    Result
	current   pass
	decisions []Decision  // memory for those of the first round
	rounds    int         // so far, in all passes
	earlier   []candidate // what templates added to the pod before it was copied, see owners
	gaveUp    bool        // after too many rounds: every template is left out
	// leaveOutAlways reports whether the templates that the last pass found must also be left out of all earlier passes.
	leaveOutAlways bool
}

const spendsTooMuch = "the expressions of the templates of the namespace cost too much for this pod; use fewer of them, or simpler ones"

// whyStop returns why the pod must not be inspected again, or "".
func (s *fixedPointSearch) whyStop() string {
	switch {
	case s.round.spent > cel.MaxTotal:
		return spendsTooMuch
	case s.rounds > maxRoundsPerPod:
		return addsWithoutEnd
	}
	return ""
}

// keptBytes returns the number of bytes that stay allocated for the next pod.
func (s *fixedPointSearch) keptBytes() int {
	return s.round.journal.Kept() + cap(s.decisions)*int(unsafe.Sizeof(Decision{})) + (cap(s.round.room)+cap(s.round.contributed)+cap(s.round.canaries.candidates))*int(unsafe.Sizeof(candidate{})) + cap(s.round.subject.tokenVolumes)*int(unsafe.Sizeof(""))
}

// reachFixedPoint adds to the pod until nothing is left to add.
//
// If a pass finds templates that must be left out because of what they add, the work begins again with the original pod, of which
// fresh returns another copy. So the result is the same as without those templates. But a template that was left out may be right
// together with what the others added, and a second run would add it. Therefore another pass follows, in which it is not left
// out, until a pass adds nothing.
func (s *fixedPointSearch) reachFixedPoint(i *Injector, facts requestFacts, nodes *jsontree.Arena, pod *jsontree.Node, fresh func() (*jsontree.Node, error)) error {
	s.round.startPod(i, facts, nodes)
	if !facts.copied {
		s.round.spent = 0
	}
	s.round.forgetAdded(s.earlier)
	s.decisions = slices.Grow(s.decisions[:0], len(i.templates))[:len(i.templates)]
	s.result, s.rounds, s.gaveUp = Result{Pod: identifyPod(pod), pod: pod, size: facts.sizeBefore(pod)}, 0, false
	var leftOut []map[string]string // indexed by pass
	for {
		pass, toLeaveOut := s.runPasses(leftOut)
		if s.round.subject.request.isGone() {
			return ErrGone
		}
		switch {
		case s.whyStop() != "" && !s.gaveUp: // the pass did not end, so toLeaveOut is incomplete
			leftOut, s.gaveUp = []map[string]string{s.everyTemplate(s.whyStop())}, true
		case len(toLeaveOut) == 0:
			return nil
		default:
			for len(leftOut) <= pass {
				leftOut = append(leftOut, map[string]string{})
			}
			for at := range leftOut[:pass+1] {
				if at == pass || s.leaveOutAlways {
					maps.Copy(leftOut[at], toLeaveOut)
				}
			}
		}
		pod, err := fresh()
		if err != nil {
			return err
		}
		s.result = Result{Pod: s.result.Pod, pod: pod, size: facts.sizeBefore(pod)}
		s.round.forgetAdded(s.earlier)
	}
}

// parseOriginal returns a function that parses a pod again, without what was added to it.
func parseOriginal(pod *jsontree.Node) func() (*jsontree.Node, error) {
	return func() (*jsontree.Node, error) { return jsontree.Parse([]byte(pod.String())) }
}

// everyTemplate returns every template, to be left out.
func (s *fixedPointSearch) everyTemplate(why string) map[string]string {
	all := map[string]string{}
	for _, name := range s.round.injector.names {
		all[name] = why
	}
	return all
}

// runPasses runs passes over the pod until one adds nothing. LeftOut has the templates to leave out of each pass, with the reasons.
// If a pass finds further ones, runPasses stops, and returns them with the index of the pass.
func (s *fixedPointSearch) runPasses(leftOut []map[string]string) (pass int, toLeaveOut map[string]string) {
	for ; ; pass++ {
		var without map[string]string
		if pass < len(leftOut) {
			without = leftOut[pass]
		}
		before := s.result.size
		toLeaveOut = s.runPass(without)
		if len(toLeaveOut) > 0 || len(without) == 0 || s.result.size == before {
			return pass, toLeaveOut
		}
	}
}

// runPass runs rounds over the pod until one adds nothing. It returns the templates that must be left out of this pass because they
// make that impossible, or because the result would be wrong, with the reasons.
func (s *fixedPointSearch) runPass(leftOut map[string]string) (toLeaveOut map[string]string) {
	p := &s.current
	*p, s.leaveOutAlways = pass{result: &s.result}, false
	if s.result.size > 0 {
		p.before = s.result.pod.AppendWithAdditions(nil)
	}
	for range maxRoundsPerPass {
		round := &s.round
		round.beginRound(s.result.pod, s.result.size > 0)
		round.leftOut = leftOut
		decisions := s.decisions
		if s.result.Decisions != nil {
			decisions = make([]Decision, len(decisions))
		}
		if s.rounds++; s.whyStop() != "" && !s.gaveUp {
			return nil
		}
		if round.decideAll(decisions); s.round.subject.request.isGone() {
			return nil
		}
		if toLeaveOut, s.leaveOutAlways = round.canaries.findFailed(&round.subject, decisions); len(toLeaveOut) > 0 {
			return toLeaveOut
		}
		if s.result.Decisions == nil && s.round.subject.request.tier != clusterTier {
			s.result.Findings = findMistakes(round.injector, &round.subject)
		}
		for i := range decisions {
			decisions[i].cleanMessages()
		}
		p.recordDecisions(decisions)
		if !round.added {
			return s.faultyTemplates()
		}
		if s.result.size = s.result.pod.AddedSize(); s.result.size > maxPatch {
			return p.addersOf(p.last, fmt.Sprintf("its additions make the pod larger than the API server accepts (%d bytes)", s.result.size))
		}
		if !s.round.needsAnotherRound() {
			return nil
		}
	}
	return p.addersOf(p.last, addsWithoutEnd)
}

// pass is what is known about one pass. Its slices of bool have an item for each template.
type pass struct {
	result      *Result
	last        []Decision // of the last round
	old         []bool     // injected by an earlier pass
	adds        []bool     // injected before the last round, by this pass or an earlier one
	wasComplete []bool     // was complete and correct in the pod before this pass
	before      []byte     // the pod before this pass, or nil if that is the original pod
	judged      bool       // whether wasComplete comes from a round that added nothing, see wasRight

	altered map[string][]Difference // by template, in the pod before this pass
}

// recordDecisions records the decisions of a round. A template that an earlier round injected stays injected.
func (p *pass) recordDecisions(decisions []Decision) {
	earlier := p.last // of this pass
	p.last = decisions
	for i := range decisions {
		if d := &decisions[i]; earlier == nil && len(d.Altered) > 0 {
			if p.altered == nil {
				p.altered = map[string][]Difference{}
			}
			p.altered[d.Template] = d.Altered
		}
	}
	switch {
	case p.result.Decisions == nil:
		p.result.Decisions = decisions
		return
	case earlier == nil:
		p.old = flagDecisions(p.result.Decisions, (*Decision).isInjected)
	case p.wasComplete == nil:
		p.wasComplete = flagDecisions(earlier, (*Decision).isRight)
		fallthrough
	default:
		p.adds = flagDecisions(p.result.Decisions, (*Decision).isInjected)
	}
	for i := range p.result.Decisions {
		switch d := &p.result.Decisions[i]; {
		case d.Code == CodeFellBack && decisions[i].Code == CodeFellBack: // the first reason is the cause
		case d.Code != CodeInjected:
			notes, code := d.Notes, d.Code
			if *d = decisions[i]; d.Code == code { // it may have left something to the webhook
				for _, note := range notes {
					d.recordNote(note)
				}
			}
		default:
			d.Added, d.outside = append(d.Added, decisions[i].Added...), d.outside || decisions[i].outside
			d.keepAlso(decisions[i].Kept)
		}
	}
}

func flagDecisions(decisions []Decision, is func(*Decision) bool) []bool {
	all := make([]bool, len(decisions))
	for i := range decisions {
		all[i] = is(&decisions[i])
	}
	return all
}

func (d *Decision) isInjected() bool { return d.Code == CodeInjected }

// isRight reports whether all of the template is in the pod, and correct.
func (d *Decision) isRight() bool { return d.Code == CodePresent && len(d.findFaults()) == 0 }

// addersOf returns the templates among the decisions that have added something since this pass began.
func (p *pass) addersOf(decisions []Decision, why string) map[string]string {
	toLeaveOut := map[string]string{}
	for i := range decisions {
		if d := &decisions[i]; d.isInjected() && (p.old == nil || !p.old[i]) {
			toLeaveOut[d.Template] = why
		}
	}
	if len(toLeaveOut) == 0 && len(decisions) > 0 && &decisions[0] != &p.result.Decisions[0] {
		return p.addersOf(p.result.Decisions, why) // later templates made earlier ones add more
	}
	return toLeaveOut
}

// faultyTemplates returns the templates that the validating webhook would report in the current pod, because
// additions changed the values of their expressions. If such a template was right in the pod before this pass, the templates that
// added something are returned instead. A fault that the pod had before does not count, because a second run would inject the
// template despite it.
func (s *fixedPointSearch) faultyTemplates() map[string]string {
	p := &s.current
	toLeaveOut := map[string]string{}
	if p.wasComplete == nil { // nothing was added
		// Templates that were left out of an earlier pass may be the reason why the pod now conflicts with one that it added.
		for i := range p.old {
			if d := &p.last[i]; p.old[i] && d.Code.Failed() {
				toLeaveOut[d.Template], s.leaveOutAlways = d.Sentence(), true
			}
		}
		return toLeaveOut
	}
	for i := range p.wasComplete {
		found := p.last[i].faultsSince(p.altered[p.last[i].Template])
		switch name := p.last[i].Template; {
		case len(found) == 0 || s.round.leftOut[name] != "" || s.round.isOfOtherTier(i):
		case p.old != nil && p.old[i] || s.wasRight(i):
			return s.fewestToLeaveOut(p.addersOf(p.result.Decisions, fmt.Sprintf("the template %s reads its own additions, and then %s", name, found[0].faultText())))
		case p.adds[i]:
			toLeaveOut[name] = "its expressions read additions, and then " + found[0].faultText()
		}
	}
	if s.round.injector.proves && len(toLeaveOut) == 0 {
		return s.losingTemplates()
	}
	return s.fewestToLeaveOut(toLeaveOut)
}

// losingTemplates returns the templates to leave out because a container of a template is no longer what that
// template renders. A second run would take the container for the user's.
func (s *fixedPointSearch) losingTemplates() map[string]string {
	p := &s.current
	toLeaveOut := map[string]string{}
	for name := range s.round.subject.lostNames(s.round.owners.candidates) {
		owner := -1
		for i, t := range s.round.injector.templates {
			if t.Brings(name) && (owner < 0 || p.result.Decisions[i].isInjected()) {
				owner = i
			}
		}
		switch t := s.round.injector.templates[owner]; {
		case s.round.isOfOtherTier(owner):
		case p.adds[owner] && (p.old == nil || !p.old[owner]) && !s.wasRight(owner):
			toLeaveOut[t.Name] = fmt.Sprintf("its expressions read additions, and then they change its container %s", name)
		default:
			return s.fewestToLeaveOut(p.addersOf(p.result.Decisions, fmt.Sprintf("the template %s reads additions, and then they change its container %s", t.Name, name)))
		}
	}
	return s.fewestToLeaveOut(toLeaveOut)
}

// fewestToLeaveOut returns those of the templates that must be left out first. Others may be right without
// them: templates that the pod had already, and required ones. Without a template that the pod had,
// its containers would look like the user's.
func (s *fixedPointSearch) fewestToLeaveOut(toLeaveOut map[string]string) map[string]string {
	for _, spared := range []func(i int) bool{
		func(i int) bool { return s.current.wasComplete[i] },
		func(i int) bool { return s.round.injector.templates[i].Spec.Required },
	} {
		rest := maps.Clone(toLeaveOut)
		for i, t := range s.round.injector.templates {
			if spared(i) {
				delete(rest, t.Name)
			}
		}
		if len(rest) > 0 {
			toLeaveOut = rest
		}
	}
	return toLeaveOut
}

// wasRight reports whether a template was complete and correct in the pod before this pass. The decisions of the first round are
// not enough for a template that the pod records: an earlier template may have added something before it was decided about. So a
// round in which nothing is added judges the pod as it was before.
func (s *fixedPointSearch) wasRight(i int) bool {
	p, t := &s.current, s.round.injector.templates[i]
	if says := s.round.subject.annotation(t.injected); p.wasComplete[i] || p.judged || says == nil || says.Added() {
		return p.wasComplete[i]
	}
	s.rounds++
	before := p.before
	if before == nil {
		before = []byte(s.result.pod.String())
	}
	pod, err := jsontree.Parse(before)
	if err != nil {
		return false
	}
	facts := s.round.subject.request
	facts.alone = true
	var judging round
	judging.startPod(s.round.injector, facts, &jsontree.Arena{})
	judging.beginRound(pod, false)
	decisions := make([]Decision, len(p.wasComplete))
	judging.decideAll(decisions)
	p.wasComplete, p.judged = flagDecisions(decisions, (*Decision).isRight), true
	return p.wasComplete[i]
}

// faultsSince returns what is wrong except for what was altered before. A place that has another value now counts: Pillion may have
// added that value, for example in place of one that was missing.
func (d *Decision) faultsSince(before []Difference) []Finding {
	if len(before) == 0 || len(d.Altered) == 0 {
		return d.findFaults()
	}
	now := *d
	now.Altered = slices.DeleteFunc(slices.Clone(d.Altered), func(p Difference) bool {
		return slices.ContainsFunc(before, func(was Difference) bool { return was.Path == p.Path && was.Pod == p.Pod })
	})
	return now.findFaults()
}

// faultText returns what is wrong, without advice.
func (f *Finding) faultText() string {
	if f.Code == CodeAltered {
		return fmt.Sprintf("%s is %s and must be %s", schema.Where(f.Path), Brief(cmp.Or(f.Found, "absent")), Brief(cmp.Or(f.Expected, "absent")))
	}
	return f.Message
}

// needsAnotherRound reports whether the additions could change what a template sees, or whether a container of a template is not what
// that template renders. Without another round, a second admission of the same pod might add what this one left out, or leave
// out what this one added.
func (r *round) needsAnotherRound() bool {
	if slices.ContainsFunc(r.owners.candidates, func(c *candidate) bool {
		return c.decision.Code == CodeConflict || c.decision.Code == CodeRenderFailed || len(c.altered) > 0
	}) {
		return true
	}
	r.subject.readMarksAgain()
	view, containers := r.visiblePod(nil)
	return len(r.subject.exposed) > 0 || containers != r.shown || slices.ContainsFunc(r.injector.reads, func(part readPart) bool { return part.addedIn(view) })
}

// ErrGone is returned if [Request.Done] was closed before the work was done.
var ErrGone = errors.New("the caller no longer waits for the result")
