// SPDX-License-Identifier: Apache-2.0

// Package status compares all pods of a cluster with the templates, and counts them by
// namespace, template and owner. Its memory use grows with the number of these, not
// with the number of pods.
package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/inject/workloads"
)

// Count counts the pods of one namespace.
type Count struct {
	injector *inject.Injector
	scope    Scope
	pods     Tally
	byName   map[string]*Tally // tally of each template
	owners   map[Owner]*group
	intact   map[string]bool     // templates that a pod was injected with and still has
	mistaken int                 // pods that request unknown templates or parameters
	notes    []string            // notes about the namespace
	failing  []Failing           // owners that cannot create their pods
	seen     map[sight]*findings // of one pod for all that are alike
}

// sight is everything that decides what is found out about a pod. Pods with equal sights have equal findings.
type sight struct {
	like                  rollout.Likeness
	undated, early, older bool // whether the pod has no time of creation, or is older than the times in [explain.Past]
}

// findings are what was found out about a pod.
type findings struct {
	states   []stateOf
	reasons  []explain.Reason
	mistakes []Mistake
	worst    explain.State
	injected bool
}

// stateOf is the state of a pod for a template.
type stateOf struct {
	template string
	state    explain.State
	injected bool
}

// NewCount returns a Count without pods.
func NewCount(injector *inject.Injector, scope Scope) *Count {
	return &Count{injector: injector.For(scope.Namespace.Name), scope: scope, byName: map[string]*Tally{}, owners: map[Owner]*group{}, intact: map[string]bool{}, seen: map[sight]*findings{}}
}

// Pods returns the number of counted pods.
func (c *Count) Pods() int { return c.pods.Pods }

// Missing returns the number of counted pods that should have a template, by its ID, and lack it.
func (c *Count) Missing(template string) int { return c.templateTally(template).Missing }

// Add counts a pod. It returns an error if the pod is not valid JSON.
func (c *Count) Add(text []byte) error {
	like, err := rollout.LikenessOf(text)
	if err != nil {
		return err
	}
	return c.AddLike(text, like)
}

// AddLike is [Count.Add] with the pod's likeness, which the caller knows already.
func (c *Count) AddLike(text []byte, like rollout.Likeness) error {
	p := &pod{}
	if err := json.Unmarshal(text, p); err != nil {
		return fmt.Errorf("the pod is not JSON: %w", err)
	}
	if !p.isCounted() {
		return nil
	}
	created, g := p.Metadata.CreationTimestamp.Time, c.groupOf(p)
	key := sight{like, created.IsZero(), created.Before(c.scope.Installed), created.Before(c.scope.OptedIn)}
	if f := c.seen[key]; f != nil {
		c.addFindings(g, f, p.Metadata.Name)
		return nil
	}
	f, err := c.findOut(p, g, text)
	if err != nil {
		return err
	}
	if len(c.seen) < rollout.MaxLikenesses {
		c.seen[key] = f
	}
	c.addFindings(g, f, p.Metadata.Name)
	return nil
}

// addFindings counts a pod with these findings.
func (c *Count) addFindings(g *group, f *findings, name string) {
	for _, s := range f.states {
		c.templateTally(s.template).addPod(s.state, s.injected)
		g.addPod(s.template, s.state, s.injected)
	}
	for _, r := range f.reasons {
		g.addReason(r)
	}
	for _, m := range f.mistakes {
		g.addMistake(m)
	}
	if len(f.mistakes) > 0 {
		c.mistaken++
	}
	if f.worst == explain.NotWanted {
		g.unwanted = name
	}
	c.pods.addPod(f.worst, f.injected)
	g.pods.addPod(f.worst, f.injected)
}

