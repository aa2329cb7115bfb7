// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// MaxSets is how many sets of templates a [Judge] goes by, the one in use among them.
const MaxSets = 8

// Judge judges final pods. It is immutable and may be shared.
//
// While templates change, the set of templates that injected a pod may differ from
// the set in use here. Two rules keep good pods from being denied then:
//
//   - A pod that is right by a set that was in use here a moment ago is right. Such
//     a set excuses what it injected, not what it never knew: a template with mode
//     Deny that it did not inject is enforced at once. The owner of the Judge drops
//     old sets when no replica can use them any more.
//   - If the pod is wrong by all of these sets, but another replica may have a newer
//     or older set by which it is right, the denial is not certain ([Verdict.Doubt]):
//     the API server may call another replica.
//
// Forging an "injected" annotation gains nothing. It never makes a pod right; it
// only selects the set whose findings are reported, and causes a few more calls.
type Judge struct {
	sets    []*Injector // the set in use first, then superseded sets, newest first
	settled bool
	lenient bool
}

// NewJudge makes a Judge of the injector in use and those that it superseded a
// moment ago, newest first. Settled reports that by now no other replica can have an
// older set than this one.
//
// The Judge denies pods that the mutating webhook should have injected and did not,
// because it was not called or did not answer, whatever the template's mode.
func NewJudge(inUse *Injector, superseded []*Injector, settled bool) *Judge {
	all := append([]*Injector{inUse}, superseded...)
	return &Judge{sets: all[:min(len(all), MaxSets)], settled: settled}
}

// Lenient returns a Judge for which the template's mode counts for those pods too.
func (j *Judge) Lenient() *Judge {
	lenient := *j
	lenient.lenient = true
	return &lenient
}

// Verdict is the result for a final pod.
type Verdict struct {
	*Result
	Set    string    // revision of the set of templates by which the pod was judged
	Judged []Finding // those that deny come first
	Denied bool
	// Doubt reports whether another replica may have templates by which the denied pod
	// is right: newer ones, if the pod names a revision that is not known here, or older
	// ones without what the pod lacks.
	Doubt bool
}

// Judge judges a final pod. The error describes what is wrong with its JSON.
func (j *Judge) Judge(req Request) (*Verdict, error) {
	// What is missing of one template must not hide behind what another would add.
	req.alone = true
	var err error
	if req.Pod, err = req.parse(); err != nil {
		return nil, err
	}
	now, err := j.by(j.sets[0], req)
	if err != nil || !now.Denied {
		return now, err
	}
	said := revisions(req.Pod)
	denial, by, foreign := now, j.sets[0], j.sets[0].foreign(said) // by the set that has most of the revisions that the pod names
	for _, older := range j.sets[1:] {
		req.Scratch = nil // contains now
		v, err := j.by(older, req)
		if err != nil {
			return nil, err
		}
		if v.enforce(now, j.sets[0]); !v.Denied {
			return v, nil
		}
		if n := older.foreign(said); n < foreign {
			denial, by, foreign = v, older, n
		}
	}
	if denial.isAbsent() {
		if err := by.decideAgain(req, denial); err != nil {
			return nil, err
		}
		if denial.Judged = denial.check(!j.lenient); denial != now {
			denial.enforce(now, j.sets[0])
		}
		denial.Denied = denies(denial.Judged)
	}
	denial.Doubt = denial.Denied && (j.namesUnknown(said) || !j.settled && denial.lacks())
	return denial, nil
}

// decideAgain replaces the decisions about absent templates that the mutating webhook
// leaves out of this pod: only beside the other templates, and in more than one round,
// does it find out that something never settles or is too large. It adds to req.Pod,
// which is of no more use then.
func (i *Injector) decideAgain(req Request, v *Verdict) error {
	req.alone, req.Scratch = false, nil
	r, err := i.Inject(req)
	if err != nil {
		return err
	}
	for k := range v.Decisions {
		if v.Decisions[k].Absent && r.Decisions[k].Code != CodeInjected {
			v.Decisions[k] = r.Decisions[k]
		}
	}
	return nil
}

