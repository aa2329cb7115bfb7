// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"maps"
	"slices"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// MaxSets is the maximum number of sets of templates in a [Judge], including the one in use.
const MaxSets = 8

// Judge judges final pods. It is immutable and safe for concurrent use.
//
// While templates change, the set of templates that injected a pod may differ from the set in use
// here. Two rules prevent that correct pods are denied:
//
//   - A pod is correct if it is correct by a set that was in use here a moment ago. Such
//     a set excuses only what its own templates injected. A template with mode Deny that
//     this set does not inject is enforced at once. The owner of the Judge drops old sets when no
//     replica can use them any more.
//   - If the pod is wrong by all of these sets, another replica may still have a newer or
//     older set by which it is correct. The denial is then not certain ([Verdict.Doubt]),
//     because the API server may call another replica.
//
// A pod is also correct if it is correct with the labels and annotations that its namespace and its
// ServiceAccount had a moment ago. If a template reads the ServiceAccount, a denial is in doubt, because another replica
// may know a newer ServiceAccount. A newer namespace causes no doubt: most templates read the namespace, so
// each denial would be in doubt.
//
// Forging an "injected" annotation gains nothing. It never makes a pod correct. It only selects the
// set whose findings are reported, and causes a few more calls.
type Judge struct {
	sets    []*Injector // the set in use first, then superseded sets, newest first
	settled bool        // no other replica has an older set
	lenient bool        // see Lenient
	tier    tier        // which templates it judges
	views   []*Injector // the sets with the templates of both tiers, if it judges only one tier
}

// NewJudge returns a Judge for the injector in use and the injectors that it superseded a moment
// ago, newest first. Settled reports that no other replica can have an older set than this one.
//
// The Judge denies pods that the mutating webhook should have injected and did not, because it was
// not called or did not answer. It does so whatever the template's mode is.
func NewJudge(inUse *Injector, superseded []*Injector, settled bool) *Judge {
	all := append([]*Injector{inUse}, superseded...)
	return &Judge{sets: all[:min(len(all), MaxSets)], settled: settled}
}

// Lenient returns a Judge that follows the template's mode also for pods that the mutating webhook should have injected and did not.
func (j *Judge) Lenient() *Judge {
	lenient := *j
	lenient.lenient = true
	return &lenient
}

// Verdict is the result for a final pod.
type Verdict struct {
	*Result
	Set    string    // revision of the set that judged the pod
	Judged []Finding // findings that deny come first
	Denied bool
	// Doubt reports whether the denied pod may be correct by the templates of another replica.
	// Its templates may be newer, if the pod names a revision that is unknown here. They may also be older, and
	// lack the templates that the pod lacks.
	Doubt bool
}

// Judge judges a final pod. It returns an error if the pod's JSON is invalid.
func (j *Judge) Judge(req Request) (*Verdict, error) {
	j = j.forNamespace(req.Namespace.Name)
	if slices.ContainsFunc(j.sets, func(i *Injector) bool { return i.cluster != nil }) {
		return j.judgeTenant(req)
	}
	return j.judgeTier(req)
}

// judgeTenant judges a final pod by each tier on its own. Both must allow it.
func (j *Judge) judgeTenant(req Request) (*Verdict, error) {
	cluster, own := *j, *j
	cluster.tier, own.tier = clusterTier, ownTier
	cluster.views, own.views = j.sets, j.sets
	cluster.sets = make([]*Injector, len(j.sets))
	for k, i := range j.sets {
		if cluster.sets[k] = i; i.cluster != nil {
			cluster.sets[k] = i.cluster
		}
	}
	pod, err := req.parsePod()
	if err != nil {
		return nil, err
	}
	second := req
	second.Object, second.Pod, second.Scratch = pod.AppendWithAdditions(nil), nil, nil
	byCluster, err := cluster.judgeTier(req)
	if err != nil {
		return nil, err
	}
	byOwn, err := own.judgeTier(second)
	if err != nil {
		return nil, err
	}
	return joinVerdicts(byCluster, byOwn), nil
}

// joinVerdicts combines the verdict by the templates of the cluster and the one by those of the namespace.
func joinVerdicts(cluster, own *Verdict) *Verdict {
	both := &Verdict{
		Result: &Result{Pod: cluster.Pod, Decisions: append(slices.Clone(cluster.Decisions), own.Decisions...), Findings: own.Findings, pod: cluster.pod, size: cluster.size + own.size},
		Set:    own.Set, Judged: append(slices.Clone(cluster.Judged), own.Judged...), Denied: cluster.Denied || own.Denied,
	}
	both.Doubt = both.Denied && (cluster.Doubt || !cluster.Denied) && (own.Doubt || !own.Denied)
	sortFindings(both.Judged)
	return both
}