// findOut inspects the first of the pods that are alike. It sets what is true for all of them in the Count and the group, and returns
// what is counted for each of them.
func (c *Count) findOut(p *pod, g *group, text []byte) (*findings, error) {
	req := inject.Request{Operation: "CREATE", Namespace: c.scope.Namespace, Object: text, Detail: true}
	notCalled := ""
	if !c.scope.Unknown {
		req.OptedIn, notCalled = c.callsPillion(text)
	}
	result, err := c.injector.Inject(req)
	if err != nil {
		return nil, err
	}
	f := &findings{}
	v := view{pod: p, scope: &c.scope, result: result, notCalled: notCalled}
	worst, injected, differs := explain.NotWanted, false, false // differs: whether the pod has a reason that no other pod had
	evidence := explain.EvidenceOf(text)
	evidence.Without(c.injector.Set(), result.Decisions)
	v.causes = explain.Causes{Past: c.scope.Past, Created: p.Metadata.CreationTimestamp.Time, Injected: len(evidence.InjectedBy) > 0, NotCalled: notCalled, Result: result}
	for i, t := range c.injector.Set().Templates {
		d := &result.Decisions[i]
		by := evidence.InjectedBy[d.Template]
		state := evidence.State(t, d)
		if t.ReadsRequest() {
			d.Code = inject.CodePresent // what would happen today is unknown
		}
		delete(evidence.InjectedBy, d.Template)
		f.states = append(f.states, stateOf{t.ID(), state, isInjected(state)})
		if state != explain.Current && state != explain.NotWanted {
			r := v.whyNotCurrent(d, by, state)
			f.reasons = append(f.reasons, r)
			differs = g.isNewReason(&r) && state != explain.Missing || differs
		}
		g.wrong = g.wrong || !v.isNewPodRight(d, state)
		if by != "" && (state == explain.Current || state == explain.Outdated) {
			c.intact[d.Template] = true
		}
		g.changed = g.changed || by != "" && (state == explain.Altered || state == explain.Missing)
		worst, injected = worseState(worst, state), injected || isInjected(state)
	}
	var notes []string
	f.mistakes, notes = v.findMistakes()
	if len(notes) > len(c.notes) { // every pod gives the same notes, except that the engine limits their number
		c.notes = notes
	}
	for _, name := range sortedKeys(evidence.InjectedBy) {
		state := explain.Outdated
		if c.scope.Incomplete { // the template may exist
			state = explain.Current
		} else {
			r := v.removedReason(name)
			f.reasons = append(f.reasons, r)
			differs = g.isNewReason(&r) || differs
		}
		f.states = append(f.states, stateOf{name, state, true})
		worst, injected = worseState(worst, state), true
	}
	if differs && c.scope.Plans {
		g.examples = append(g.examples, text)
	}
	f.worst, f.injected = worst, injected
	return f, nil
}

// callsPillion reports whether the API server would call Pillion for the pod today, and the reason
// if not.
func (c *Count) callsPillion(text []byte) (called bool, why string) {
	return explain.Calls(c.scope.Entries, c.scope.Namespace.Labels, text)
}

func (c *Count) templateTally(name string) *Tally { return tallyFor(c.byName, name) }

func (c *Count) groupOf(p *pod) *group {
	o := p.owner()
	g := c.owners[o]
	if g == nil {
		g = &group{byName: map[string]*Tally{}, hold: "its new pods are unknown"}
		c.owners[o] = g
	}
	if maker, ok := workloads.MakerOf(o.Name, func(key string) string { return p.Metadata.Labels[key] }); ok && o.Kind == "ReplicaSet" && maker.Kind == "Deployment" {
		g.deployment = maker.Name
	}
	return g
}

// ControllerNames returns the names of the owners of a kind.
func (c *Count) ControllerNames(kind string) []string {
	return c.ownerNames(func(o Owner, _ *group) bool { return o.Kind == kind })
}

// ownerNames returns the sorted names of the owners that are selected.
func (c *Count) ownerNames(selected func(Owner, *group) bool) []string {
	var names []string
	for o, g := range c.owners {
		if selected(o, g) {
			names = append(names, o.Name)
		}
	}
	slices.Sort(names)
	return names
}

// ReplaceOwners replaces owners of a kind, for example ReplicaSets, with their own owners, which by has by the name.
func (c *Count) ReplaceOwners(kind string, by map[string]Owner) {
	for _, o := range c.sortedOwners() {
		if to, ok := by[o.Name]; ok && o.Kind == kind {
			c.moveGroup(o, to)
		}
	}
}

// GuessDeployments is [Count.ReplaceOwners] for ReplicaSets that cannot be read. It finds the Deployments by the names of the
// ReplicaSets, which consist of the Deployment's name and the label pod-template-hash.
func (c *Count) GuessDeployments() {
	for _, o := range c.sortedOwners() {
		if name := c.owners[o].deployment; name != "" {
			c.moveGroup(o, Owner{"apps/v1", "Deployment", name})
		}
	}
}

func (c *Count) sortedOwners() []Owner { return slices.SortedFunc(maps.Keys(c.owners), compareOwners) }

func (c *Count) moveGroup(from, to Owner) {
	g := c.owners[from]
	delete(c.owners, from)
	g.deployment = ""
	if there := c.owners[to]; there != nil {
		there.mergeGroup(g)
		return
	}
	c.owners[to] = g
}
