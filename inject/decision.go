// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Decision is the outcome for one template and one pod.
type Decision struct {
	Template string `json:"template"`
	Revision string `json:"revision"`
	Code     Code   `json:"code"`
	// Message is one sentence for the pod's author, or "" if the code says enough.
	Message string `json:"message,omitempty"`
	// Requested reports whether the pod's annotation names the template.
	Requested bool `json:"requested,omitempty"`
	// Passed are the rules before the deciding one, with the reasons why they did not apply. It is
	// set only if the [Request] has Detail.
	Passed []Step `json:"passed,omitempty"`
	// Also are further reasons why the pod does not get the template, which the deciding one hides.
	// It is set only if the [Request] has Detail.
	Also []Step `json:"also,omitempty"`
	// Params are the values that the template was rendered with, in the order of declaration.
	Params []params.Value `json:"params,omitempty"`
	// Added is what the template has and the pod lacks. It is set only if the [Request]
	// has Detail, and for final pods. A new item of a list is at "<list>/-".
	Added []Difference `json:"added,omitempty"`
	// Kept are the places at which there is another value than the template's, and stays. See [KeepRules].
	Kept []Kept `json:"kept,omitempty"`
	// Altered are the protected places (spec.validate.protect) where the pod differs from the
	// template.
	Altered []Difference `json:"altered,omitempty"`
	// Obstacles are the differences that cause a decision invalid_parameter or conflict.
	Obstacles []Obstacle `json:"obstacles,omitempty"`
	// Notes are facts for the pod's author, one sentence each.
	Notes []string `json:"notes,omitempty"`
	// Mode is what the validating webhook does about this template's findings.
	Mode v1alpha1.ValidateMode `json:"mode"`
	// NewPods is the template that new pods get instead, because it replaces this one or is replaced by it. It
	// is set only if the [Request] has Detail.
	NewPods string `json:"newPods,omitempty"`
	// Absent reports whether nothing in the pod shows that the template was ever injected, except
	// perhaps a record, which proves nothing. The mutating webhook does not set it.
	Absent bool `json:"absent,omitempty"`

	computed         []string // only for a final pod: see [templates.Template.Computed]
	audit            string   // the audit annotation, only for a template that is injected or present
	recorded         bool     // only for a final pod: whether it records an injection of the template
	recordedRevision string   // only for a final pod: the revision in that record (JSON), or "" if it is the template's
	outside          bool     // see planner.outside
	leavesSelector   bool     // see planner.leavesSelector
}

// keepAlso adds the kept places that a later round found. The first round that found a place knows best who set its value.
func (d *Decision) keepAlso(later []Kept) {
	for _, k := range later {
		if !slices.ContainsFunc(d.Kept, func(known Kept) bool { return known.Path == k.Path && known.Template == k.Template }) {
			d.Kept = append(d.Kept, k)
		}
	}
}

// Step is a rule and a reason: why it did not apply in [Decision.Passed], or why it applies, too, in [Decision.Also].
type Step struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Difference is a place at which the pod and a template differ.
type Difference struct {
	Path     string `json:"path"`     // JSON Pointer into the original pod
	Pod      JSON   `json:"pod"`      // null if the pod has nothing there
	Template JSON   `json:"template"` // null if the template has nothing there
}

// Kept is a place at which there is another value than the template's, and stays.
type Kept struct {
	Difference
	// By is the template that set the value, or "" if the pod has it.
	By string `json:"by,omitempty"`
	// Beside is set if the pod has nothing at the place, but the API server would reject the template's value there because of
	// another field. It is that field with its value, for example "runAsUser: 0".
	Beside string `json:"beside,omitempty"`
}

// Owner returns words for the pod or the template that set the value.
func (k *Kept) Owner() string {
	if k.By == "" {
		return "the pod"
	}
	return "the template " + k.By
}

// JSON is a value as JSON, or "".
type JSON string

