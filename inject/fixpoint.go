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

// Additions may change the values of expressions. Inject therefore inspects the pod again until
// another run would add nothing. It leaves out a template if the additions never end, or if the
// validating webhook would report the result.
//
// A look is one inspection of the pod by all templates, which may add to it. A pass is a sequence
// of looks that ends when a look adds nothing.

const (
	// maxRounds is the maximum number of looks in one pass. Additions might change what another
	// template sees, so the pod needs another look. Two looks are enough for templates that do not
	// depend on each other in a chain.
	maxRounds = 16
	// maxLooks is the maximum number of looks for one pod in all passes, including those after a
	// template was left out. Of 600 random sets of up to three templates, none needs
	// more than 17.
	maxLooks = 64
)

const neverSettles = "its expressions read its own additions, so it adds more without end; change the expressions"

// settling is the work on one pod.
type settling struct {
	run            run
	result         Result
	current        pass
	decisions      []Decision
	looks          int
	earlier        []candidate // what templates added to the pod before it was copied, see owners
	gaveUp         bool        // after too many looks: every template is left out
	leaveOutAlways bool        // the culprits of a pass must be left out in all earlier ones too
}

const spendsTooMuch = "the expressions of the templates of the namespace cost too much for this pod; use fewer of them, or simpler ones"

// whyStop returns why the pod must not be inspected again, or "".
func (s *settling) whyStop() string {
	switch {
	case s.run.spent > cel.MaxTotal:
		return spendsTooMuch
	case s.looks > maxLooks:
		return neverSettles
	}
	return ""
}

// keptBytes returns the number of bytes that stay allocated for the next pod.
func (s *settling) keptBytes() int {
	return s.run.journal.Kept() + cap(s.decisions)*int(unsafe.Sizeof(Decision{})) + (cap(s.run.room)+cap(s.run.contributed)+cap(s.run.canaries.candidates))*int(unsafe.Sizeof(candidate{})) + cap(s.run.subject.tokenVolumes)*int(unsafe.Sizeof(""))
}

// reachFixedPoint adds to the pod until nothing is left to add.
//
// If a template must be left out because of what it adds, settle starts again from the original
// pod, of which fresh returns another copy. The other templates then get the same result as without that template. A
// template that was left out may be correct together with later additions. settle therefore makes another pass, as a
// second run would, until a pass adds nothing.
func (s *settling) reachFixedPoint(i *Injector, asked asked, nodes *jsontree.Arena, pod *jsontree.Node, fresh func() (*jsontree.Node, error)) error {
	s.run.startPod(i, asked, nodes)
	if !asked.copied {
		s.run.spent = 0
	}
	s.run.forgetAdded(s.earlier)
	s.decisions = slices.Grow(s.decisions[:0], len(i.templates))[:len(i.templates)]
	s.result, s.looks, s.gaveUp = Result{Pod: identifyPod(pod), pod: pod, size: asked.sizeBefore(pod)}, 0, false
	var leftOut []map[string]string // indexed by pass
	for {
		pass, culprits := s.runPasses(leftOut)
		if s.run.subject.asked.isGone() {
			return ErrGone
		}
		switch {
		case s.whyStop() != "" && !s.gaveUp: // culprits is incomplete
			leftOut, s.gaveUp = []map[string]string{s.everyTemplate(s.whyStop())}, true
		case len(culprits) == 0:
			return nil
		default:
			for len(leftOut) <= pass {
				leftOut = append(leftOut, map[string]string{})
			}
			for at := range leftOut[:pass+1] {
				if at == pass || s.leaveOutAlways {
					maps.Copy(leftOut[at], culprits)
				}
			}
		}
		pod, err := fresh()
		if err != nil {
			return err
		}
		s.result = Result{Pod: s.result.Pod, pod: pod, size: asked.sizeBefore(pod)}
		s.run.forgetAdded(s.earlier)
	}
}

// parseOriginal returns a function that parses a pod again, without what was added to it.
func parseOriginal(pod *jsontree.Node) func() (*jsontree.Node, error) {
	return func() (*jsontree.Node, error) { return jsontree.Parse([]byte(pod.String())) }
}

