// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// changeFlow writes the changes of an object or list in flow style.
func (e *editor) changeFlow(n *yaml.Node, entries []entry) {
	begin := e.contentOffset(n)
	end := e.skipFlow(begin)
	if len(entries) == 0 {
		e.fillBrackets(begin, n)
		return
	}
	if len(n.Content) == 0 {
		e.addCut(begin+1, end-1, "")
		return
	}
	between := e.entrySeparator(n, entries)
	e.cutFlow(entries)
	size := entrySize(n)
	live := map[*yaml.Node]bool{}
	for _, child := range n.Content {
		live[child] = true
	}
	at := -1
	for i := 0; i < len(n.Content); i += size {
		if k := slices.IndexFunc(entries[at+1:], func(x entry) bool { return x.head == n.Content[i] }); k >= 0 {
			at += 1 + k
			if value := n.Content[i+size-1]; value != entries[at].value {
				e.replaceFlow(n, entries[at], value, between)
			}
			continue
		}
		text := e.flowEntries(n, n.Content[i:i+size], between)
		if at < 0 {
			first := e.offsetOf(entries[0].head)
			e.addCut(first, first, text+","+between)
		} else {
			behind := e.entryEnd(entries[at])
			if x := entries[at]; n.Kind == yaml.MappingNode && !live[x.value] && isEmpty(x.value) { // it was empty
				behind = e.keyEnd(x.head) + len(e.emptyText(x.head, x.value))
			}
			e.addCut(behind, behind, ","+between+text)
		}
	}
}

// cutFlow removes the deleted entries, each with the comma after it, or, at the end, with the
// comma before it.
func (e *editor) cutFlow(entries []entry) {
	last := len(entries)
	for last > 0 && entries[last-1].gone {
		last--
	}
	for i := range entries[:last] {
		if entries[i].gone {
			e.addCut(e.offsetOf(entries[i].head), e.offsetOf(entries[i+1].head), "")
		}
	}
	if last > 0 && last < len(entries) {
		e.addCut(e.entryEnd(entries[last-1]), e.entryEnd(entries[len(entries)-1]), "")
	}
}

func (e *editor) entryEnd(x entry) int {
	if x.value.Kind == yaml.ScalarNode && x.value.Value == "" && x.value.Style == 0 { // {a: }
		return max(e.flowEnd(x.head), min(e.offsetOf(x.value), len(e.data)))
	}
	return e.flowEnd(x.value)
}

// entrySeparator returns the white space between the entries of a flow collection: a line break and
// the indentation if each entry has its own line.
func (e *editor) entrySeparator(n *yaml.Node, entries []entry) string {
	at := e.offsetOf(entries[0].head)
	if line := e.lineOf(at); line != e.lineOf(e.offsetOf(n)) && e.isFirstOf(at, line) {
		return "\n" + string(e.data[e.starts[line-1]:at])
	}
	if len(entries) > 1 {
		if next := e.offsetOf(entries[1].head); next > 0 && !isSpace(e.data[next-1]) {
			return ""
		}
		return " "
	}
	if e.isJSON {
		return ""
	}
	return " "
}

func (e *editor) isFirstOf(at, line int) bool {
	return len(bytes.TrimLeft(e.data[e.starts[line-1]:at], " \t")) == 0
}

// flowEntries writes members or items without the brackets around them.
func (e *editor) flowEntries(n *yaml.Node, content []*yaml.Node, between string) string {
	node := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Content: content}
	if !e.isJSON {
		text := renderFlow(node)
		return text[1 : len(text)-1]
	}
	if n.Kind == yaml.MappingNode && len(content) == 2 {
		colon := ":"
		if strings.ContainsAny(between, "\n ") {
			colon = ": "
		}
		return asJSON(content[0], "", "") + colon + asJSON(content[1], between, e.jsonIndent())
	}
	if n.Kind == yaml.SequenceNode && len(content) == 1 {
		return asJSON(content[0], between, e.jsonIndent())
	}
	text := asJSON(node, "", "")
	return text[1 : len(text)-1]
}

// jsonIndent is the indentation of the document's outermost members.
func (e *editor) jsonIndent() string {
	rest := e.data[bytes.IndexByte(e.data, '{')+1:]
	for i := 0; i < len(rest) && isSpace(rest[i]); i++ {
		if rest[i] == '\n' {
			indent := i + 1
			for indent < len(rest) && (rest[indent] == ' ' || rest[indent] == '\t') {
				indent++
			}
			if indent > i+1 {
				return string(rest[i+1 : indent])
			}
		}
	}
	return "  "
}

// replaceFlow replaces an empty value, or restores one.
func (e *editor) replaceFlow(n *yaml.Node, x entry, value *yaml.Node, between string) {
	if n.Kind == yaml.SequenceNode {
		e.addCut(e.offsetOf(x.value), e.entryEnd(x), e.flowValue(value, between))
		return
	}
	start := e.keyEnd(x.head)
	if text, ok := e.texts[value]; ok {
		e.cutExact(start, e.entryEnd(x), text)
		return
	}
	text := e.emptyText(x.head, x.value)
	before, _ := splitEmpty(text)
	switch {
	case x.value.Kind != yaml.ScalarNode && x.value.Kind == value.Kind: // inside the brackets
		e.fillBrackets(start+len(before), value)
		return
	case before == "":
		before = ": "
	case strings.HasSuffix(before, ":") && !e.isJSON:
		before += " "
	}
	e.cutExact(start, start+len(text), before)
	e.addCut(start+len(text), start+len(text), e.flowValue(value, between))
}

// fillBrackets writes the content of a value into empty brackets.
func (e *editor) fillBrackets(at int, value *yaml.Node) {
	text := e.flowEntries(value, value.Content, "")
	if bytes.HasPrefix(e.data[at+1:], []byte("#")) {
		text += " "
	}
	e.addCut(at+1, at+1, text)
}

func (e *editor) flowValue(value *yaml.Node, between string) string {
	if e.isJSON {
		return asJSON(value, between, e.jsonIndent())
	}
	return renderFlow(value)
}
