// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// finishTemplates checks the templates of an object, adds the comments and returns the result.
func (o *object) finishTemplates(im *importer) Imported {
	if o.kind == "" {
		o.kind = "document"
	}
	result := Imported{File: o.file, Line: o.root.line, Kind: o.kind, Name: o.name, Templates: []Template{}, LeftOut: []Finding{}, Notes: []Finding{}}
	if o.skipped {
		result.Outcome = Skipped
		return result
	}
	var kept []*draft
	for _, d := range o.drafts {
		if !d.discarded && o.makeValid(d) {
			im.giveName(d)
			kept = append(kept, d)
		}
	}
	o.leaveOutEmpty(kept)
	o.sortFindings()
	documents := make([]*yaml.Node, len(kept))
	for i, d := range kept {
		documents[i] = d.buildDocument()
	}
	heads := o.writeComments(documents)
	for i, d := range kept {
		head := append([]string{o.describeOrigin()}, heads[i]...)
		result.Templates = append(result.Templates, Template{d.name, writeDocument(documents[i], head)})
	}
	for _, f := range o.found {
		result.LeftOut = append(result.LeftOut, f.exportFinding())
	}
	for _, f := range o.notes {
		result.Notes = append(result.Notes, f.exportFinding())
	}
	result.PartOf = o.partOf
	switch {
	case o.partOf != "" && len(o.found) > 0:
		result.Outcome = Part
	case o.partOf != "":
		result.Outcome = Whole
	case len(kept) == 0:
		result.Outcome = None
	case len(o.found) > 0:
		result.Outcome = Part
	default:
		result.Outcome = Whole
	}
	return result
}

// leaveOutEmpty reports each part of an object that becomes no template, because what is left of it adds nothing.
func (o *object) leaveOutEmpty(kept []*draft) {
	for _, d := range o.drafts {
		from := cmp.Or(d.from, o.root)
		isSame := func(other *draft) bool { return cmp.Or(other.from, o.root) == from }
		isReported := func(f finding) bool { return f.at == from || f.at.isInside(from) && d.discarded }
		if !slices.ContainsFunc(kept, isSame) && !slices.ContainsFunc(o.found, isReported) {
			o.leaveOut(from, "nothing is left of it that a template can add")
		}
	}
}

func (o *object) sortFindings() {
	byLine := func(a, b finding) int { return a.at.line - b.at.line }
	slices.SortStableFunc(o.found, byLine)
	slices.SortStableFunc(o.notes, byLine)
}

// describeOrigin returns where the template comes from.
func (o *object) describeOrigin() string {
	return fmt.Sprintf("Imported from %s:%d: %s %s.", escapeUnprintable(o.file), o.root.line, escapeUnprintable(o.kind), escapeUnprintable(o.name))
}

// giveName gives the template a name that no other one has.
func (im *importer) giveName(d *draft) {
	name := d.name
	for i := 2; im.names[d.kindOf()+d.namespace+"/"+d.name]; i++ {
		suffix := "-" + strconv.Itoa(i)
		d.name = labelOf(name[:min(len(name), 63-len(suffix))] + suffix)
	}
	im.names[d.kindOf()+d.namespace+"/"+d.name] = true
}

// writeComments writes each finding as a comment above the node that its field would be in. It returns those that
// belong to the beginning of each document.
func (o *object) writeComments(documents []*yaml.Node) [][]string {
	heads := make([][]string, len(documents))
	if len(documents) == 0 {
		return heads
	}
	holders := map[*yaml.Node]*yaml.Node{}
	for _, d := range documents {
		findHolders(d, holders)
	}
	write := func(f finding, word string) {
		p := f.exportFinding()
		text := []string{fmt.Sprintf("%s: %s (line %d): %s", word, p.describePlace(), p.Line, p.Was), "  " + p.Message}
		for at := f.at.parent; at != nil; at = at.parent {
			if holder := holders[at.out]; at.out != nil && holder != nil {
				holder.HeadComment = strings.TrimLeft(holder.HeadComment+"\n"+strings.TrimRight(commentLines(text, "# "), "\n"), "\n")
				return
			}
		}
		heads[0] = append(heads[0], text...)
	}
	for _, f := range o.found {
		write(f, "Left out")
	}
	for _, f := range o.notes {
		write(f, "Note")
	}
	return heads
}

// findHolders finds, for each value in a document, the node that holds its comment: its key or, in a list, itself.
func findHolders(n *yaml.Node, holders map[*yaml.Node]*yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			holders[n.Content[i+1]] = n.Content[i]
			findHolders(n.Content[i+1], holders)
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			holders[item] = item
			findHolders(item, holders)
		}
	}
}

// maxRepairs limits how often the problems of one template are taken out. Each time, this may show further ones.
const maxRepairs = 100

// makeValid takes out of a draft what is a problem, until it is a valid template. It returns false if nothing is left.
func (o *object) makeValid(d *draft) bool {
	for range maxRepairs {
		if len(d.each) == 0 && nilIfEmpty(d.pod) == nil {
			return false
		}
		document := d.buildDocument()
		_, problems := templates.Parse("template", []byte(writeDocument(document, nil)))
		if len(problems) == 0 {
			return true
		}
		if !o.takeOutProblems(d, document, problems) {
			o.leaveOut(o.root, "%s", strings.TrimPrefix(problems[0].Path+": "+problems[0].Message, ": "))
			return false
		}
	}
	o.leaveOut(o.root, "too many of its parts depend on others that a template cannot have; import its parts one by one")
	return false
}

