// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/explain"
	"github.com/pillion-dev/pillion/templates"
)

// Action is what a rollout does with a pod.
type Action string

// The actions.
const (
	// None means that the pod is current, or gets no template.
	None Action = "none"
	// Patch changes the pod in place.
	Patch Action = "in place"
	// Replace needs a new pod.
	Replace Action = "new pod"
	// Leave changes nothing, because a rollout may not or cannot.
	Leave Action = "cannot"
)

// Planner finds out what the running pods of a namespace need.
type Planner struct {
	Injector  *inject.Injector
	Namespace templates.Namespace
	// Called reports whether the API server would call Pillion for a new pod. It is nil if that is
	// unknown.
	Called func(pod []byte) bool
	// Mutated is set if other webhooks or policies may change new pods here. What they add cannot be
	// distinguished from what an older revision of a template added.
	Mutated bool
	// Resizes is set if the API server can resize running pods.
	Resizes bool
}

// Pod is what one running pod needs.
type Pod struct {
	Namespace string
	Name      string
	UID       string
	Labels    map[string]string
	Ready     bool
	State     explain.State
	Action    Action
	Why       string   // one sentence, or "" if nothing is to be said
	Changes   []Change // what Pillion put into the pod and would put there differently now
	Kept      []Kept   // fields that somebody else has changed since
	// Own are the names of the templates' containers in the pod.
	Own []string
	// Records are the annotations to write last, with the revisions.
	Records map[string]string

	doc       object // the pod
	notCalled bool   // the API server would not call Pillion for a new one
}

// Kept is a field of a template's container that others have changed since the pod was created. It
// stays as it is.
type Kept struct {
	Change

	By   string `json:"by,omitempty"` // the field manager
	Sure bool   `json:"-"`            // whether it is certain that By changed it
}

// String returns a sentence.
func (k *Kept) String() string {
	switch {
	case k.By == "":
		return fmt.Sprintf("whether somebody has changed the %s cannot be told, because the pod has no managed fields", k.Change.String())
	case !k.Sure:
		return fmt.Sprintf("whether %q has changed the %s cannot be told", k.By, k.Change.String())
	}
	return fmt.Sprintf("%q has changed the %s, which stays", k.By, k.Change.String())
}

// meta has the fields of a pod that the planner reads.
type meta struct {
	Metadata metav1.ObjectMeta
	Spec     struct{ RestartPolicy corev1.RestartPolicy }
	Status   struct {
		Phase      corev1.PodPhase
		Conditions []corev1.PodCondition
	}
}

// Counts reports whether a rollout considers the pod: it runs, is not being deleted, and is not a
// mirror pod.
func (m *meta) counts() bool {
	_, mirror := m.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirror && m.Metadata.DeletionTimestamp == nil && m.Status.Phase != corev1.PodSucceeded && m.Status.Phase != corev1.PodFailed
}

// errNotAPod is returned for something that is not the JSON of a pod.
var errNotAPod = errors.New("the pod is not JSON")

// Plan returns what a running pod needs. Owner is the object that has created it, with a pod
// template, or nil if that is unknown.
func (p *Planner) Plan(pod, owner []byte) (*Pod, error) {
	m := &meta{}
	if err := json.Unmarshal(pod, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotAPod, err)
	}
	out := newPod(p.Namespace.Name, m)
	if !m.counts() {
		return out, nil
	}
	states, err := p.states(pod)
	if err != nil {
		return nil, err
	}
	out.State = worst(states)
	written := managersOf(m.Metadata.CreationTimestamp.Time, m.Metadata.ManagedFields)
	if (out.State == explain.Current || out.State == explain.NotWanted) && !written.wrote() {
		return out, nil
	}
	if t := p.unknown(states); t != "" {
		return out.leave(explain.ByRequest(t)), nil
	}
	if out.doc, err = decode(pod); err != nil {
		return nil, err
	}
	target, why, err := p.target(pod, owner)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return out.leave(why), nil
	}
	if out.Changes, err = p.changes(pod, target); err != nil {
		return nil, err
	}
	out.Own, out.notCalled = p.own(out.doc), p.Called != nil && !p.Called(target.base)
	out.keep(written)
	return out, p.decide(out)
}

