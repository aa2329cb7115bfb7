// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/tree"
)

// What templates add may change what expressions give. Inject therefore looks at the pod until a
// second run would add nothing, and leaves out the templates with which that never happens, or
// with which the validating webhook would find fault with the result.

const (
	// maxRounds is how often a pod is looked at again because what was added might
	// change what another template sees. Two are enough for templates that do not
	// depend on each other in a chain.
	maxRounds = 16
	// maxLooks bounds all looks at one pod, with those after a template was left out. Of
	// 20,000 random sets of templates, none needs more than 17.
	maxLooks = 64
)

const neverSettles = "what it adds makes it add more, without an end; see what its expressions read"

// settling is the work on one pod.
type settling struct {
	*Injector
	req   *Request
	r     *Result
	looks int
}

// settle adds to the pod until there is nothing left to add. A template that is left out because
// of what it does starts everything anew, so that the others get what they would get without it.
// What was left out may be right beside what was added since; so the pod is looked at once more, as
// in a second run, until such a pass adds nothing.
func (s *settling) settle() error {
	pod := s.r.pod
	var leftOut []map[string]string // by pass
	for {
		pass, culprits := s.passes(leftOut)
		if s.req.gone() {
			return ErrGone
		}
		if len(culprits) == 0 {
			return nil
		}
		for len(leftOut) <= pass {
			leftOut = append(leftOut, map[string]string{})
		}
		maps.Copy(leftOut[pass], culprits)
		if s.looks > maxLooks {
			leftOut = []map[string]string{s.all()}
		}
		var err error
		if pod, err = tree.Parse([]byte(pod.String())); err != nil { // as it came
			return err
		}
		*s.r = Result{Pod: s.r.Pod, pod: pod}
	}
}

// all leaves out every template.
func (s *settling) all() map[string]string {
	all := map[string]string{}
	for _, name := range s.names {
		all[name] = neverSettles
	}
	return all
}

// passes returns the templates to leave out in a pass, and why; none if the pod is settled.
func (s *settling) passes(leftOut []map[string]string) (pass int, culprits map[string]string) {
	for ; ; pass++ {
		var without map[string]string
		if pass < len(leftOut) {
			without = leftOut[pass]
		}
		before := s.r.size
		culprits = s.pass(without)
		if len(culprits) > 0 || len(without) == 0 || s.r.size == before {
			return pass, culprits
		}
	}
}

// pass looks at the pod until nothing more is to be added. The templates that it names make
// that impossible, and why.
func (s *settling) pass(leftOut map[string]string) (culprits map[string]string) {
	p := &s.req.Scratch.pass
	*p = pass{Result: s.r}
	for range maxRounds {
		run := s.newRun(s.req, s.r.pod)
		run.leftOut = leftOut
		decisions := s.req.Scratch.decisions
		if s.r.Decisions != nil {
			decisions = make([]Decision, len(decisions))
		}
		if s.looks++; s.looks > maxLooks && len(leftOut) < len(s.templates) {
			return p.blame(p.last, neverSettles)
		}
		if run.decide(decisions); s.req.gone() {
			return nil
		}
		if s.r.Decisions == nil {
			s.r.Findings = run.findings()
		}
		p.take(decisions)
		if !run.added { // by now
			return p.faulty()
		}
		if s.r.size = s.r.pod.AddedSize(); s.r.size > maxPatch {
			return p.blame(p.last, fmt.Sprintf("what it adds makes the pod larger than the API server takes (%d bytes)", s.r.size))
		}
		if !s.lookAgain(run) {
			return nil
		}
	}
	return p.blame(p.last, neverSettles)
}

// pass is what the looks of one pass found.
type pass struct {
	*Result
	last []Decision
	old  []bool // the templates that an earlier pass injected
	adds []bool // those that earlier looks of this pass injected
	were []bool // those of which everything was in the pod before, as it must be
}

// take takes the decisions of a look. What an earlier one injected stays injected.
func (p *pass) take(decisions []Decision) {
	first := p.last
	p.last = decisions
	switch {
	case p.Decisions == nil:
		p.Decisions = decisions
		return
	case first == nil:
		p.old = flags(p.Decisions, (*Decision).isInjected)
	case p.were == nil:
		p.were = flags(first, (*Decision).isRight)
		fallthrough
	default:
		p.adds = flags(p.Decisions, (*Decision).isInjected)
	}
	for i := range p.Decisions {
		if d := &p.Decisions[i]; d.Code != CodeInjected {
			*d = decisions[i]
		} else {
			d.Added = append(d.Added, decisions[i].Added...)
		}
	}
}

func flags(decisions []Decision, is func(*Decision) bool) []bool {
	all := make([]bool, len(decisions))
	for i := range decisions {
		all[i] = is(&decisions[i])
	}
	return all
}

func (d *Decision) isInjected() bool { return d.Code == CodeInjected }

// isRight reports whether everything of the template is in the pod, as it must be.
func (d *Decision) isRight() bool { return d.Code == CodePresent && len(d.faults()) == 0 }

// blame leaves out the templates among those decisions that add something since this pass.
func (p *pass) blame(decisions []Decision, why string) map[string]string {
	culprits := map[string]string{}
	for i := range decisions {
		if d := &decisions[i]; d.isInjected() && (p.old == nil || !p.old[i]) {
			culprits[d.Template] = why
		}
	}
	if len(culprits) == 0 && len(decisions) > 0 && &decisions[0] != &p.Decisions[0] {
		return p.blame(p.Decisions, why) // earlier ones add more because of later ones
	}
	return culprits
}

// faulty leaves out the templates that the validating webhook would find fault with in the pod
// as it is by now: what was added has changed what their expressions give. If that is a template
// that was there before, it is the others' fault.
func (p *pass) faulty() map[string]string {
	if p.were == nil {
		return nil // nothing was added
	}
	culprits := map[string]string{}
	for i := range p.were {
		found := p.last[i].faults()
		switch name := p.last[i].Template; {
		case len(found) == 0:
		case p.were[i] || p.old != nil && p.old[i]:
			return p.blame(p.Decisions, fmt.Sprintf("the template %s reads what it adds, and then %s", name, found[0].fault()))
		case p.adds[i]:
			culprits[name] = "its expressions read what is added, and then " + found[0].fault()
		}
	}
	return culprits
}

// fault says what is wrong, without advice about others.
func (f *Finding) fault() string {
	if f.Code == CodeAltered {
		return fmt.Sprintf("%s is %s and has to be %s", schema.Where(f.Path), orNothing(f.Found), orNothing(f.Expected))
	}
	return f.Message
}

func orNothing(value string) string {
	if value == "" {
		return "absent"
	}
	return Brief(value)
}

// lookAgain says whether what was added could change what a template sees: then a
// second admission of the same pod must not find what this one left out.
func (s *settling) lookAgain(run *run) bool {
	if slices.ContainsFunc(run.candidates, func(c *candidate) bool { return c.decision.Code == CodeConflict || c.decision.Code == CodeRenderFailed }) {
		return true
	}
	view, containers := run.view()
	return containers != run.shown || slices.ContainsFunc(s.reads, func(r read) bool { return r.addedIn(view) })
}
