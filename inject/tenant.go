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

// Templates of a namespace, which tenants write, change nothing about what the templates of the cluster do. For those, what
// a tenant's template adds is as if the tenant had written it into the pod: otherwise a tenant could hide a container
// from a template that hardens all containers.
//
// So there are two tiers. The templates of the cluster come first and know nothing of the others. Then the templates of the
// namespace add to the pod, and those of the cluster see the result. If they would do something else than before, except
// for additions to the new containers, the templates of the namespace that cause it are left out.

// maxCycles is the maximum number of times that the templates of a namespace may add to a pod. One or two are enough for
// templates that do not depend on what the others leave out.
const maxCycles = 8

// maxTenantRounds is the maximum number of rounds for the templates of a pod's namespace, see [maxRoundsPerPod]. Each template may be
// tried alone, so without this limit a tenant could make the work as long as the caller waits.
const maxTenantRounds = 4 * maxRoundsPerPod

const tooManyRounds = "the templates of the namespace change what those of the cluster do in too many ways; use fewer of them, or try them one at a time"

// mostCopied is the maximum number of values of a pod to which templates of a namespace add. A usual pod has a few hundred.
// The work needs several copies of the pod, and memory must not depend on what a tenant sends.
const mostCopied = 10_000

// tenant is the work on one pod by both tiers.
type tenant struct {
	injector     *Injector
	request      requestFacts
	nodes        *jsontree.Arena
	cluster, own fixedPointSearch

	result Result
	count  int             // of the templates of the cluster, which come first
	mine   map[string]bool // names of the containers that they added

	contributed []candidate // what templates have added to it, see owners

	// What the templates of the cluster decide about the pod now, and what they want it to have. Known is nil if that was
	// not asked.
	known  []Decision
	wanted []wanted

	rounds int // so far

	// The last attempt.
	pod   *jsontree.Node
	again []Decision // about the templates of the cluster, or nil if nothing was added
	whole bool       // whether another one would add nothing
}

// injectTiers adds to the pod until nothing is left to add. A second run would begin with the same pod, because the templates
// of the cluster would add nothing. So it would leave out the same templates.
func (w *tenant) injectTiers(i *Injector, facts requestFacts, nodes *jsontree.Arena, pod *jsontree.Node) (*Result, error) {
	w.injector, w.request, w.nodes, w.count = i, facts, nodes, len(i.cluster.templates)
	first := facts
	first.tier, w.cluster.earlier = clusterTier, nil
	if err := w.cluster.reachFixedPoint(i.cluster, first, nodes, pod, parseOriginal(pod)); err != nil {
		return nil, err
	}
	w.cluster.round.rememberAdded()
	w.contributed = slices.Clone(w.cluster.round.contributed)
	start := w.cluster.result
	start.Decisions = append(slices.Clone(start.Decisions), make([]Decision, len(i.templates)-w.count)...)
	w.result, w.mine, w.known, w.rounds, w.own.round.spent = start, addedContainers(start.pod), nil, 0, 0
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
		case w.whole || w.result.size == before:
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
	w.result, w.again, w.pod = start, nil, start.pod // nothing is added, so no copy is needed
	facts := w.request
	facts.tier, facts.denied, facts.copied = ownTier, w.allBut(nil, why), true
	w.own.earlier, w.own.round.spent = w.contributed, 0
	err := w.own.reachFixedPoint(w.injector, facts, w.nodes, start.pod, func() (*jsontree.Node, error) { return start.pod, nil })
	w.acceptAttempt()
	return &w.result, err
}

func addedContainers(pod *jsontree.Node) map[string]bool {
	names := map[string]bool{}
	for _, list := range containerLists() {
		items := pod.At("spec", list).Items()
		for i := range items {
			if items[i].IsNew() {
				names[items[i].Get("name").Text()] = true
			}
		}
	}
	return names
}

// addedBy returns the templates of the namespace by the names of the containers that they added.
func (w *tenant) addedBy(pod *jsontree.Node) map[string]string {
	all := map[string]string{}
	for name := range addedContainers(pod) {
		if w.mine[name] {
			continue
		}
		for i, t := range w.injector.templates[w.count:] {
			if all[name] == "" || w.own.result.Decisions[w.count+i].Code.Succeeded() && t.Brings(name) {
				all[name] = t.Name
			}
		}
	}
	return all
}

// runCycle lets the templates of the namespace add to the pod, without those that change what the templates of the cluster do.
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
	case again != "": // because of one that came in the place of another
		if _, err := w.tryAdditions(w.allBut(chosen, again)); err != nil {
			return err
		}
	}
	w.acceptAttempt()
	return nil
}

// injectedNames returns the names of the templates of the namespace that the last attempt injected.
func (w *tenant) injectedNames() (names []string) {
	for i := range w.own.result.Decisions[w.count:] {
		if d := &w.own.result.Decisions[w.count+i]; d.isInjected() {
			names = append(names, d.Template)
		}
	}
	return names
}

