// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// Decision is what was decided about one template for one pod.
type Decision struct {
	Template string `json:"template"`
	Revision string `json:"revision"`
	Code     Code   `json:"code"`
	// Message is one sentence for the person who wrote the pod; "" where the
	// code says all there is.
	Message string `json:"message,omitempty"`
	// Requested: the pod's annotation names the template, if the [Request] asked for details.
	Requested bool `json:"requested,omitempty"`
	// Passed are the rules before the one that decided, and why each did not apply,
	// if the [Request] asked for details.
	Passed []Step `json:"passed,omitempty"`
	// Params are the values that the template was rendered with, in the order
	// of their declaration.
	Params []templates.Value `json:"params,omitempty"`
	// Added are the places where the pod has nothing of what the template has,
	// if the [Request] asked for them. A new item of a list is at "<list>/-".
	Added []Place `json:"added,omitempty"`
	// Kept are the places where the pod says something else and wins.
	Kept []Place `json:"kept,omitempty"`
	// Altered are the protected places (spec.validate.protect) where the pod
	// says something else.
	Altered []Place `json:"altered,omitempty"`
	// Obstacles are the places that make the decision invalid_parameter or conflict.
	Obstacles []Obstacle `json:"obstacles,omitempty"`
	// Notes are things that the pod's author should know, one sentence each.
	Notes []string `json:"notes,omitempty"`
	// Mode is what the validating webhook does about this template's findings.
	Mode templates.ValidateMode `json:"mode"`
	// Absent: nothing in the pod but a record, which proves nothing, shows that the template
	// was ever injected. Not looked for in the mutating webhook.
	Absent bool `json:"absent,omitempty"`

	computed []string // of a final pod: see [templates.Template.Computed]
	audit    string   // of a template that is injected or present
	recorded bool     // of a final pod: it says that the template was injected
	other    string   // of a final pod: the revision that it says it was injected by, if it is not the template's (JSON)
}

// Step is a rule that did not apply.
type Step struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Place is where the pod and a template differ.
type Place struct {
	Path     string `json:"path"`     // JSON Pointer into the pod as it came
	Pod      string `json:"pod"`      // JSON; null where the pod says nothing
	Template string `json:"template"` // JSON; null where the template says nothing
}

// Obstacle is a place that keeps a template out.
type Obstacle struct {
	Place
	Message string `json:"message"`
}

// Result is all there is to say about one pod. The admission response, the
// injected YAML, metrics, audit annotations and log lines are functions of it.
type Result struct {
	Pod Identity
	// Decisions, one for each loaded template, in the order of application.
	Decisions []Decision
	// Findings are the mistakes in the pod's annotations that no template's
	// decision shows. [Result.Check] has them too.
	Findings []Finding

	pod  *tree.Node // with what was added
	size int        // of that, in about so many bytes
}

// Note is an audit annotation.
type Note struct{ Key, Text string }

// AppendAudit appends the audit annotations, template to decision, in the order of
// the decisions; a key comes once. A pod that is looked at twice in one admission
// gives the same values both times, because the API server refuses a second,
// different value; so injected and present read alike. The templates that nobody
// asked for share one: each annotation takes 3 us of the API server's time, and room
// in its log.
func (r *Result) AppendAudit(notes []Note) []Note {
	var before *Decision // most templates that do not match do so for one reason
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

// maxNote is where a note is longer than any audit annotation, in bytes: 512 runes of four.
const maxNote = 2048

// addNote adds to the text of a note that is there already.
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

// Sentence is the decision's message, or what its code means where it has none.
func (d *Decision) Sentence() string {
	if d.Message != "" {
		return d.Message
	}
	return d.Code.sentence()
}

// Identity is how people know a pod.
type Identity struct {
	Name         string // "" where the API server is yet to make one of GenerateName
	GenerateName string
	Owner        string // Kind/name of the controller, or ""
}

func identify(pod *tree.Node) Identity {
	id := Identity{
		Name:         pod.At("metadata", "name").Text(),
		GenerateName: pod.At("metadata", "generateName").Text(),
	}
	owners := pod.At("metadata", "ownerReferences").Items()
	for i := range owners {
		if owners[i].Get("controller").Kind() == tree.True {
			id.Owner = owners[i].Get("kind").Text() + "/" + owners[i].Get("name").Text()
		}
	}
	return id
}

// Finding is one thing that is wrong with a final pod, or with what its author
// asked for.
type Finding struct {
	Code     Code   `json:"code"`
	Template string `json:"template,omitempty"` // "" where no template is meant that exists
	Path     string `json:"path"`               // JSON Pointer into the pod; "" where no one place is to blame
	Expected string `json:"expected,omitempty"` // JSON; "" where nothing should be there
	Found    string `json:"found,omitempty"`    // JSON; "" where nothing is there
	Message  string `json:"message"`            // one sentence, with what to do
	// Mode is Deny where the finding is reason enough to refuse the pod.
	Mode templates.ValidateMode `json:"mode"`

	unknown string // the template's name, if no template has it
}

// String is the finding as people read it: template: code at path: sentence. The
// path is left out where the sentence has it: see [Named].
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

// maxConflicts bounds what is said about one template; the first is what has to
// be mended first.
const maxConflicts = 4