// ignoresTemplate reports whether a template is not of the tier that is judged, so that its record in the pod says nothing about this
// tier. A template that belongs to the cluster in any of the sets counts as one of the cluster.
func (j *Judge) ignoresTemplate(template string) bool {
	found := bothTiers
	for _, i := range j.views {
		switch t := i.byName[template]; {
		case t == nil:
		case t.Namespace == "":
			return j.tier == ownTier
		default:
			found = ownTier
		}
	}
	return found == ownTier && j.tier == clusterTier
}

// judgeTier judges a final pod by one tier of templates.
func (j *Judge) judgeTier(req Request) (*Verdict, error) {
	req.tier = j.tier
	// Additions of one template must not hide what is missing of another.
	req.alone = true
	var err error
	if req.Pod, err = req.parsePod(); err != nil {
		return nil, err
	}
	req.account = j.accountOf(&req)
	var pod []byte // kept, because judgeState adds to req.Pod
	if req.Namespace.Before != nil || req.account != nil && req.account.Before != nil {
		pod = req.Pod.AppendWithAdditions(nil)
	}
	now, err := j.judgeState(req)
	if err != nil || !now.Denied {
		return now, err
	}
	for old := range req.formerStates {
		if old.Pod, err = jsontree.Parse(pod); err != nil {
			return nil, err
		}
		v, err := j.judgeState(old)
		if err != nil {
			return nil, err
		}
		if !v.Denied {
			return v, nil
		}
	}
	if req.account != nil && req.account.Known {
		now.Doubt = now.Doubt || j.doubtsAccount(now)
	}
	return now, nil
}

// forNamespace returns the Judge for the pods of one namespace.
func (j *Judge) forNamespace(namespace string) *Judge {
	if !slices.ContainsFunc(j.sets, func(i *Injector) bool { return i.views != nil }) {
		return j
	}
	own := *j
	own.sets = make([]*Injector, len(j.sets))
	for k, i := range j.sets {
		own.sets[k] = i.For(namespace)
	}
	return &own
}

// maxBefore is the maximum number of former states that a pod is judged by.
const maxBefore = 6

// formerStates yields the request with what the namespace and the ServiceAccount were a moment ago.
func (r *Request) formerStates(yield func(Request) bool) {
	room := maxBefore
	for ns := &r.Namespace; ns != nil; ns = ns.Before {
		for account := r.account; ; account = account.Before {
			old := *r
			old.Namespace, old.account, old.Scratch = *ns, account, nil // the first verdict uses its memory
			if isNow := ns == &r.Namespace && account == r.account; !isNow {
				if room--; room < 0 || !yield(old) {
					return
				}
			}
			if account == nil || account.Before == nil {
				break
			}
		}
	}
}

// accountOf returns what is known about the pod's ServiceAccount, or nil if no set reads it.
func (j *Judge) accountOf(req *Request) *request.ServiceAccount {
	for _, i := range j.sets {
		if account := i.accountOf(&req.Namespace, req.Pod); account != nil {
			return account
		}
	}
	return nil
}

// doubtsAccount reports whether the pod may be denied because another replica knows a newer
// ServiceAccount.
func (j *Judge) doubtsAccount(v *Verdict) bool {
	return slices.ContainsFunc(v.Judged, func(f Finding) bool {
		t := j.sets[0].byName[f.Template]
		return f.Mode == v1alpha1.Deny && t != nil && t.ReadsServiceAccount()
	})
}

// judgeState judges a pod by all sets, with one state of its namespace and its ServiceAccount. If all sets deny it, the denial is
// that of the set that has most of the revisions that the pod names.
func (j *Judge) judgeState(req Request) (*Verdict, error) {
	now, err := j.judgeBySet(j.sets[0], req)
	if err != nil || !now.Denied {
		return now, err
	}
	recorded := RecordedRevisions(req.Pod)
	maps.DeleteFunc(recorded, func(template, _ string) bool { return j.ignoresTemplate(template) })
	denial, by, unknown := now, j.sets[0], j.sets[0].countUnknownRevisions(recorded)
	for _, older := range j.sets[1:] {
		req.Scratch = nil // now uses its memory
		v, err := j.judgeBySet(older, req)
		if err != nil {
			return nil, err
		}
		if v.enforceFindings(now, j.sets[0]); !v.Denied {
			return v, nil
		}
		if n := older.countUnknownRevisions(recorded); n < unknown {
			denial, by, unknown = v, older, n
		}
	}
	if denial.isAbsent() {
		if err := by.decideAgain(req, denial); err != nil {
			return nil, err
		}
		if denial.Judged = denial.checkFinalPod(!j.lenient); denial != now {
			denial.enforceFindings(now, j.sets[0])
		}
		denial.Denied = hasDenial(denial.Judged)
	}
	denial.Doubt = denial.Denied && (j.namesUnknown(recorded) || !j.settled && denial.deniesOnlyAbsent())
	return denial, nil
}

