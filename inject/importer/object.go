// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strings"
)

// importer has all objects of the input, because some belong together: a policy and its bindings, and a sidecar
// configuration and the one that it inherits from.
type importer struct {
	objects []*object
	files   map[string]*field // the first document of each file, by its cleaned path
	names   map[string]bool   // of templates that are written already
}

// object is one object of the input.
type object struct {
	file string
	root *field
	kind string // of the object, or what it is if it has none
	name string
	// found is what is known about its fields.
	found []finding
	notes []finding
	// drafts are the templates that it becomes.
	drafts []*draft
	// bound are the templates of another object, for whose pods this one has conditions.
	bound []*draft
	// partOf is the object that has this one in its templates, for example the policy of a binding.
	partOf string
	// product is what reads the object.
	product string
	// parts are the fields in which a field is about what pods get. Anywhere else, a field that the importer does not know may be a
	// condition. If it is nil, there are no conditions.
	parts []string
	// skipped is true if the object configures no injector.
	skipped bool
}

// finding is a Finding with its field.
type finding struct {
	at      *field
	message string
	more    []*field // with the same message
}

func (f *finding) exportFinding() Finding {
	path, was := f.at.path, f.at.valueInOneLine()
	for _, other := range f.more {
		path, was = path+", "+other.path, was+"; "+other.valueInOneLine()
	}
	return Finding{f.at.line, escapeUnprintable(strings.TrimSuffix(path, inside)), escapeUnprintable(was), escapeUnprintable(f.message)}
}

// leaveOut records that no template expresses a field. All fields inside it count as reported.
func (o *object) leaveOut(f *field, format string, args ...any) {
	if f == nil {
		return
	}
	f.markAll()
	addFinding(&o.found, finding{at: f, message: fmt.Sprintf(format, args...)})
}

// addFinding adds a finding, unless it is there.
func addFinding(all *[]finding, f finding) {
	isSame := func(other finding) bool {
		return other.message == f.message && (other.at == f.at || other.at.path == f.at.path && other.at.line == f.at.line)
	}
	if !slices.ContainsFunc(*all, isSame) {
		*all = append(*all, f)
	}
}

// recordNote records that a field has no effect on pods, or that it is expressed with a difference that does not matter for
// the pod.
func (o *object) recordNote(f *field, format string, args ...any) {
	if f == nil {
		return
	}
	f.markAll()
	addFinding(&o.notes, finding{at: f, message: fmt.Sprintf(format, args...)})
}

// noteAll records that several fields have no effect on pods, all with one reason.
func (o *object) noteAll(fields []*field, message string) {
	if len(fields) == 0 {
		return
	}
	fields = slices.SortedStableFunc(slices.Values(fields), func(a, b *field) int { return a.line - b.line })
	for _, f := range fields {
		f.markAll()
	}
	o.notes = append(o.notes, finding{fields[0], message, fields[1:]})
}

// recordRemark is a note about a field, which does not count as read by that.
func (o *object) recordRemark(f *field, format string, args ...any) {
	addFinding(&o.notes, finding{at: f, message: fmt.Sprintf(format, args...)})
}

// onlyOnRequest is what happens without a condition.
const onlyOnRequest = "without this condition, pods get the template only if their annotation pillion.dev/templates names it; write a condition into spec.match and set default: true"

// readMetadata reads what all objects have in their metadata.
func (o *object) readMetadata() {
	o.readServerFields()
	o.noteAll(o.root.get("metadata").findAll("labels", "annotations"), "this is about the object itself, and not about pods")
}

// readServerFields reads the fields of objects that users do not write, and the name.
func (o *object) readServerFields() {
	metadata := o.root.get("metadata")
	metadata.markScalar("name")
	o.noteAll(metadata.findAll("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences", "finalizers"),
		"the API server or a controller writes this")
	o.recordNote(o.root.get("status"), "this is the state of the object")
}

// isLeftOut reports whether an item of a list with this name is left out.
func (o *object) isLeftOut(list, name string) bool {
	return slices.ContainsFunc(o.found, func(f finding) bool {
		return f.at.parent != nil && f.at.parent.name == list && f.at.peekText("name") == name
	})
}

// useNamespace makes a template one of the namespace of its object. Without a namespace, pods get it only on request.
func (o *object) useNamespace(d *draft) {
	if d.namespace = o.root.get("metadata", "namespace").readText(); d.namespace == "" {
		d.onRequest = true
		o.leaveOut(o.root.get("metadata", "name"), "this is only for the pods of its own namespace, which the input does not name; set metadata.namespace and import it again; %s", onlyOnRequest)
	}
}
