// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// MaxSets is how many sets of templates a [Judge] goes by, the one in use among them.
const MaxSets = 8

// Judge says whether final pods are right. It is immutable and may be shared.
//
// While templates change, a pod may have been injected by another set than the
// one in use here: by this replica a moment ago, or by one that has a newer or
// older set. Two rules keep a good pod from being refused then:
//
//   - Sets that were superseded a moment ago still count: a pod that is right by
//     one of them is right. Who keeps them must drop them when no replica can
//     have them in use any more.
//   - Where the pod is right by none of them, but another replica may know a set
//     by which it is, the verdict is not final ([Verdict.Doubt]): another replica
//     is to be asked.
//
// Neither makes an "injected" annotation worth forging. It has no say in whether
// the pod is right: by each of these sets every pod of this moment may be. It only
// chooses whose findings are told. One that names a revision that nobody knows
// earns the pod a second look, not a better one, and no replica lets it pass.
type Judge struct {
	sets    []*Injector // the one in use first, then the superseded ones, newest first
	settled bool
}

// NewJudge makes a Judge of the injector in use and those that it superseded a
// moment ago, newest first. Settled says that by now no other replica can have an
// older set than this one.
func NewJudge(inUse *Injector, superseded []*Injector, settled bool) *Judge {
	all := append([]*Injector{inUse}, superseded...)
	return &Judge{sets: all[:min(len(all), MaxSets)], settled: settled}
}

// Verdict is what is to be said of a final pod.
type Verdict struct {
	*Result
	Set    string    // revision of the set of templates by which the pod was judged
	Judged []Finding // those that deny come first
	Denied bool
	// Doubt says why another replica may know a set by which the pod is right; ""
	// where the denial is final.
	Doubt string
}

// Judge judges a final pod. The error says what is wrong with its JSON.
func (j *Judge) Judge(req Request) (*Verdict, error) {
	// What is missing of one template must not hide behind what another would add.
	req.alone = true
	var err error
	if req.Pod, err = req.parse(); err != nil {
		return nil, err
	}
	var denial *Verdict // by the set that knows most of the revisions that the pod names
	foreign := 0
	for _, injector := range j.sets {
		if denial != nil {
			req.Scratch = nil // has the denial in it
		}
		v, err := injector.judge(req)
		if err != nil || !v.Denied {
			return v, err
		}
		if n := injector.foreign(revisions(req.Pod)); denial == nil || n < foreign {
			denial, foreign = v, n
		}
	}
	switch {
	case foreign > 0:
		denial.Doubt = "not sure: the pod says that it was injected by a revision that is not known here"
	case !j.settled && denial.absent():
		denial.Doubt = "not sure: templates have just changed, and another replica may have older ones"
	}
	return denial, nil
}

// Word is what became of the pod.
func (v *Verdict) Word() string {
	switch {
	case v.Doubt != "":
		return "doubted"
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

// absent says whether all that denies the pod is that templates were never injected.
func (v *Verdict) absent() bool {
	for i := range v.Decisions {
		d := &v.Decisions[i]
		if d.Mode == templates.Deny && !d.Absent && slices.ContainsFunc(v.Judged, func(f Finding) bool { return f.Template == d.Template }) {
			return false
		}
	}
	return true
}

func (i *Injector) judge(req Request) (*Verdict, error) {
	r, err := i.Inject(req)
	if err != nil {
		return nil, err
	}
	v := &Verdict{Result: r, Set: i.set.Revision, Judged: r.Check()}
	v.Denied = slices.ContainsFunc(v.Judged, func(f Finding) bool { return f.Mode == templates.Deny })
	return v, nil
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
