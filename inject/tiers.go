// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Tenants write templates of their namespace. Such a template must not change what the templates of the cluster do. For the
// templates of the cluster, what it adds is as if the tenant had written it into the pod: otherwise a tenant could hide a container
// from a template that hardens all containers.
//
// So there are two tiers. The templates of the cluster come first and know nothing of the templates of the namespace. Then the
// templates of the namespace add to the pod, and the templates of the cluster decide about the result. If they would now do
// something else than before, except for additions to the new containers, the templates of the namespace that cause it are left
// out. This is one cycle. Cycles are repeated until one adds nothing.

// maxCycles is the maximum number of cycles for one pod. One or two are enough unless a template of the namespace depends on
// another one being left out.
const maxCycles = 8

// maxTenantRounds is the maximum number of rounds for the templates of a pod's namespace, see [maxRoundsPerPod]. Each template may be
// tried alone, so without this limit a tenant could make the work as long as the caller waits.
const maxTenantRounds = 4 * maxRoundsPerPod

const tooManyRounds = "the templates of the namespace change what those of the cluster do in too many ways; use fewer of them, or try them one at a time"

// mostCopied is the maximum number of JSON values in a pod to which templates of a namespace may add. A usual pod has a few hundred.
// Each attempt copies the pod, so this bounds the memory that a tenant can make the webhook use.
const mostCopied = 10_000

// tenant is the work on one pod by both tiers.
type tenant struct {
	injector     *Injector
	request      requestFacts
	nodes        *jsontree.Arena
	cluster, own fixedPointSearch // for the templates of the cluster, and of the namespace

	result            Result          // of all cycles so far
	clusterCount      int             // the number of templates of the cluster, which come first
	clusterContainers map[string]bool // names of the containers that templates of the cluster added

	contributed []candidate // what templates have added to result.pod, see owners

	// What the templates of the cluster decide about result.pod, and what they want it to have. Before is nil if it is not known.
	before       []Decision
	wantedBefore []wanted

	rounds int // so far

	// The last attempt: the pod, what the templates of the cluster decide about it (nil if nothing was added), and whether
	// another attempt would add nothing.
	pod      *jsontree.Node
	after    []Decision
	complete bool
}

// injectTiers adds to the pod until nothing is left to add. A second run begins with the same pod as the last cycle, because the
// templates of the cluster add nothing to that pod. So it leaves out the same templates as the last cycle, and adds nothing either.
func (w *tenant) injectTiers(i *Injector, facts requestFacts, nodes *jsontree.Arena, pod *jsontree.Node) (*Result, error) {
	w.injector, w.request, w.nodes, w.clusterCount = i, facts, nodes, len(i.cluster.templates)
	first := facts
	first.tier, w.cluster.earlier = clusterTier, nil
	if err := w.cluster.reachFixedPoint(i.cluster, first, nodes, pod, parseOriginal(pod)); err != nil {
		return nil, err
	}
	w.cluster.round.rememberAdded()
	w.contributed = slices.Clone(w.cluster.round.contributed)
	start := w.cluster.result
	start.Decisions = append(slices.Clone(start.Decisions), make([]Decision, len(i.templates)-w.clusterCount)...)
	w.result, w.clusterContainers, w.before, w.rounds, w.own.round.spent = start, addedContainers(start.pod), nil, 0, 0
	w.result.Decisions = slices.Clone(start.Decisions)
	if !start.pod.HasAtMost(mostCopied) {
		return w.leaveOut(start, fmt.Sprintf("the pod has more than %d values, which is too many for templates of a namespace", mostCopied))
	}
	for range maxCycles {
		before := w.result.size
		switch err := w.runCycle(); {
		case errors.Is(err, errTooManyRounds):
			return w.leaveOut(start, tooManyRounds)
		case errors.Is(err, errSpendsTooMuch):
			return w.leaveOut(start, spendsTooMuch)
		case err != nil:
			return nil, err
		case w.complete || w.result.size == before:
			return &w.result, nil
		}
	}
	return w.leaveOut(start, addsWithoutEnd)
}

var (
	errTooManyRounds = errors.New("the pod was inspected too often")
	errSpendsTooMuch = errors.New("expressions cost too much")
)

