// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"strings"
)

// Text returns one line for each object, one for each field that is left out or has a note, and the numbers of objects.
func Text(all []Imported) string {
	var out strings.Builder
	count := map[Outcome]int{}
	for i := range all {
		r := &all[i]
		count[r.Outcome]++
		at := fmt.Sprintf("%s:%d: %s", escapeUnprintable(r.File), r.Line, escapeUnprintable(r.Kind))
		if r.Name != "" {
			at += " " + escapeUnprintable(r.Name)
		}
		fmt.Fprintf(&out, "%s: %s\n", at, r.outcomeText())
		for _, f := range r.LeftOut {
			fmt.Fprintf(&out, "%s:%d: %s: left out: %s\n", escapeUnprintable(r.File), f.Line, f.describePlace(), f.Message)
		}
		for _, f := range r.Notes {
			fmt.Fprintf(&out, "%s:%d: %s: note: %s\n", escapeUnprintable(r.File), f.Line, f.describePlace(), f.Message)
		}
	}
	fmt.Fprintf(&out, "%d imported as a whole, %d in part, %d not imported, %d skipped\n", count[Whole], count[Part], count[None], count[Skipped])
	return out.String()
}

// outcomeText says what became of an object.
func (r *Imported) outcomeText() string {
	names := make([]string, len(r.Templates))
	for i, t := range r.Templates {
		names[i] = t.Name
	}
	switch {
	case r.PartOf != "" && r.Outcome == Part:
		return "imported in part with " + escapeUnprintable(r.PartOf)
	case r.PartOf != "":
		return "imported with " + escapeUnprintable(r.PartOf)
	}
	switch r.Outcome {
	case Whole:
		return "imported as " + strings.Join(names, " and ")
	case Part:
		return "imported in part as " + strings.Join(names, " and ")
	case None:
		return "not imported"
	}
	return "skipped, because it configures no injector"
}

// YAML returns the templates of all objects as a stream. Objects that became no template are comments.
func YAML(all []Imported) string {
	var documents []string
	for i := range all {
		r := &all[i]
		for _, t := range r.Templates {
			documents = append(documents, t.YAML)
		}
		if r.Outcome == None {
			documents = append(documents, r.describeObject())
		}
	}
	return strings.Join(documents, "---\n")
}

// describeObject returns what is known about an object without a template.
func (r *Imported) describeObject() string {
	text := []string{fmt.Sprintf("Not imported: %s:%d: %s %s.", escapeUnprintable(r.File), r.Line, escapeUnprintable(r.Kind), escapeUnprintable(r.Name))}
	for _, f := range r.LeftOut {
		text = append(text, fmt.Sprintf("Left out: %s (line %d): %s", f.describePlace(), f.Line, f.Was), "  "+f.Message)
	}
	return commentLines(text, "# ")
}

// Outcome is how much of an object a template expresses.
type Outcome string

// The outcomes.
const (
	// Whole means that the template does what the object did.
	Whole Outcome = "Whole"
	// Part means that the object has fields that the template does not express.
	Part Outcome = "Part"
	// None means that there is no template.
	None Outcome = "None"
	// Skipped means that the object configures no injector.
	Skipped Outcome = "Skipped"
)

// Imported is what became of one object of the input.
type Imported struct {
	File string `json:"file"`
	Line int    `json:"line"`
	// Kind and Name are those of the object. A part of a ConfigMap has its key in the name.
	Kind    string  `json:"kind"`
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	// Templates are what the object became.
	Templates []Template `json:"templates"`
	// PartOf is the object whose templates contain this one, for example the policy of a binding.
	PartOf string `json:"partOf,omitempty"`
	// LeftOut are the fields that the templates do not express.
	LeftOut []Finding `json:"leftOut"`
	// Notes are fields without an effect on pods.
	Notes []Finding `json:"notes"`
}

// Template is a template that was written.
type Template struct {
	Name string `json:"name"`
	// YAML is the whole document, with comments.
	YAML string `json:"yaml"`
}

// Finding is about one field of the input.
type Finding struct {
	Line int `json:"line"`
	// Field is its path in the object, for example spec.containers[0].upgradeStrategy, or "" for the whole object.
	Field string `json:"field"`
	// Was is its value as YAML in one line. It is shortened if it is long.
	Was string `json:"was"`
	// Message is why the template does not express it, and what to do instead.
	Message string `json:"message"`
}

// describePlace returns the field in words.
func (f *Finding) describePlace() string {
	if f.Field == "" {
		return "the whole object"
	}
	return f.Field
}