// MarshalJSON implements json.Marshaler.
func (j JSON) MarshalJSON() ([]byte, error) { return []byte(j), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (j *JSON) UnmarshalJSON(data []byte) error {
	*j = JSON(data)
	return nil
}

// Obstacle is a difference that prevents the injection of a template.
type Obstacle struct {
	Difference
	Message string `json:"message"`
}

// Result is the outcome for one pod. The admission response, the injected YAML, metrics, audit
// annotations and log lines are functions of it.
type Result struct {
	Pod Identity
	// Decisions has one item for each loaded template, in the order of application.
	Decisions []Decision
	// Findings are mistakes in the pod's annotations that no decision reports. [Result.Check]
	// returns them too.
	Findings []Finding

	pod  *jsontree.Node // with all additions
	size int            // approximate size of the additions, in bytes
}

// Note is an audit annotation. The API server puts the name of the webhook before the key.
type Note struct{ Key, Text string }

// AppendAudit appends the audit annotations, one for each template with its decision, in the order
// of the decisions. No key occurs twice.
//
// An API server may call the webhook twice in one admission, and rejects a second value that
// differs. Therefore "injected" and "present" have the same value. All templates that the pod did
// not request share one annotation, because each annotation costs the API server 3 us and space in
// its log.
func (r *Result) AppendAudit(notes []Note) []Note {
	var before *Decision // most templates that do not match have the same reason
	text := ""
	var others strings.Builder
	for i := range r.Decisions {
		d := &r.Decisions[i]
		switch {
		case d.Code == CodeNotRequested:
			if others.Len() > 0 {
				others.WriteString(", ")
			}
			others.WriteString(d.Template)
			continue
		case d.Code.Succeeded():
			notes = append(notes, Note{d.Template, d.audit})
			continue
		case before == nil || d.Code != before.Code || d.Message != before.Message:
			before, text = d, string(d.Code)+": "+d.Sentence()
		}
		notes = append(notes, Note{d.Template, text})
	}
	if others.Len() > 0 {
		notes = append(notes, Note{string(CodeNotRequested), others.String()})
	}
	for i := range r.Findings {
		notes = addNote(notes, string(r.Findings[i].Code), r.Findings[i].Message)
	}
	return notes
}

// maxNote is the length, in bytes, from which addNote appends nothing more. It exceeds what the webhook sends of a note.
const maxNote = 2048

// addNote appends to the note with that key, or adds a new one.
func addNote(notes []Note, key, text string) []Note {
	for i := range notes {
		if notes[i].Key == key {
			if len(notes[i].Text) < maxNote {
				notes[i].Text += "; " + text
			}
			return notes
		}
	}
	return append(notes, Note{key, text})
}

// Unmet reports whether the pod names the template and gets neither this one nor another in its place.
func (d *Decision) Unmet() bool {
	switch d.Code {
	case CodeReplaced, CodeHasReplaced, CodeFellBack:
		return false
	}
	return d.Requested && !d.Code.Succeeded()
}

// UnmetSentence returns that the pod names the template and does not get it, and why. See [Decision.Unmet].
func (d *Decision) UnmetSentence() string {
	return fmt.Sprintf("the pod names it in %s, but %s", AnnotationTemplates, d.Sentence())
}

// Sentence returns the decision's message, or the meaning of its code if it has no message.
func (d *Decision) Sentence() string {
	if d.Message != "" {
		return d.Message
	}
	return d.Code.sentence()
}

// Identity identifies a pod for users.
type Identity struct {
	Name         string // "" if the API server will generate it from GenerateName
	GenerateName string
	Owner        string // Kind/name of the controller, or ""
}

func identifyPod(pod *jsontree.Node) Identity {
	id := Identity{
		Name:         pod.At("metadata", "name").Text(),
		GenerateName: pod.At("metadata", "generateName").Text(),
	}
	owners := pod.At("metadata", "ownerReferences").Items()
	for i := range owners {
		if owners[i].Get("controller").Kind() == jsontree.True {
			id.Owner = owners[i].Get("kind").Text() + "/" + owners[i].Get("name").Text()
		}
	}
	return id
}

// Finding describes one thing that is wrong with a final pod, or with its annotations.
type Finding struct {
	Code     Code   `json:"code"`
	Template string `json:"template,omitempty"` // "" if the finding is not about an existing template
	Path     string `json:"path"`               // JSON Pointer into the pod; "" if the finding is not about one place
	Expected JSON   `json:"expected,omitempty"` // "" if nothing should be there
	Found    JSON   `json:"found,omitempty"`    // "" if nothing is there
	Message  string `json:"message"`            // one sentence, with what to do
	// Mode is Deny if the finding suffices to deny the pod.
	Mode v1alpha1.ValidateMode `json:"mode,omitempty"`

	unknown string // name in the pod's annotations that no template has
	ownKey  bool   // see AboutOwnKey
}

// AboutOwnKey reports whether the finding is about a key of Pillion's own, or about one that resembles it. It holds whatever other
// templates there are.
func (f *Finding) AboutOwnKey() bool { return f.ownKey }

// String returns the finding for users, as "template: code at path: sentence". It omits the path if
// the sentence contains it, see [schema.Named].
func (f *Finding) String() string {
	var b strings.Builder
	if f.Template != "" {
		b.WriteString(f.Template + ": ")
	}
	b.WriteString(string(f.Code))
	if f.Path != "" && !schema.Named(f.Path, f.Message) {
		b.WriteString(" at " + f.Path)
	}
	return b.String() + ": " + f.Message
}

// maxConflicts is the maximum number of conflicts that are reported for one template. Users have to
// fix the first one first.
const maxConflicts = 4

func newDifference(at string, pod, fragment *jsontree.Node) Difference {
	return Difference{Path: at, Pod: compactJSON(pod), Template: compactJSON(fragment)}
}

func compactJSON(n *jsontree.Node) JSON {
	if n == nil {
		return "null"
	}
	var b bytes.Buffer
	if json.Compact(&b, []byte(n.String())) != nil {
		return JSON(n.String())
	}
	return JSON(b.String())
}

func joinMessages(obstacles []Obstacle) string {
	all := make([]string, len(obstacles))
	for i := range obstacles {
		all[i] = obstacles[i].Message
	}
	return strings.Join(all, "; ")
}

// Brief shortens a value in JSON so that users can still identify it. If an item has a name or a
// path, it returns only that.
func Brief(value JSON) string {
	text := string(value)
	var item struct{ Name, MountPath string }
	if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &item) == nil {
		switch {
		case item.MountPath != "":
			return fmt.Sprintf("the mount at %s", item.MountPath)
		case item.Name != "":
			return item.Name
		}
	}
	return problem.Cut(text, maxValue)
}

// maxValue is the maximum length of a value in a sentence.
const maxValue = 80