// leaveOut decides that no template of the namespace adds to the pod.
func (w *tenant) leaveOut(start Result, why string) (*Result, error) {
	w.result, w.after, w.pod = start, nil, start.pod // nothing is added, so no copy is needed
	facts := w.request
	facts.tier, facts.denied, facts.copied = ownTier, w.allBut(nil, why), true
	w.own.earlier, w.own.round.spent = w.contributed, 0
	err := w.own.reachFixedPoint(w.injector, facts, w.nodes, start.pod, func() (*jsontree.Node, error) { return start.pod, nil })
	w.acceptAttempt()
	return &w.result, err
}

func addedContainers(pod *jsontree.Node) map[string]bool {
	names := map[string]bool{}
	for _, list := range schema.ContainerLists() {
		items := pod.At("spec", list).Items()
		for i := range items {
			if items[i].IsNew() {
				names[items[i].Get("name").Text()] = true
			}
		}
	}
	return names
}

// addedBy returns the containers that templates of the namespace added to a pod: by name, the template.
func (w *tenant) addedBy(pod *jsontree.Node) map[string]string {
	all := map[string]string{}
	for name := range addedContainers(pod) {
		if w.clusterContainers[name] {
			continue
		}
		for i, t := range w.injector.templates[w.clusterCount:] {
			if all[name] == "" || w.own.result.Decisions[w.clusterCount+i].Code.Succeeded() && t.Brings(name) {
				all[name] = t.Name
			}
		}
	}
	return all
}

// runCycle lets the templates of the namespace add to the pod. If together they change what the templates of the cluster do, it adds
// them to the attempt one after another, and leaves out each that does.
func (w *tenant) runCycle() error {
	why, err := w.tryAdditions(nil)
	if err != nil {
		return err
	}
	if why == "" {
		w.acceptAttempt()
		return nil
	}
	var chosen []string
	denied := map[string]string{}
	for _, name := range w.injectedNames() {
		why, err := w.tryAdditions(w.allBut(append(slices.Clone(chosen), name), why))
		switch {
		case err != nil:
			return err
		case why == "":
			chosen = append(chosen, name)
		default:
			denied[name] = why
		}
	}
	switch again, err := w.tryAdditions(denied); {
	case err != nil:
		return err
	case again != "": // a canary that was left out brought back its base, which was not tried before
		if _, err := w.tryAdditions(w.allBut(chosen, again)); err != nil {
			return err
		}
	}
	w.acceptAttempt()
	return nil
}

// injectedNames returns the names of the templates of the namespace that the last attempt injected.
func (w *tenant) injectedNames() (names []string) {
	for i := range w.own.result.Decisions[w.clusterCount:] {
		if d := &w.own.result.Decisions[w.clusterCount+i]; d.isInjected() {
			names = append(names, d.Template)
		}
	}
	return names
}

// allBut returns all templates of the namespace except some, to be left out.
func (w *tenant) allBut(chosen []string, why string) map[string]string {
	all := map[string]string{}
	for _, t := range w.injector.templates[w.clusterCount:] {
		if !slices.Contains(chosen, t.Name) {
			all[t.Name] = why
		}
	}
	return all
}

// tryAdditions lets the templates of the namespace add to a copy of the pod, and then those of the cluster. It returns why the
// additions must not be used, or "".
func (w *tenant) tryAdditions(denied map[string]string) (why string, err error) {
	switch w.complete = false; {
	case w.rounds > maxTenantRounds:
		return "", errTooManyRounds
	case w.own.round.spent > cel.MaxTotal:
		return "", errSpendsTooMuch
	}
	copied := func() (*jsontree.Node, error) { return new(w.result.pod.Copy()), nil }
	facts := w.request
	facts.tier, facts.denied, facts.copied = ownTier, denied, true
	w.own.earlier = w.contributed
	err, w.after = w.own.reachFixedPoint(w.injector, facts, w.nodes, new(w.result.pod.Copy()), copied), nil
	w.rounds += w.own.rounds
	if w.pod = w.own.result.pod; err != nil || w.own.result.size == w.result.size {
		return "", err
	}
	if w.before == nil {
		if w.before, _, err = w.seenByCluster(w.result.pod, w.contributed); err != nil {
			return "", err
		}
		w.wantedBefore = w.wantedByCluster()
	}
	w.own.round.rememberAdded()
	if w.after, w.pod, err = w.seenByCluster(w.pod, w.own.round.contributed); err != nil {
		return "", err
	}
	for i := range w.after {
		if why := describeChange(&w.before[i], &w.after[i]); why != "" {
			return why, nil
		}
	}
	for i, is := range w.wantedByCluster() {
		if less := is.addsLess(&w.wantedBefore[i], w.injector.schema); less != "" {
			return comesFirst(&w.before[i]) + less, nil
		}
	}
	why, whole, err := w.newFaults()
	w.complete = whole && len(denied) == 0
	return why, err
}