func newPod(namespace string, m *meta) *Pod {
	ready := IsReady(&corev1.Pod{Status: corev1.PodStatus{Conditions: m.Status.Conditions}})
	return &Pod{
		Namespace: namespace, Name: m.Metadata.Name, UID: string(m.Metadata.UID), Labels: m.Metadata.Labels, Ready: ready,
		State: explain.NotWanted, Action: None, Records: map[string]string{},
	}
}

func (o *Pod) leave(why string) *Pod {
	o.Action, o.Why = Leave, why
	return o
}

// target is what the pod would be if it were created now.
type target struct {
	base, pod []byte
	stripped  bool // the base is the running pod
	result    *inject.Result
}

// target computes what the pod would be now. It returns the reason if a new pod would not get what it
// should.
func (p *Planner) target(pod, owner []byte) (t *target, why string, err error) {
	t = &target{}
	var claims []string
	if owner != nil {
		if t.base, claims, err = fromOwner(owner, pod); err != nil {
			return nil, "", err
		}
	}
	if t.base == nil {
		t.stripped = true
		if t.base, err = stripped(pod, p.set()); err != nil {
			return nil, "", err
		}
	}
	t.result, err = p.Injector.Inject(inject.Request{Operation: "CREATE", Namespace: p.Namespace, Object: t.base, OptedIn: p.called(t.base), Claims: claims, Detail: true})
	if err != nil {
		return nil, "", err
	}
	t.pod = t.result.InjectedJSON()
	for i := range t.result.Decisions {
		if d := &t.result.Decisions[i]; d.Code.Failed() {
			return nil, fmt.Sprintf("a new pod could not get %s: %s", d.Template, d.Sentence()), nil
		}
	}
	return t, "", nil
}

func (p *Planner) called(pod []byte) bool { return p.Called != nil && p.Called(pod) }

func (p *Planner) set() []*templates.Template {
	return p.Injector.For(p.Namespace.Name).Set().Templates
}

// states returns the state of a pod for each of its templates.
func (p *Planner) states(pod []byte) (map[string]explain.State, error) {
	r, err := p.Injector.Inject(inject.Request{Operation: "CREATE", Namespace: p.Namespace, Object: pod, OptedIn: p.called(pod), Detail: true})
	if err != nil {
		return nil, err
	}
	evidence, states := explain.EvidenceOf(pod), map[string]explain.State{}
	for i, t := range p.set() {
		states[t.Name] = evidence.State(t, &r.Decisions[i])
	}
	for name := range evidence.InjectedBy {
		if _, ok := states[name]; !ok {
			states[name] = explain.Outdated // the template no longer exists
		}
	}
	return states, nil
}

func worst(states map[string]explain.State) explain.State {
	order := explain.States()
	at := len(order) - 1
	for _, s := range states {
		at = min(at, slices.Index(order, s))
	}
	return order[at]
}

// unknown returns a template that is not current and that depends on who creates a pod.
func (p *Planner) unknown(states map[string]explain.State) string {
	for _, t := range p.set() {
		if s := states[t.Name]; t.ReadsRequest() && s != explain.Current && s != explain.NotWanted {
			return t.Name
		}
	}
	return ""
}

