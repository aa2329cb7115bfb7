// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strings"
	"text/template/parse"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// parseGoTemplate returns the tree of a template. The error is about the text as a whole.
func parseGoTemplate(f *field, d *draft, values chartValues) (*field, []mark, error) {
	t := &goTemplate{d: d, values: values, vars: map[string]goValue{}, text: f.node.Value}
	tree := parse.New(f.name)
	tree.Mode = parse.SkipFuncCheck
	if _, err := tree.Parse(f.node.Value, "", "", map[string]*parse.Tree{}); err != nil {
		return nil, nil, fmt.Errorf("this is not a template of Go: %s", strings.TrimPrefix(err.Error(), "template: "))
	}
	t.newLine(1)
	if tree.Root != nil {
		t.writeNode(tree.Root)
	}
	doc, err := parseDocument(t.out.String())
	if err != nil {
		line, message := jsontree.CutLine(strings.TrimPrefix(err.Error(), "yaml: "))
		if line > 0 && line <= len(t.lines) {
			line = t.lines[line-1].line
		}
		return nil, t.alone, fmt.Errorf("line %d: without its actions, the template is not YAML: %s", f.firstLine()+max(line, 1)-1, message)
	}
	if doc.Kind == 0 {
		return nil, t.alone, fmt.Errorf("the template is empty")
	}
	root, err := newField(doc.Content[0])
	if err != nil {
		return nil, t.alone, err
	}
	t.resolveField(root, nil, f.firstLine()-1)
	root.rebasePaths("", f.path+inside)
	root.parent = f
	f.children, f.read, f.embedded = []*field{root}, true, true
	for i := range t.alone {
		t.alone[i].line += f.firstLine() - 1
	}
	return root, t.alone, nil
}

// writeNode writes a node of the template.
func (t *goTemplate) writeNode(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for i, child := range n.Nodes {
			if action, ok := child.(*parse.ActionNode); ok {
				t.writeAction(action, t.isAlone(n.Nodes, i))
				continue
			}
			t.writeNode(child)
		}
	case *parse.TextNode:
		t.writeText(string(n.Text), t.lineAt(n.Pos))
	case *parse.IfNode:
		t.writeBranches(n)
	case *parse.RangeNode:
		t.rangeOver(n)
	case *parse.WithNode:
		for _, list := range []*parse.ListNode{n.List, n.ElseList} {
			t.writeGuarded(guardOf{impossible: "pillion import does not know {{ with }}"}, list)
		}
	case *parse.CommentNode:
	default:
		t.putMark(mark{line: t.lineAt(n.Position()), source: n.String(), impossible: "pillion import does not know this action; write what it does in CEL"})
	}
}

// isAlone reports whether an action makes lines of its own.
func (t *goTemplate) isAlone(nodes []parse.Node, i int) bool {
	for _, cmd := range nodes[i].(*parse.ActionNode).Pipe.Cmds {
		if name, ok := cmd.Args[0].(*parse.IdentifierNode); ok && slices.Contains([]string{"toYaml", "indent", "nindent"}, name.Ident) {
			return true
		}
	}
	if t.lines[len(t.lines)-1].filled {
		return false
	}
	if i+1 == len(nodes) {
		return true
	}
	next, ok := nodes[i+1].(*parse.TextNode)
	return ok && strings.HasPrefix(strings.TrimLeft(string(next.Text), " "), "\n")
}

// writeAction writes the value of an action.
func (t *goTemplate) writeAction(n *parse.ActionNode, alone bool) {
	line := t.lineAt(n.Pos)
	v, err := t.pipeValue(n.Pipe)
	if len(n.Pipe.Decl) > 0 {
		if err != nil || n.Pipe.IsAssign {
			v = goValue{impossible: "pillion import does not know the value of " + n.Pipe.Decl[0].Ident[0]}
		}
		t.setVar(n.Pipe.Decl[0].Ident[0], v, n.Pipe.IsAssign)
		return
	}
	m := mark{line: line, source: n.String()}
	switch {
	case err != nil:
		m.impossible = err.Error()
	case v.impossible != "":
		m.impossible = v.impossible
	case v.missing:
		m.impossible = "the values in the input do not have it; import the template together with the values of the installation"
	case v.static != nil:
		t.writeText(fmt.Sprint(v.static), line)
		return
	default:
		m.expression, m.fieldPath, m.number = v.asText(), v.fieldPath, v.number
	}
	if alone {
		if m.impossible == "" {
			m.impossible = "an expression in a template makes a value, and not lines of YAML"
		}
		t.alone = append(t.alone, m)
		return
	}
	t.putMark(m)
}