// seenByCluster lets the templates of the cluster add to a copy of a pod to which templates of the namespace have added. It returns
// their decisions and the copy. Contributed has what templates have added to the pod before.
func (w *tenant) seenByCluster(pod *jsontree.Node, contributed []candidate) ([]Decision, *jsontree.Node, error) {
	facts := w.request
	facts.tier, facts.tenantContainers, facts.copied = clusterTier, w.addedBy(pod), true
	w.cluster.earlier = contributed
	copied := func() (*jsontree.Node, error) { return new(pod.Copy()), nil }
	err := w.cluster.reachFixedPoint(w.injector.cluster, facts, w.nodes, new(pod.Copy()), copied)
	w.rounds += w.cluster.rounds
	return slices.Clone(w.cluster.result.Decisions), w.cluster.result.pod, err
}

// wanted is what a template wants a pod to have.
type wanted struct {
	pod  jsontree.Node            // a partial Pod
	apps map[string]jsontree.Node // partial containers, by list and name
}

// wantedByCluster returns what each template of the cluster wanted the pod to have in the last round, by the index of the template. It
// returns nil if that cannot depend on the pod.
func (w *tenant) wantedByCluster() []wanted {
	if len(w.injector.cluster.reads) == 0 {
		return nil
	}
	all := make([]wanted, w.clusterCount)
	for _, c := range w.cluster.round.owners.candidates {
		of := wanted{pod: c.fragment.Copy(), apps: map[string]jsontree.Node{}}
		for i := range c.apps {
			app := &c.apps[i]
			of.apps[app.list+"/"+app.name] = jsontree.Items(slices.Clone(app.fragments)...)
		}
		all[c.t.index] = of
	}
	return all
}

// addsLess returns what a template no longer wants to add, as the end of a sentence such as "not add spec.volumes", or "".
func (is *wanted) addsLess(was *wanted, s *schema.Schema) string {
	if at := missingPlace(&is.pod, &was.pod, s, ""); at != "" {
		return "not add " + schema.Where(at)
	}
	container := s.At("spec").At("containers").Elem
	for _, name := range slices.Sorted(maps.Keys(was.apps)) {
		before, now := was.apps[name], is.apps[name]
		for i := range before.Items() {
			if i >= len(now.Items()) {
				return "add less to " + schema.Where("/spec/"+name)
			}
			if at := missingPlace(&now.Items()[i], &before.Items()[i], container, "/spec/"+name); at != "" {
				return "not add " + schema.Where(at)
			}
		}
	}
	return ""
}

// missingPlace returns the pointer to the first place at which the earlier fragment has a value and the later one has none, or "".
func missingPlace(is, was *jsontree.Node, s *schema.Schema, at string) string {
	for i := range was.Members() {
		m := &was.Members()[i]
		at := at + "/" + jsontree.Escape(m.Name())
		value := is.Get(m.Name())
		if value == nil {
			return at
		}
		if found := missingPlace(value, m, s.At(m.Name()).Schema, at); found != "" {
			return found
		}
	}
	if s.Key == "" {
		return ""
	}
	for i := range was.Items() {
		item := &was.Items()[i]
		at := at + "/" + jsontree.Escape(cmp.Or(item.Get(s.Key).Text(), item.Get(s.Key).String()))
		found := s.Find(is.Items(), item)
		if found < 0 {
			return at
		}
		if found := missingPlace(&is.Items()[found], item, s.Elem, at); found != "" {
			return found
		}
	}
	return ""
}