// allBut returns all templates of the namespace except some, to be left out.
func (w *tenant) allBut(chosen []string, why string) map[string]string {
	all := map[string]string{}
	for _, t := range w.injector.templates[w.count:] {
		if !slices.Contains(chosen, t.Name) {
			all[t.Name] = why
		}
	}
	return all
}

// tryAdditions lets the templates of the namespace add to a copy of the pod, and then those of the cluster. It returns why the
// additions must not be used, or "".
func (w *tenant) tryAdditions(denied map[string]string) (why string, err error) {
	switch w.whole = false; {
	case w.rounds > maxTenantRounds:
		return "", errTooManyRounds
	case w.own.round.spent > cel.MaxTotal:
		return "", errSpendsTooMuch
	}
	copied := func() (*jsontree.Node, error) { return new(w.result.pod.Copy()), nil }
	facts := w.request
	facts.tier, facts.denied, facts.copied = ownTier, denied, true
	w.own.earlier = w.contributed
	err, w.again = w.own.reachFixedPoint(w.injector, facts, w.nodes, new(w.result.pod.Copy()), copied), nil
	w.rounds += w.own.rounds
	if w.pod = w.own.result.pod; err != nil || w.own.result.size == w.result.size {
		return "", err
	}
	if w.known == nil {
		if w.known, _, err = w.seenByCluster(w.result.pod, w.contributed); err != nil {
			return "", err
		}
		w.wanted = w.wantedByCluster()
	}
	w.own.round.rememberAdded()
	if w.again, w.pod, err = w.seenByCluster(w.pod, w.own.round.contributed); err != nil {
		return "", err
	}
	for i := range w.again {
		if why := describeChange(&w.known[i], &w.again[i]); why != "" {
			return why, nil
		}
	}
	for i, is := range w.wantedByCluster() {
		if less := is.addsLess(&w.wanted[i], w.injector.schema); less != "" {
			return comesFirst(&w.known[i]) + less, nil
		}
	}
	why, whole, err := w.newFaults()
	w.whole = whole && len(denied) == 0
	return why, err
}

// seenByCluster lets the templates of the cluster add to a copy of a pod to which templates of the namespace have added.
func (w *tenant) seenByCluster(pod *jsontree.Node, contributed []candidate) ([]Decision, *jsontree.Node, error) {
	facts := w.request
	facts.tier, facts.theirs, facts.copied = clusterTier, w.addedBy(pod), true
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

// wantedByCluster returns what each template of the cluster wanted the pod to have when it saw it last. It returns nothing if
// that cannot depend on the pod.
func (w *tenant) wantedByCluster() []wanted {
	if len(w.injector.cluster.reads) == 0 {
		return nil
	}
	all := make([]wanted, w.count)
	for _, c := range w.cluster.round.owners.candidates {
		of := wanted{pod: c.fragment.Copy(), apps: map[string]jsontree.Node{}}
		for i := range c.apps {
			app := &c.apps[i]
			of.apps[app.list+"/"+app.container] = jsontree.Items(slices.Clone(app.fragments)...)
		}
		all[c.t.index] = of
	}
	return all
}

// addsLess returns what is wanted no longer, as "not add" and a place, or "".
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

// missingPlace returns the pointer to a place where a fragment has no value and another one has one, or "".
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

// describeChange returns why a decision about a template of the cluster is another one than before, or "".
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

// newFaults returns what the validating webhook would find wrong with the pod, and did not before, or "". It also reports
// whether it would find nothing at all. Then nothing is missing, so another run would add nothing.
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

// findFaults returns what is wrong with a pod, by template.
func (w *tenant) findFaults(i *Injector, tier tier, pod *jsontree.Node) ([][]Finding, error) {
	stored, err := jsontree.Parse(pod.AppendWithAdditions(nil))
	if err != nil {
		return nil, err
	}
	facts := w.request
	facts.tier, facts.alone = tier, true
	facts.file = true // expressions see what the API server makes of the additions
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
		if tier == clusterTier || k >= w.count {
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
	w.result.pod, w.result.size, w.known = w.pod, w.pod.AddedSize(), nil
	w.own.round.rememberAdded()
	if w.contributed = w.own.round.contributed; w.again != nil {
		w.cluster.round.rememberAdded()
		w.contributed = w.cluster.round.contributed // it began with those of the namespace
	}
	w.contributed = slices.Clone(w.contributed)
	for i := range w.own.result.Decisions[w.count:] {
		w.result.Decisions[w.count+i].updateBy(&w.own.result.Decisions[w.count+i])
	}
	for i := range w.again {
		if w.again[i].isInjected() {
			w.result.Decisions[i].updateBy(&w.again[i])
		}
	}
}

// updateBy updates a decision by a later one about the same pod.
func (d *Decision) updateBy(later *Decision) {
	if d.Code != CodeInjected {
		*d = *later
		return
	}
	d.Added = append(d.Added, later.Added...)
	d.keepAlso(later.Kept)
}