// takeOutProblems takes out of a draft what problems are about: a part of the condition, or all of the parts of the pod that do
// not contain each other. It returns false if none of these is a part of the input.
func (o *object) takeOutProblems(d *draft, document *yaml.Node, problems problem.Problems) bool {
	switch p := problems[0]; {
	case p.Path == "spec.match.condition":
		return o.dropCondition(d)
	case strings.HasPrefix(p.Path, "spec.match."):
		return o.dropSelector(d, p)
	}
	parts := make([][]step, len(problems)) // found before the first one changes the paths of the others
	for i, p := range problems {
		parts[i] = stepsToPart(d, walkPath(document, p.Path))
	}
	gone := map[*yaml.Node]bool{}
	for i, p := range problems {
		steps := parts[i]
		if len(steps) == 0 || slices.ContainsFunc(steps, func(s step) bool { return gone[s.node] }) {
			continue
		}
		last := steps[len(steps)-1]
		last.removeNode(d)
		gone[last.node] = true
		o.leaveOut(d.origin[last.node], "a template cannot have this: %s", p.Message)
	}
	return len(gone) > 0
}

// stepsToPart returns the steps to the part of the input that is left out if there is a problem at the end of a path. It returns nil
// if no part of the input is there.
func stepsToPart(d *draft, steps []step) []step {
	for i, s := range steps {
		whole := i == len(steps)-1 || s.name == "" && slices.Contains(wholeItems, s.list) || slices.Contains(wholeFields, s.name)
		if s.name == "" && isContainerName(s.list) && i+1 < len(steps) && slices.Contains([]string{"name", "image"}, steps[i+1].name) {
			whole = true
		}
		for ; whole && i >= 0; i-- {
			if d.origin[steps[i].node] != nil {
				return steps[:i+1]
			}
		}
	}
	return nil
}

// step is a node on a path.
type step struct {
	parent, node *yaml.Node
	name         string // of a field
	list         string // of an item: the name of its list
}

// removeNode takes the node out of its parent, and out of the draft if it is a part of that.
func (s step) removeNode(d *draft) {
	if s.parent.Kind == yaml.SequenceNode {
		s.parent.Content = slices.DeleteFunc(s.parent.Content, func(n *yaml.Node) bool { return n == s.node })
		d.each = slices.DeleteFunc(d.each, func(n *yaml.Node) bool { return n == s.node })
		d.params = slices.DeleteFunc(d.params, func(n *yaml.Node) bool { return n == s.node })
		d.variables = slices.DeleteFunc(d.variables, func(n *yaml.Node) bool { return n == s.node })
	} else {
		removeMember(s.parent, s.name)
	}
	d.dropEmptyParts()
}

// walkPath returns the nodes on a path such as spec.pod.spec.containers[0].image, as far as they exist.
func walkPath(n *yaml.Node, path string) (steps []step) {
	list := ""
	for path != "" && n != nil {
		var name string
		switch {
		case strings.HasPrefix(path, `["`):
			quoted, err := strconv.QuotedPrefix(path[1:])
			if err != nil {
				return steps
			}
			name, _ = strconv.Unquote(quoted)
			path = strings.TrimPrefix(path[1+len(quoted):], "]")
		case strings.HasPrefix(path, "["):
			index, rest, _ := strings.Cut(path[1:], "]")
			i, err := strconv.Atoi(index)
			if err != nil || n.Kind != yaml.SequenceNode || i >= len(n.Content) {
				return steps
			}
			steps = append(steps, step{n, n.Content[i], "", list})
			n, path = n.Content[i], strings.TrimPrefix(rest, ".")
			continue
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			name, path = path[:end], strings.TrimPrefix(path[end:], ".")
		}
		next := memberOf(n, name)
		if next == nil {
			return steps
		}
		steps = append(steps, step{n, next, name, ""})
		n, list, path = next, name, strings.TrimPrefix(path, ".")
	}
	return steps
}

// dropCondition takes out each part of the condition that is a problem. The template is then only on request, because
// it would be in more pods otherwise.
func (o *object) dropCondition(d *draft) bool {
	dropped := false
	d.conditions = slices.DeleteFunc(d.conditions, func(c condition) bool {
		probe := newDraft("probe", "")
		probe.params, probe.variables, probe.conditions = d.params, d.variables, []condition{c}
		setMember(ensureObject(probe.pod, "metadata", "annotations"), "example.com/probe", textNode("x"))
		_, problems := templates.Parse("template", []byte(writeDocument(probe.buildDocument(), nil)))
		if len(problems) == 0 || c.from == nil {
			return false
		}
		o.leaveOut(c.from, "%s; %s", problems[0].Message, onlyOnRequest)
		dropped = true
		return true
	})
	d.onRequest = d.onRequest || dropped
	return dropped
}

func (o *object) dropSelector(d *draft, p problem.Problem) bool {
	selector := &d.podSelector
	if strings.HasPrefix(p.Path, "spec.match.namespaceSelector") {
		selector = &d.namespaceSelector
	}
	from := d.origin[*selector]
	if *selector == nil || from == nil {
		return false
	}
	*selector, d.onRequest = nil, true
	o.leaveOut(from, "%s; %s", p.Message, onlyOnRequest)
	return true
}