// describeChange returns a sentence if a template of the cluster would do something else to the pod than before, or "".
func describeChange(was, is *Decision) string {
	first := comesFirst(was)
	switch {
	case is.Code.Succeeded() && !was.Code.Succeeded():
		return first + "be injected too"
	case !is.Code.Succeeded() && is.Code != was.Code:
		return first + "not be injected: " + is.Sentence()
	case is.Code == CodeInjected && is.outside:
		return first + "add something else to the pod"
	}
	return ""
}

func comesFirst(d *Decision) string {
	return fmt.Sprintf("the template %s of the cluster comes first: together with this template, it would ", d.Template)
}

// newFaults returns the first fault that the validating webhook would find in the pod of the last attempt and not in the pod before
// it, or "". None reports whether it would find no fault at all. Then nothing is missing, so another attempt would add nothing.
func (w *tenant) newFaults() (why string, none bool, err error) {
	none = true
	for _, of := range []struct {
		injector *Injector
		tier     tier
	}{{w.injector.cluster, clusterTier}, {w.injector, ownTier}} {
		is, err := w.findFaults(of.injector, of.tier, w.pod)
		if err != nil {
			return "", false, err
		}
		if !slices.ContainsFunc(is, func(found []Finding) bool { return len(found) > 0 }) {
			continue
		}
		none = false
		was, err := w.findFaults(of.injector, of.tier, w.result.pod)
		if err != nil {
			return "", false, err
		}
		for i := range is {
			has := of.tier == clusterTier || w.own.result.Decisions[i].Code.Succeeded() || w.result.Decisions[i].Code.Succeeded()
			if !has {
				continue
			}
			for k := range is[i] {
				if !slices.ContainsFunc(was[i], is[i][k].isLike) {
					return fmt.Sprintf("together with this template, the pod would not be as the template %s has it: %s", of.injector.templates[i].Name, is[i][k].faultText()), false, nil
				}
			}
		}
	}
	return "", none, nil
}

// isLike reports whether two findings are about the same values, perhaps at another place.
func (f *Finding) isLike(other Finding) bool {
	return f.Code == other.Code && f.Expected == other.Expected && f.Found == other.Found
}

// findFaults returns what the validating webhook would find wrong with a pod, by the index of the template.
func (w *tenant) findFaults(i *Injector, tier tier, pod *jsontree.Node) ([][]Finding, error) {
	stored, err := jsontree.Parse(pod.AppendWithAdditions(nil))
	if err != nil {
		return nil, err
	}
	facts := w.request
	facts.tier, facts.alone = tier, true
	facts.file = true // the additions lack the defaults that the API server will write, and expressions must see these
	var judging round
	judging.startPod(i, facts, &jsontree.Arena{})
	judging.beginRound(stored, false)
	decisions := make([]Decision, len(i.templates))
	judging.decideAll(decisions)
	if facts.isGone() {
		return nil, ErrGone
	}
	all := make([][]Finding, len(decisions))
	for k := range decisions {
		if tier == clusterTier || k >= w.clusterCount {
			all[k] = decisions[k].findFaults()
		}
	}
	return all, nil
}

// acceptAttempt uses the result of the last attempt.
func (w *tenant) acceptAttempt() {
	if w.result.Findings == nil {
		w.result.Findings = w.own.result.Findings
	}
	w.result.pod, w.result.size, w.before = w.pod, w.pod.AddedSize(), nil
	w.own.round.rememberAdded()
	if w.contributed = w.own.round.contributed; w.after != nil {
		w.cluster.round.rememberAdded()
		w.contributed = w.cluster.round.contributed // it began with those of the namespace
	}
	w.contributed = slices.Clone(w.contributed)
	for i := range w.own.result.Decisions[w.clusterCount:] {
		w.result.Decisions[w.clusterCount+i].updateBy(&w.own.result.Decisions[w.clusterCount+i])
	}
	for i := range w.after {
		if w.after[i].isInjected() {
			w.result.Decisions[i].updateBy(&w.after[i])
		}
	}
}

// updateBy replaces a decision with a later one about the same pod. If the template was injected before, it stays injected, and the
// later additions and kept places are added.
func (d *Decision) updateBy(later *Decision) {
	if d.Code != CodeInjected {
		*d = *later
		return
	}
	d.Added = append(d.Added, later.Added...)
	d.keepAlso(later.Kept)
}