// decideAgain replaces the decisions about absent templates that the mutating webhook does not
// inject into this pod. Some problems appear only together with the other templates and after
// several rounds: additions that never end or are too large. It adds to req.Pod, so the caller must
// not use that pod afterwards.
func (i *Injector) decideAgain(req Request, v *Verdict) error {
	req.alone, req.Scratch = false, nil
	own := req.tier == ownTier
	if own {
		req.tier = bothTiers
	}
	r, err := i.Inject(req)
	if err != nil {
		return err
	}
	if own {
		r.Decisions = r.Decisions[i.countClusterTemplates():]
	}
	for k := range v.Decisions {
		switch was, now := &v.Decisions[k], &r.Decisions[k]; {
		case was.Absent && now.Code != CodeInjected:
			*was = *now
		case was.Code == CodeReplaced && now.Code != CodeReplaced: // the other template could not be injected
			now.Absent = now.Code == CodeInjected
			*was = *now
		}
	}
	return nil
}

// judgeBySet judges a pod by one set.
func (j *Judge) judgeBySet(i *Injector, req Request) (*Verdict, error) {
	r, err := i.Inject(req)
	if err != nil {
		return nil, err
	}
	if j.tier == ownTier {
		r.Decisions = r.Decisions[i.countClusterTemplates():]
	}
	v := &Verdict{Result: r, Set: i.set.Revision, Judged: r.checkFinalPod(!j.lenient)}
	v.Denied = hasDenial(v.Judged)
	return v, nil
}

func hasDenial(all []Finding) bool {
	return slices.ContainsFunc(all, func(f Finding) bool { return f.Mode == v1alpha1.Deny })
}

// enforceFindings completes the verdict of a superseded set. Now is the verdict of the set in use. It adds the findings of the set in
// use that the superseded set cannot excuse, about templates with mode Deny that the superseded set does not inject. It removes
// warnings about names of templates that only the superseded set does not know.
func (v *Verdict) enforceFindings(now *Verdict, inUse *Injector) {
	judged := slices.DeleteFunc(v.Judged, func(f Finding) bool { return f.unknown != "" && inUse.byName[f.unknown] != nil })
	for _, f := range now.Judged {
		if f.Mode == v1alpha1.Deny && inUse.modeOf(f.Template) == v1alpha1.Deny && !v.hasTemplate(f.Template) {
			judged = append(judged, f)
		}
	}
	sortFindings(judged)
	v.Judged, v.Denied = judged, hasDenial(judged)
}

// hasTemplate reports whether the set injects that template into the pod, or another one in its place.
func (v *Verdict) hasTemplate(template string) bool {
	return slices.ContainsFunc(v.Decisions, func(d Decision) bool {
		return d.Template == template && (d.Code.Succeeded() || d.Code == CodeReplaced)
	})
}

// modeOf returns the mode of a template, or Warn if there is no such template.
func (i *Injector) modeOf(template string) v1alpha1.ValidateMode {
	if t := i.byName[template]; t != nil {
		return t.Spec.Validate.Mode
	}
	return v1alpha1.Warn
}

// namesUnknown reports whether the pod names a revision that no set of the Judge has.
func (j *Judge) namesUnknown(recorded map[string]string) bool {
	for template := range recorded {
		if !slices.ContainsFunc(j.sets, func(i *Injector) bool { return i.knowsRevision(recorded, template) }) {
			return true
		}
	}
	return false
}

// knowsRevision reports whether this set has the revision of a template that a pod names. If a canary took the place of the template,
// the pod names the canary's revision for both.
func (i *Injector) knowsRevision(recorded map[string]string, template string) bool {
	t := i.byName[template]
	return t != nil && (t.Revision == recorded[template] ||
		slices.ContainsFunc(t.canaries, func(c *loaded) bool {
			return c.Revision == recorded[template] && recorded[c.Name] == recorded[template]
		}))
}

// CreateAgain reports whether the same pod may be allowed if it is created again.
func (v *Verdict) CreateAgain() bool {
	return v.Denied && (v.Doubt || v.isAbsent())
}

// isAbsent reports whether the mutating webhook seems not to have been called.
func (v *Verdict) isAbsent() bool {
	return slices.ContainsFunc(v.Decisions, func(d Decision) bool { return d.Absent })
}

// deniesOnlyAbsent reports whether the pod is denied only because it has nothing of some templates.
func (v *Verdict) deniesOnlyAbsent() bool {
	return !slices.ContainsFunc(v.Judged, func(f Finding) bool {
		return f.Mode == v1alpha1.Deny && !slices.ContainsFunc(v.Decisions, func(d Decision) bool { return d.Template == f.Template && d.Absent })
	})
}

// Word returns the verdict as one word.
func (v *Verdict) Word() string {
	switch {
	case v.Denied:
		return "denied"
	case len(v.Judged) > 0:
		return "warned"
	}
	return "allowed"
}

// AppendAudit appends the audit annotations: the findings by template, and the verdict. A finding
// about no template has its code as the key, which is never a template's name.
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

// countUnknownRevisions returns the number of these revisions that are not in this set.
func (i *Injector) countUnknownRevisions(recorded map[string]string) int {
	n := len(recorded)
	for template := range recorded {
		if i.knowsRevision(recorded, template) {
			n--
		}
	}
	return n
}
