// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// draft is a template that is being written.
type draft struct {
	name, namespace, description string
	// from is the part of the object that becomes this template, or nil for the whole.
	from *field
	// onRequest is true if pods get the template only if they name it.
	onRequest         bool
	order             int
	annotationDomains []string
	labelDomains      []string
	namespaceSelector *yaml.Node
	podSelector       *yaml.Node
	conditions        []condition
	hostNetwork       bool
	params            []*yaml.Node
	variables         []*yaml.Node
	pod               *yaml.Node
	each              []*yaml.Node
	// placeInit and placeContainers are First, Last or "" for the default.
	placeInit, placeContainers string
	rollout                    *yaml.Node
	// discarded is true if the object adds nothing to pods.
	discarded bool
	// origin is the fields of the input that nodes of the pod come from.
	origin map[*yaml.Node]*field
}

// condition is a part of the condition of a template.
type condition struct {
	expression string
	from       *field
}

func newDraft(name, description string) *draft {
	return &draft{name: labelOf(name), description: description, hostNetwork: true, pod: mapNode(), origin: map[*yaml.Node]*field{}}
}

// addCondition adds a part of the condition.
func (d *draft) addCondition(from *field, expression string) {
	c := condition{expression, from}
	if expression != "" && !slices.Contains(d.conditions, c) {
		d.conditions = append(d.conditions, c)
	}
}

var notLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// labelOf returns a DNS label for a name.
func labelOf(name string) string {
	const limit = 63
	name = strings.Trim(notLabel.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if len(name) > limit {
		name = strings.Trim(name[:limit], "-")
	}
	if name == "" {
		return "imported"
	}
	return name
}

// kindOf returns the kind of the template.
func (d *draft) kindOf() string {
	if d.namespace != "" {
		return v1alpha1.NamespacedKind
	}
	return v1alpha1.ClusterKind
}

// buildDocument returns the template as YAML.
func (d *draft) buildDocument() *yaml.Node {
	metadata := mapNode("name", textNode(d.name))
	if d.namespace != "" {
		setMember(metadata, "namespace", textNode(d.namespace))
	}
	spec := mapNode("description", textNode(d.description))
	if !d.onRequest {
		setMember(spec, "default", literalNode("!!bool", "true"))
	}
	if d.order != 0 {
		setMember(spec, "order", literalNode("!!int", fmt.Sprint(d.order)))
	}
	setMember(spec, "labelDomains", textList(d.labelDomains...))
	setMember(spec, "annotationDomains", textList(d.annotationDomains...))
	setMember(spec, "match", d.buildMatch())
	setMember(spec, "params", listNode(d.params...))
	setMember(spec, "variables", listNode(d.variables...))
	setMember(spec, "pod", d.podDocument())
	setMember(spec, "forEachContainer", listNode(d.each...))
	placement := mapNode()
	if d.placeInit != "" && memberOf(memberOf(d.pod, "spec"), "initContainers") != nil {
		setMember(placement, "initContainers", textNode(d.placeInit))
	}
	if d.placeContainers != "" && memberOf(memberOf(d.pod, "spec"), "containers") != nil {
		setMember(placement, "containers", textNode(d.placeContainers))
	}
	setMember(spec, "placement", nilIfEmpty(placement))
	setMember(spec, "rollout", d.rollout)
	return mapNode("apiVersion", textNode(templates.APIVersion), "kind", textNode(d.kindOf()), "metadata", metadata, "spec", spec)
}

// podDocument returns what the pod gets, with its metadata first. It returns nil if that is nothing.
func (d *draft) podDocument() *yaml.Node {
	pod := mapNode()
	for _, name := range []string{"metadata", "spec"} {
		setMember(pod, name, memberOf(d.pod, name))
	}
	return nilIfEmpty(pod)
}

// buildMatch returns which pods get the template, or nil for all.
func (d *draft) buildMatch() *yaml.Node {
	match := mapNode()
	setMember(match, "namespaceSelector", d.namespaceSelector)
	setMember(match, "podSelector", d.podSelector)
	var parts []string
	for _, c := range d.conditions {
		parts = append(parts, inParentheses(c.expression, len(d.conditions) > 1))
	}
	if len(parts) > 0 {
		setMember(match, "condition", expressionNode(strings.Join(parts, " && ")))
	}
	if d.hostNetwork {
		setMember(match, "hostNetwork", literalNode("!!bool", "true"))
	}
	return nilIfEmpty(match)
}

// writeDocument returns the YAML of a document, after the lines of a comment.
func writeDocument(n *yaml.Node, head []string) string {
	var out bytes.Buffer
	out.WriteString(commentLines(head, "# "))
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	_ = encoder.Encode(n) // all nodes of the tree can be encoded
	_ = encoder.Close()
	return wrapFolded(out.String())
}

// wrapFolded breaks the long lines of folded strings, which the encoder of YAML does not do.
func wrapFolded(text string) string {
	var out strings.Builder
	literal, folded := -1, -1 // the indentation of the line that begins a block
	for line := range strings.Lines(text) {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		end := strings.TrimRight(line, "\n")
		switch {
		case literal >= 0 && (indent > literal || end == ""):
			out.WriteString(line)
			continue
		case folded >= 0 && indent > folded:
			for _, part := range wrapWords(end[indent:], textWidth-indent) {
				out.WriteString(strings.Repeat(" ", indent) + part + "\n")
			}
			continue
		}
		literal, folded = -1, -1
		switch {
		case strings.HasSuffix(end, " >-"):
			folded = indent
		case strings.HasSuffix(end, " |"), strings.HasSuffix(end, " |-"), strings.HasSuffix(end, " |+"):
			literal = indent
		}
		out.WriteString(line)
	}
	return out.String()
}

// wrapWords breaks a string between words.
func wrapWords(text string, width int) (lines []string) {
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

func joinConditions(all []condition) string {
	var texts []string
	all = slices.DeleteFunc(slices.Clone(all), func(c condition) bool { return c.expression == "" })
	for _, c := range all {
		texts = append(texts, inParentheses(c.expression, len(all) > 1))
	}
	return strings.Join(texts, " && ")
}

// addVariable adds a named expression, unless it is there.
func (d *draft) addVariable(name, expression string) {
	if !slices.ContainsFunc(d.variables, func(n *yaml.Node) bool { return valueOf(n, "name") == name }) {
		d.variables = append(d.variables, mapNode("name", textNode(name), "expression", expressionNode(expression)))
	}
}

// addParam adds a parameter that reads an annotation of the pod.
func (d *draft) addParam(name, kind, annotation, description string) {
	d.params = append(d.params, mapNode("name", textNode(name), "type", textNode(kind), "annotation", textNode(annotation),
		"overridableBy", textList("Pod"), "default", textNode(""), "description", textNode(description)))
}

// listContainers returns the template's containers, and what it adds to others.
func (d *draft) listContainers() (all []*yaml.Node) {
	spec := memberOf(d.pod, "spec")
	all = append(all, itemsOf(memberOf(spec, "initContainers"))...)
	all = append(all, itemsOf(memberOf(spec, "containers"))...)
	for _, each := range d.each {
		all = append(all, memberOf(each, "add"))
	}
	return all
}

// dropEmptyParts removes lists and objects that became empty.
func (d *draft) dropEmptyParts() {
	for _, container := range d.listContainers() {
		for _, list := range wholeItems {
			dropEmpty(container, list)
		}
	}
	d.each = slices.DeleteFunc(d.each, func(n *yaml.Node) bool { return nilIfEmpty(memberOf(n, "add")) == nil })
	spec := memberOf(d.pod, "spec")
	for _, list := range podLists {
		dropEmpty(spec, list)
	}
	dropEmpty(spec, "securityContext")
	dropEmpty(memberOf(d.pod, "metadata"), "annotations")
	dropEmpty(memberOf(d.pod, "metadata"), "labels")
	dropEmpty(d.pod, "metadata")
	dropEmpty(d.pod, "spec")
}

// wholeItems are the lists whose items mean something else if a field is missing.
var wholeItems = []string{"env", "envFrom", "volumeMounts", "volumeDevices", "volumes", "ports", "hostAliases", "tolerations", "imagePullSecrets"}

// podLists are the lists to which a patch adds items.
var podLists = append([]string{"containers", "initContainers"}, wholeItems...)
