// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject/report/explain"
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
	// Records are the annotations to write last, with the revisions, or "" to remove one: what was injected, and what was before.
	Records map[string]string

	doc       object // the pod
	restarts  bool   // see Restarts, if doc is forgotten
	notCalled bool   // the API server would not call Pillion for a new one
}

// Kept is a field of a template's container that others have changed since the pod was created. It
// does not change.
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

// isConsidered reports whether a rollout considers the pod: it runs, is not being deleted, and is not a
// mirror pod.
func (m *meta) isConsidered() bool {
	_, mirror := m.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirror && m.Metadata.DeletionTimestamp == nil && m.Status.Phase != corev1.PodSucceeded && m.Status.Phase != corev1.PodFailed
}

// errNotAPod is returned for something that is not the JSON of a pod.
var errNotAPod = errors.New("the pod is not JSON")

func newPod(namespace string, m *meta) *Pod {
	ready := IsReady(&corev1.Pod{Status: corev1.PodStatus{Conditions: m.Status.Conditions}})
	return &Pod{
		Namespace: namespace, Name: m.Metadata.Name, UID: string(m.Metadata.UID), Labels: m.Metadata.Labels, Ready: ready,
		State: explain.NotWanted, Action: None, Records: map[string]string{},
	}
}

func (o *Pod) leaveBecause(why string) *Pod {
	o.Action, o.Why = Leave, why
	return o
}

func (o *Pod) addRecord(c *Change) {
	var was, revision string
	if c.To != nil && json.Unmarshal(c.To, &revision) != nil || c.From != nil && json.Unmarshal(c.From, &was) != nil {
		return
	}
	key := c.recordKey()
	o.Records[key] = revision
	before, _ := ensureObject(ensureObject(o.doc, "metadata"), "annotations")[beforeOf(key)].(string)
	switch {
	case was != "" && revision != "" && before != revision:
		o.Records[beforeOf(key)] = was
	case before != "": // it goes back, or loses the template
		o.Records[beforeOf(key)] = ""
	}
}

// Reverts reports whether the change takes back one of an earlier rollout that was not proved, so that the pod has again what
// it records.
func (o *Pod) Reverts() bool { return o.Action == Patch && !o.State.IsBehind() }

// Deny makes a new pod necessary, because the API server has denied the resize.
func (o *Pod) Deny(why string) {
	if slices.ContainsFunc(o.Changes, func(c Change) bool { return c.How == Resize }) {
		o.Action, o.Why = Replace, "the API server denies the resize: "+why
	}
}