// by judges a pod by one set.
func (j *Judge) by(i *Injector, req Request) (*Verdict, error) {
	r, err := i.Inject(req)
	if err != nil {
		return nil, err
	}
	v := &Verdict{Result: r, Set: i.set.Revision, Judged: r.check(!j.lenient)}
	v.Denied = denies(v.Judged)
	return v, nil
}

func denies(all []Finding) bool {
	return slices.ContainsFunc(all, func(f Finding) bool { return f.Mode == templates.Deny })
}

// enforce adds to the verdict of a superseded set what that set cannot excuse: the
// findings of templates with mode Deny that it did not inject. It removes warnings
// about names that the set in use knows.
func (v *Verdict) enforce(now *Verdict, inUse *Injector) {
	judged := slices.DeleteFunc(v.Judged, func(f Finding) bool { return f.unknown != "" && inUse.byName[f.unknown] != nil })
	for _, f := range now.Judged {
		if f.Mode == templates.Deny && inUse.mode(f.Template) == templates.Deny && !v.has(f.Template) {
			judged = append(judged, f)
		}
	}
	sortFindings(judged)
	v.Judged, v.Denied = judged, denies(judged)
}

// has reports whether the set injects that template into the pod.
func (v *Verdict) has(template string) bool {
	return slices.ContainsFunc(v.Decisions, func(d Decision) bool {
		return d.Template == template && d.Code.Succeeded()
	})
}

func (i *Injector) mode(template string) templates.ValidateMode {
	if t := i.byName[template]; t != nil {
		return t.Spec.Validate.Mode
	}
	return templates.Warn
}

// namesUnknown reports whether the pod names a revision that no set of the Judge has.
func (j *Judge) namesUnknown(said map[string]string) bool {
	for template, revision := range said {
		if !slices.ContainsFunc(j.sets, func(i *Injector) bool {
			t := i.byName[template]
			return t != nil && t.Revision == revision
		}) {
			return true
		}
	}
	return false
}

// CreateAgain reports whether the same pod may be allowed if it is created again.
func (v *Verdict) CreateAgain() bool {
	return v.Denied && (v.Doubt || v.isAbsent())
}

// isAbsent reports whether the mutating webhook seems not to have been called.
func (v *Verdict) isAbsent() bool {
	return slices.ContainsFunc(v.Decisions, func(d Decision) bool { return d.Absent })
}

// lacks reports whether the pod is denied only because it has nothing of some templates.
func (v *Verdict) lacks() bool {
	return !slices.ContainsFunc(v.Judged, func(f Finding) bool {
		return f.Mode == templates.Deny && !slices.ContainsFunc(v.Decisions, func(d Decision) bool { return d.Template == f.Template && d.Absent })
	})
}

// Word is what became of the pod.
func (v *Verdict) Word() string {
	switch {
	case v.Denied:
		return "denied"
	case len(v.Judged) > 0:
		return "warned"
	}
	return "allowed"
}

// AppendAudit appends the audit annotations: the findings by template, and the
// verdict. What is not a template's has a key that no template's name can be.
func (v *Verdict) AppendAudit(notes []Note) []Note {
	for i := range v.Judged {
		f := v.Judged[i]
		key := f.Template
		if key == "" {
			key = string(f.Code)
		}
		f.Template = ""
		notes = addNote(notes, key, f.String())
	}
	return append(notes, Note{"final_verdict", v.Word() + " by the templates of revision " + v.Set})
}

// InjectedBy is what a pod says by which revision of which template it was
// injected; nothing where it cannot be read.
func InjectedBy(pod []byte) map[string]string {
	n, err := tree.Parse(pod)
	if err != nil {
		return nil
	}
	return revisions(n)
}

// revisions are what a pod says by which revision of which template it was injected.
func revisions(pod *tree.Node) map[string]string {
	said := map[string]string{}
	annotations := pod.At("metadata", "annotations").Members()
	for i := range annotations {
		if template, name, ok := templates.SplitAnnotation(annotations[i].Name()); ok && name == templates.AnnotationInjected {
			said[template] = annotations[i].Text()
		}
	}
	return said
}

// foreign is how many of the revisions are not of this set.
func (i *Injector) foreign(said map[string]string) int {
	n := len(said)
	for _, t := range i.set.Templates {
		if revision, ok := said[t.Name]; ok && revision == t.Revision {
			n--
		}
	}
	return n
}