// everyTemplate returns every template, to be left out.
func (s *settling) everyTemplate(why string) map[string]string {
	all := map[string]string{}
	for _, name := range s.run.injector.names {
		all[name] = why
	}
	return all
}

// runPasses returns the templates to leave out in a pass, with the reasons. It returns none if the pod
// is settled.
func (s *settling) runPasses(leftOut []map[string]string) (pass int, culprits map[string]string) {
	for ; ; pass++ {
		var without map[string]string
		if pass < len(leftOut) {
			without = leftOut[pass]
		}
		before := s.result.size
		culprits = s.runPass(without)
		if len(culprits) > 0 || len(without) == 0 || s.result.size == before {
			return pass, culprits
		}
	}
}

// runPass inspects the pod until there is nothing more to add. It returns the templates that make this
// impossible, with the reasons.
func (s *settling) runPass(leftOut map[string]string) (culprits map[string]string) {
	p := &s.current
	*p, s.leaveOutAlways = pass{result: &s.result}, false
	if s.result.size > 0 {
		p.before = s.result.pod.AppendWithAdditions(nil)
	}
	for range maxRounds {
		run := &s.run
		run.beginRound(s.result.pod, s.result.size > 0)
		run.leftOut = leftOut
		decisions := s.decisions
		if s.result.Decisions != nil {
			decisions = make([]Decision, len(decisions))
		}
		if s.looks++; s.whyStop() != "" && !s.gaveUp {
			return nil
		}
		if run.decideAll(decisions); s.run.subject.asked.isGone() {
			return nil
		}
		if culprits, s.leaveOutAlways = run.canaries.findFailed(&run.subject, decisions); len(culprits) > 0 {
			return culprits
		}
		if s.result.Decisions == nil && s.run.subject.asked.tier != clusterTier {
			s.result.Findings = findMistakes(run.injector, &run.subject)
		}
		for i := range decisions {
			decisions[i].cleanMessages()
		}
		p.recordDecisions(decisions)
		if !run.added {
			return s.faultyTemplates()
		}
		if s.result.size = s.result.pod.AddedSize(); s.result.size > maxPatch {
			return p.addersOf(p.last, fmt.Sprintf("its additions make the pod larger than the API server accepts (%d bytes)", s.result.size))
		}
		if !s.run.needsAnotherRound() {
			return nil
		}
	}
	return p.addersOf(p.last, neverSettles)
}

// pass is the result of the looks of one pass.
type pass struct {
	result      *Result
	last        []Decision
	old         []bool // injected by an earlier pass
	adds        []bool // injected by earlier looks of this pass
	wasComplete []bool // was complete and correct in the pod before this pass
	before      []byte // the pod before this pass, unless it is the original one
	judged      bool   // whether the pod before this round had all of the template, see wasRight

	altered map[string][]Difference // by template, in the pod before this pass
}

