// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Entry is what is known of a template, whether it is used or not: some hundred bytes, whatever users have written.
type Entry struct {
	*metav1.ObjectMeta // empty, and shared

	Namespace, Name string
	UID             types.UID
	Generation      int64
	Created         time.Time
	// Size is that of the content as JSON, in bytes.
	Size int
	// Replaces and Required are the fields of the spec.
	Replaces string
	Required bool
	// Rollout is the field of the spec, and Status what Pillion has written. They are nil if the catalog does not read
	// them.
	Rollout *v1alpha1.Rollout
	Status  *v1alpha1.Status

	version string // the resource version
	memory  int    // see Memory
	used    bool
	kept    bool   // its kind was deleted, see keeper
	text    []byte // the content as JSON, until it is taken
}

// shareStrings makes equal strings of two templates of a namespace the same. Of many that are not used, the status is equal.
func (e *Entry) shareStrings(other *Entry) {
	e.Namespace = other.Namespace
	if e.Status == nil || other.Status == nil {
		return
	}
	for i := range e.Status.Conditions[:min(len(e.Status.Conditions), len(other.Status.Conditions))] {
		own, of := &e.Status.Conditions[i], &other.Status.Conditions[i]
		for text, same := range map[*string]string{&own.Type: of.Type, &own.Reason: of.Reason, &own.Message: of.Message} {
			if *text == same {
				*text = same
			}
		}
		if own.Status == of.Status {
			own.Status = of.Status
		}
	}
}

// Key returns the name of the template.
func (e *Entry) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: e.Namespace, Name: e.Name}
}

// Kind returns the kind of the template.
func (e *Entry) Kind() string { return kindOf(e.Namespace) }

func kindOf(namespace string) string {
	if namespace == "" {
		return v1alpha1.ClusterKind
	}
	return v1alpha1.NamespacedKind
}

// ID returns how messages name the template, as [TemplateID].
func (e *Entry) ID() string { return templateID(e.Kind(), e.Namespace, e.Name) }

// Memory returns how much memory the content takes, by [Memory], in bytes.
func (e *Entry) Memory() int { return e.memory }

// SameContent reports whether two entries are of the same content of the same object.
func (e *Entry) SameContent(other *Entry) bool {
	return e.UID == other.UID && e.Generation == other.Generation
}

// The methods that reflectors call.

// GetNamespace implements [metav1.Object].
func (e *Entry) GetNamespace() string { return e.Namespace }

// GetName implements [metav1.Object].
func (e *Entry) GetName() string { return e.Name }

// GetUID implements [metav1.Object].
func (e *Entry) GetUID() types.UID { return e.UID }

// GetGeneration implements [metav1.Object].
func (e *Entry) GetGeneration() int64 { return e.Generation }

// GetCreationTimestamp implements [metav1.Object].
func (e *Entry) GetCreationTimestamp() metav1.Time { return metav1.NewTime(e.Created) }

// GetResourceVersion implements [metav1.Object].
func (e *Entry) GetResourceVersion() string { return e.version }

// GetObjectKind implements [runtime.Object].
func (e *Entry) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object]. Entries do not change for those who read them.
func (e *Entry) DeepCopyObject() runtime.Object { return e }

var noMetadata metav1.ObjectMeta

// setContent sets what depends on the content.
func (e *Entry) setContent(text []byte) {
	e.Size = len(text)
	if e.Size > templates.MaxObject { // it is not used
		return
	}
	e.text, e.memory = text, Memory(text)
}

// readSpecFields reads some fields of a spec.
func (e *Entry) readSpecFields(spec []byte) {
	var of struct {
		Replaces string            `json:"replaces"`
		Required bool              `json:"required"`
		Rollout  *v1alpha1.Rollout `json:"rollout"`
	}
	if len(spec) == 0 || utiljson.Unmarshal(spec, &of) != nil {
		return // the schema forbids it
	}
	e.Replaces, e.Required, e.Rollout = strings.Clone(of.Replaces[:min(len(of.Replaces), maxName)]), of.Required, of.Rollout
}

// maxName is the length of the longest name of a template, and maxMessage that of the longest message of a condition
// that Pillion writes, both in bytes.
const (
	maxName    = 63
	maxMessage = 1024
)

// ownStatus returns what Pillion has written into a status, or nil if there is none.
func ownStatus(text []byte) *v1alpha1.Status {
	status := &v1alpha1.Status{}
	if len(text) == 0 || utiljson.Unmarshal(text, status) != nil {
		return nil
	}
	status.History = nil // it is read when it is needed
	own := []string{v1alpha1.ConditionReady, v1alpha1.ConditionProgressing, v1alpha1.ConditionDegraded, v1alpha1.ConditionPaused}
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c metav1.Condition) bool { return !slices.Contains(own, c.Type) })
	status.Conditions = slices.Clip(slices.Clone(status.Conditions))
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.Message = strings.Clone(c.Message[:min(len(c.Message), 2*maxMessage)]) // a longer one is not Pillion's, and replaced
	}
	return status
}

// RolloutState is what the controller reports about the automatic rollout of a template.
type RolloutState string

// The states.
const (
	RolloutNone    RolloutState = ""        // nothing changes, and nothing has failed
	RolloutRunning RolloutState = "running" // pods are being changed
	RolloutUndoing RolloutState = "undoing" // pods are being put back
	RolloutStopped RolloutState = "stopped" // a pod has failed
	RolloutUndone  RolloutState = "undone"  // a pod has failed, and pods were put back
)

// RolloutStates returns all states but the first.
func RolloutStates() []RolloutState {
	return []RolloutState{RolloutRunning, RolloutUndoing, RolloutStopped, RolloutUndone}
}

// Rolling returns the state of the automatic rollout of the present content, and what the controller says about it. If it has
// stopped in some namespaces and runs in others, the state is that it has stopped.
func (e *Entry) Rolling() (state RolloutState, message string) {
	degraded, progressing := e.Condition(v1alpha1.ConditionDegraded), e.Condition(v1alpha1.ConditionProgressing)
	runs := progressing.Status == metav1.ConditionTrue
	switch {
	case runs && progressing.Reason == v1alpha1.ReasonUndoing:
		return RolloutUndoing, degraded.Message
	case degraded.Status == metav1.ConditionTrue && degraded.Reason == v1alpha1.ReasonUndone:
		return RolloutUndone, degraded.Message
	case degraded.Status == metav1.ConditionTrue:
		return RolloutStopped, degraded.Message
	case runs:
		return RolloutRunning, progressing.Message
	}
	return RolloutNone, ""
}

// Condition returns a condition of the present content of the template, or an empty one.
func (e *Entry) Condition(kind string) metav1.Condition {
	if e.Status == nil {
		return metav1.Condition{}
	}
	c := meta.FindStatusCondition(e.Status.Conditions, kind)
	if c == nil || c.ObservedGeneration != e.Generation {
		return metav1.Condition{}
	}
	return *c
}

// CompareNames compares the names of two templates, by namespace and name.
func CompareNames(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// CompileContent compiles the content of a template. It is nil if it is too large to be used. An error is
// [problem.Problems].
func CompileContent(e *Entry, text []byte) (*templates.Template, error) {
	if e.Size > templates.MaxObject {
		return nil, templates.TooLarge(e.ID())
	}
	t, err := CompileTemplateText(e.ID(), text)
	if err == nil {
		t.Memory = e.memory
	}
	return t, err
}