// writeBranches writes both branches of an {{ if }}. Inside a line, it becomes one expression.
func (t *goTemplate) writeBranches(n *parse.IfNode) {
	line := t.lineAt(n.Pos)
	v, err := t.pipeValue(n.Pipe)
	test, impossible := "", ""
	switch {
	case err != nil:
		impossible = err.Error()
	case v.impossible != "":
		impossible = v.impossible
	case v.fieldPath != "":
		impossible = "a pod has no name yet when it is created"
	case v.static != nil:
		if isTrue(v.static) {
			t.writeBlock(n.List)
		} else if n.ElseList != nil {
			t.writeBlock(n.ElseList)
		}
		return
	default:
		test = v.asTest()
	}
	if t.lines[len(t.lines)-1].filled && !beginsLine(n.List) {
		t.inlineBranches(n, line, test, impossible)
		return
	}
	t.writeGuarded(guardOf{condition: test, impossible: impossible}, n.List)
	if n.ElseList != nil {
		t.writeGuarded(guardOf{condition: "!(" + test + ")", impossible: impossible}, n.ElseList)
	}
}

// beginsLine reports whether nodes begin with the end of a line.
func beginsLine(list *parse.ListNode) bool {
	if list == nil || len(list.Nodes) == 0 {
		return false
	}
	text, ok := list.Nodes[0].(*parse.TextNode)
	return ok && strings.HasPrefix(strings.TrimLeft(string(text.Text), " "), "\n")
}

// writeGuarded writes nodes with a condition.
func (t *goTemplate) writeGuarded(g guardOf, list *parse.ListNode) {
	t.guards = append(t.guards, g)
	t.writeBlock(list)
	t.guards = t.guards[:len(t.guards)-1]
}

// writeBlock writes nodes whose declarations end with them.
func (t *goTemplate) writeBlock(list *parse.ListNode) {
	defer t.endBlock(len(t.shadowed))
	t.writeNode(list)
}

// endBlock restores the variables that are shadowed since there were this many.
func (t *goTemplate) endBlock(outer int) {
	for _, s := range slices.Backward(t.shadowed[outer:]) {
		if t.vars[s.name] = s.value; !s.exists {
			delete(t.vars, s.name)
		}
	}
	t.shadowed = t.shadowed[:outer]
}

// setVar sets the value of a variable. A declaration counts until the end of its block.
func (t *goTemplate) setVar(name string, v goValue, assign bool) {
	if !assign {
		old, ok := t.vars[name]
		t.shadowed = append(t.shadowed, shadowedVar{name, old, ok})
	}
	t.vars[name] = v
}

// inlineBranches writes an {{ if }} inside a line as one mark.
func (t *goTemplate) inlineBranches(n *parse.IfNode, line int, test, impossible string) {
	m := mark{line: line, source: n.String(), impossible: impossible}
	var texts []string
	for _, list := range []*parse.ListNode{n.List, n.ElseList} {
		text, err := t.inlineText(list)
		if err != nil && m.impossible == "" {
			m.impossible = err.Error()
		}
		texts = append(texts, text)
	}
	m.expression = test + " ? " + texts[0] + " : " + texts[1]
	t.putMark(m)
}

// inlineText returns text and actions as one expression for a string.
func (t *goTemplate) inlineText(list *parse.ListNode) (string, error) {
	if list == nil || len(list.Nodes) == 0 {
		return "''", nil
	}
	var parts []string
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			if strings.Contains(string(n.Text), "\n") {
				return "", fmt.Errorf("the condition begins inside a line and has several lines")
			}
			parts = append(parts, celString(string(n.Text)))
		case *parse.ActionNode:
			v, err := t.pipeValue(n.Pipe)
			if err != nil || v.impossible != "" || v.fieldPath != "" {
				return "", fmt.Errorf("pillion import does not know the value of %s", n)
			}
			parts = append(parts, v.asText())
		default:
			return "", fmt.Errorf("pillion import does not know %s inside a line", n)
		}
	}
	return strings.Join(parts, " + "), nil
}

// rangeOver writes what a template has for each container of the pod.
func (t *goTemplate) rangeOver(n *parse.RangeNode) {
	g := guardOf{impossible: "pillion import knows {{ range }} only for the containers of the pod; write the items with \"${forEach}\""}
	list := strings.TrimPrefix(n.Pipe.String(), strings.Join(declaredVariables(n.Pipe), ", ")+" := ")
	if list == ".Spec.Containers" || list == ".Spec.InitContainers" {
		g = guardOf{loop: true, inits: list == ".Spec.InitContainers"}
		outer := len(t.shadowed)
		if names := declaredVariables(n.Pipe); len(names) > 0 {
			t.setVar(names[len(names)-1], goValue{container: true}, false)
		}
		t.setVar(".", goValue{container: true}, false)
		defer t.endBlock(outer)
	}
	t.writeGuarded(g, n.List)
	if n.ElseList != nil {
		t.writeGuarded(guardOf{impossible: "a pod always has containers"}, n.ElseList)
	}
}

func declaredVariables(p *parse.PipeNode) (names []string) {
	for _, d := range p.Decl {
		names = append(names, d.Ident[0])
	}
	return names
}