// recordDecisions records the decisions of a look. A template that an earlier look injected stays injected.
func (p *pass) recordDecisions(decisions []Decision) {
	first := p.last
	p.last = decisions
	for i := range decisions {
		if d := &decisions[i]; first == nil && len(d.Altered) > 0 {
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
	case first == nil:
		p.old = flagDecisions(p.result.Decisions, (*Decision).isInjected)
	case p.wasComplete == nil:
		p.wasComplete = flagDecisions(first, (*Decision).isRight)
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
	culprits := map[string]string{}
	for i := range decisions {
		if d := &decisions[i]; d.isInjected() && (p.old == nil || !p.old[i]) {
			culprits[d.Template] = why
		}
	}
	if len(culprits) == 0 && len(decisions) > 0 && &decisions[0] != &p.result.Decisions[0] {
		return p.addersOf(p.result.Decisions, why) // later templates made earlier ones add more
	}
	return culprits
}

// faultyTemplates returns the templates that the validating webhook would report in the current pod, because
// additions changed the values of their expressions. If such a template was in the pod before,
// faulty returns the templates that added something instead. A fault that the pod had
// before does not count, because a second run would inject the template despite it.
func (s *settling) faultyTemplates() map[string]string {
	p := &s.current
	if p.wasComplete == nil {
		return nil // nothing was added
	}
	culprits := map[string]string{}
	for i := range p.wasComplete {
		found := p.last[i].faultsSince(p.altered[p.last[i].Template])
		switch name := p.last[i].Template; {
		case len(found) == 0 || s.run.leftOut[name] != "" || s.run.isOthers(i):
		case p.old != nil && p.old[i] || s.wasRight(i):
			return s.fewestToLeaveOut(p.addersOf(p.result.Decisions, fmt.Sprintf("the template %s reads its own additions, and then %s", name, found[0].faultText())))
		case p.adds[i]:
			culprits[name] = "its expressions read additions, and then " + found[0].faultText()
		}
	}
	if s.run.injector.proves && len(culprits) == 0 {
		return s.losingTemplates()
	}
	return s.fewestToLeaveOut(culprits)
}

// losingTemplates returns the templates to leave out because a container of a template is no longer what that
// template renders. A second run would take the container for the user's.
func (s *settling) losingTemplates() map[string]string {
	p := &s.current
	culprits := map[string]string{}
	for name := range s.run.subject.lostNames(s.run.owners.candidates) {
		owner := -1
		for i, t := range s.run.injector.templates {
			if t.Brings(name) && (owner < 0 || p.result.Decisions[i].isInjected()) {
				owner = i
			}
		}
		switch t := s.run.injector.templates[owner]; {
		case s.run.isOthers(owner):
		case p.adds[owner] && (p.old == nil || !p.old[owner]) && !s.wasRight(owner):
			culprits[t.Name] = fmt.Sprintf("its expressions read additions, and then they change its container %s", name)
		default:
			return s.fewestToLeaveOut(p.addersOf(p.result.Decisions, fmt.Sprintf("the template %s reads additions, and then they change its container %s", t.Name, name)))
		}
	}
	return s.fewestToLeaveOut(culprits)
}

// fewestToLeaveOut returns those of the culprits that must be left out first. Others may be right without
// them: templates that the pod had already, and required ones. Without a template that the pod had,
// its containers would look like the user's.
func (s *settling) fewestToLeaveOut(culprits map[string]string) map[string]string {
	for _, spared := range []func(i int) bool{
		func(i int) bool { return s.current.wasComplete[i] },
		func(i int) bool { return s.run.injector.templates[i].Spec.Required },
	} {
		rest := maps.Clone(culprits)
		for i, t := range s.run.injector.templates {
			if spared(i) {
				delete(rest, t.Name)
			}
		}
		if len(rest) > 0 {
			culprits = rest
		}
	}
	return culprits
}

// wasRight reports whether a template was complete and correct in the pod before this pass. If the
// pod says that it has the template, the first look is not enough: in it, an earlier template may
// have added something.
func (s *settling) wasRight(i int) bool {
	p, t := &s.current, s.run.injector.templates[i]
	if says := s.run.subject.annotation(t.injected); p.wasComplete[i] || p.judged || says == nil || says.Added() {
		return p.wasComplete[i]
	}
	s.looks++
	before := p.before
	if before == nil {
		before = []byte(s.result.pod.String())
	}
	pod, err := jsontree.Parse(before)
	if err != nil {
		return false
	}
	asked := s.run.subject.asked
	asked.alone = true
	var judging run
	judging.startPod(s.run.injector, asked, &jsontree.Arena{})
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
// that template renders. Without another look, a second admission of the same pod might add what this one left out, or leave
// out what this one added.
func (r *run) needsAnotherRound() bool {
	if slices.ContainsFunc(r.owners.candidates, func(c *candidate) bool {
		return c.decision.Code == CodeConflict || c.decision.Code == CodeRenderFailed || len(c.altered) > 0
	}) {
		return true
	}
	r.subject.marksAgain()
	view, containers := r.visiblePod(nil)
	return len(r.subject.exposed) > 0 || containers != r.shown || slices.ContainsFunc(r.injector.reads, func(part readPart) bool { return part.addedIn(view) })
}

// ErrGone is returned if [Request.Done] was closed before the work was done.
var ErrGone = errors.New("the caller no longer waits for the result")
