// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
)

// goTemplate turns an injection template of Istio, which is text with actions, into a tree of fields. Each action becomes a mark
// in the text. The text is then read as YAML, and each mark becomes an expression. Lines inside {{ if }} have its condition.
type goTemplate struct {
	d      *draft
	values chartValues
	out    strings.Builder
	lines  []lineOrigin
	marks  []mark
	guards []guardOf // that are open
	vars   map[string]goValue
	// shadowed are the variables that a declaration in an inner block replaced.
	shadowed []shadowedVar
	// alone are actions that are a line of their own, which no field can have.
	alone []mark
	text  string
}

// chartValues are the values of Istio's chart.
type chartValues struct {
	all any
	// complete is true if they include the defaults of the chart.
	complete bool
}

// shadowedVar is a variable outside a block that has another one of the same name.
type shadowedVar struct {
	name   string
	value  goValue
	exists bool
}

// lineOrigin is where a line of the text comes from.
type lineOrigin struct {
	line   int
	guards []guardOf
	filled bool // it has something besides spaces
}

// guardOf is a condition around lines.
type guardOf struct {
	condition  string
	impossible string // why there is none
	loop       bool   // the lines are for each container
	inits      bool   // the containers are init containers
}

// mark is an action in the text.
type mark struct {
	line       int
	source     string
	expression string
	fieldPath  string // of the downward API
	impossible string
	number     bool // the value is a number if it is not in quotes
}

// lineAt returns the line of a position in the template.
func (t *goTemplate) lineAt(p parse.Pos) int {
	return 1 + strings.Count(t.text[:min(int(p), len(t.text))], "\n")
}

// writeText adds text, whose first line is the given one.
func (t *goTemplate) writeText(text string, line int) {
	for i, part := range strings.Split(text, "\n") {
		if i > 0 {
			t.out.WriteByte('\n')
			t.newLine(line + i)
		}
		if strings.TrimSpace(part) != "" {
			last := &t.lines[len(t.lines)-1]
			if !last.filled {
				last.line, last.guards, last.filled = line+i, slices.Clone(t.guards), true
			}
		}
		t.out.WriteString(part)
	}
}

func (t *goTemplate) newLine(line int) {
	t.lines = append(t.lines, lineOrigin{line: line, guards: slices.Clone(t.guards)})
}

// markText is how an action looks in the text.
func markText(i int) string { return "pillionMark" + strconv.Itoa(i) + "End" }

var markPattern = regexp.MustCompile(`pillionMark(\d+)End`)

// putMark adds a mark to the text.
func (t *goTemplate) putMark(m mark) {
	t.writeText(markText(len(t.marks)), m.line)
	t.marks = append(t.marks, m)
}

// restoreActions returns a string with the actions in place of their marks.
func (t *goTemplate) restoreActions(text string) string {
	return markPattern.ReplaceAllStringFunc(text, func(m string) string {
		i, _ := strconv.Atoi(markPattern.FindStringSubmatch(m)[1])
		return t.marks[i].source
	})
}

// goValue is the value of an action: a constant, or an expression of CEL.
type goValue struct {
	static     any
	expression string
	test       string // the condition that the value is true, if it is not that of a string
	isBool     bool
	number     bool   // of a string that is a number by default
	fieldPath  string // of the downward API, for what is not known when a pod is created
	container  bool   // a container of the pod
	isMap      bool   // labels or annotations
	impossible string
	missing    bool // in the values of the chart
}