// own returns the names of the templates' containers in a pod, without those that users wrote.
func (p *Planner) own(doc object) (names []string) {
	annotations := child(child(doc, "metadata"), "annotations")
	for _, t := range p.set() {
		if annotations[t.Annotation(templates.AnnotationCustomize)] == "true" {
			continue
		}
		for _, list := range lists() {
			for _, item := range items(child(doc, "spec"), list) {
				if name, _ := item["name"].(string); t.Brings(name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// keep takes out the changes of fields that others have changed. The resources of a container belong
// together, because a request may not exceed its limit.
func (o *Pod) keep(written managers) {
	whose := map[string]Kept{}
	key := func(c *Change) string {
		if c.How != Resize {
			return c.Path
		}
		list, name, _ := c.container()
		return list + "/" + name
	}
	for i := range o.Changes {
		c := &o.Changes[i]
		if c.How != InPlace && c.How != Resize {
			continue
		}
		if by, sure := written.changedBy(c); by != "" || !sure {
			whose[key(c)] = Kept{By: by, Sure: sure && by != ""}
		}
	}
	o.Changes = slices.DeleteFunc(o.Changes, func(c Change) bool {
		kept, ok := whose[key(&c)]
		if kept.Change = c; ok {
			o.Kept = append(o.Kept, kept)
		}
		return ok
	})
}

// decide chooses the action.
func (p *Planner) decide(o *Pod) error {
	for i := range o.Changes {
		c := &o.Changes[i]
		if c.How == Resize && !p.Resizes {
			c.How = NewPod
			o.Why = "the API server cannot resize running sidecars"
		}
		if c.How == NewPod && o.Action != Replace {
			o.Action = Replace
			if o.Why == "" {
				o.Why = c.reason()
			}
		}
		if key, ok := strings.CutPrefix(c.Path, "/metadata/annotations/"); ok && c.How == Record {
			o.record(key, c.To)
		}
	}
	if len(o.Kept) > 0 { // the pod is not as its record would say
		o.Records = map[string]string{}
		o.Changes = slices.DeleteFunc(o.Changes, func(c Change) bool { return c.How == Record })
	}
	switch {
	case o.Action == Replace && o.notCalled:
		o.leave(o.Why + ", but the API server would not call Pillion for a new pod")
	case o.Action == Replace && len(o.Kept) > 0:
		o.leave(fmt.Sprintf("%s; only a new pod gets the rest (%s), so delete this one if the change is no longer needed", o.Kept[0].String(), o.Why))
	case o.Action == Replace:
	case len(o.Changes) == 0 && len(o.Kept) > 0:
		o.leave(o.Kept[0].String())
	case len(o.Changes) > 0:
		o.Action = Patch
		return p.foresee(o)
	case o.State != explain.Current && o.State != explain.NotWanted:
		o.Action, o.Why = Replace, "it is "+string(o.State)+", and its own containers are as they should be"
	}
	return nil
}

// reason returns why a change needs a new pod.
func (c *Change) reason() string {
	switch {
	case c.To == nil && isRecord(strings.ReplaceAll(strings.TrimPrefix(c.Path, "/metadata/annotations/"), "~1", "/")):
		return "a new pod would not get " + c.Template + ", and a running pod keeps its containers"
	case c.From == nil:
		return "the pod lacks the " + c.String()
	case c.To == nil:
		return "a new pod would not have the " + c.String()
	}
	return "a new pod differs in the " + c.String()
}

func (o *Pod) record(key string, value json.RawMessage) {
	var revision string
	if json.Unmarshal(value, &revision) == nil {
		o.Records[strings.NewReplacer("~1", "/", "~0", "~").Replace(key)] = revision
	}
}

// foresee checks that the pod is current after its changes, except for fields that stay.
func (p *Planner) foresee(o *Pod) error {
	if len(o.Kept) > 0 {
		o.Why = o.Kept[0].String()
		return nil
	}
	after, err := o.after()
	if err != nil {
		return err
	}
	states, err := p.states(after)
	if err != nil {
		return err
	}
	if s := worst(states); s != explain.Current && s != explain.NotWanted {
		o.Action, o.Why = Replace, "it would be "+string(s)+" after a change in place"
	}
	return nil
}

// Forget frees the memory of what only the patches need.
func (o *Pod) Forget() { o.doc = nil }

// Deny makes a new pod necessary, because the API server has denied the resize.
func (o *Pod) Deny(why string) {
	if slices.ContainsFunc(o.Changes, func(c Change) bool { return c.How == Resize }) {
		o.Action, o.Why = Replace, "the API server denies the resize: "+why
	}
}

// Changed returns when an earlier rollout last changed the containers of a pod, or the zero time.
func Changed(pod *metav1.ObjectMeta) time.Time {
	return managersOf(pod.CreationTimestamp.Time, pod.ManagedFields).wroteAt()
}
