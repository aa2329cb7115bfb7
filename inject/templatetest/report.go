// SPDX-License-Identifier: Apache-2.0

package templatetest

import (
	"fmt"
	"html"
	"strings"
	"unicode"

	"github.com/pillion-dev/pillion/templates/problem"
)

// Report is the result of all suites. Its JSON is a stable format for scripts.
type Report struct {
	Suites []FileReport `json:"suites"`
	Cases  int          `json:"cases"`
	Failed int          `json:"failed"`
	// Updated are the golden files that were written.
	Updated []string `json:"updated,omitempty"`
}

// FileReport is the result of one suite.
type FileReport struct {
	File   string       `json:"file"`
	Failed int          `json:"failed"`
	Cases  []CaseReport `json:"cases"`
}

// CaseReport is the result of one case. It passes if there are no failures.
type CaseReport struct {
	Name     string    `json:"name"`
	Line     int       `json:"line"`
	Failures []Failure `json:"failures,omitempty"`
	// Skipped are the reasons why templates are not injected, if there are failures.
	Skipped []string `json:"skipped,omitempty"`
}

// Failure is a difference between what a case expects and what happens.
type Failure struct {
	What    string `json:"what"` // for example expect.decisions.log-agent
	Message string `json:"message"`
	Diff    string `json:"diff,omitempty"`
}

// Add adds the result of a suite.
func (r *Report) Add(s FileReport) {
	for i := range s.Cases {
		if len(s.Cases[i].Failures) > 0 {
			s.Failed++
		}
	}
	r.Suites = append(r.Suites, s)
	r.Cases += len(s.Cases)
	r.Failed += s.Failed
}

// Text returns a line for each suite and each failure. It calls fold for sentences, not for diffs.
func (r *Report) Text(fold func(string) string) string {
	var b strings.Builder
	for _, path := range r.Updated {
		b.WriteString(fold("updated "+path) + "\n")
	}
	for i := range r.Suites {
		s := &r.Suites[i]
		word := "ok  "
		if s.Failed > 0 {
			word = "FAIL"
		}
		fmt.Fprintf(&b, "%s  %s  %s\n", word, s.File, countCases(len(s.Cases), s.Failed))
		for k := range s.Cases {
			b.WriteString(s.Cases[k].failureText(s.File, fold))
		}
	}
	if len(r.Suites) > 1 {
		b.WriteString(countCases(r.Cases, r.Failed) + "\n")
	}
	return b.String()
}

func countCases(cases, failed int) string {
	text := fmt.Sprintf("%d cases", cases)
	if cases == 1 {
		text = "1 case"
	}
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	return text
}

// failureText returns "file:line: name: what: message" for each failure, with the diff below.
func (c *CaseReport) failureText(file string, fold func(string) string) string {
	var b strings.Builder
	for _, f := range c.Failures {
		b.WriteString(fold(fmt.Sprintf("%s:%d: %s: %s", file, c.Line, problem.OneLine(c.Name), f.sentence())) + "\n")
		for line := range strings.Lines(f.Diff) {
			b.WriteString("    " + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	for _, sentence := range c.Skipped {
		b.WriteString(fold("    "+problem.OneLine(sentence)) + "\n")
	}
	return b.String()
}

func (f *Failure) sentence() string { return problem.OneLine(f.What + ": " + f.Message) }

// JUnit returns the report as XML in the format that CI systems read.
func (r *Report) JUnit() string {
	var b strings.Builder
	b.WriteString("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n")
	fmt.Fprintf(&b, "<testsuites name=\"pillion test\" tests=\"%d\" failures=\"%d\">\n", r.Cases, r.Failed)
	for i := range r.Suites {
		s := &r.Suites[i]
		fmt.Fprintf(&b, "  <testsuite name=\"%s\" tests=\"%d\" failures=\"%d\">\n", escapeXML(s.File), len(s.Cases), s.Failed)
		for _, c := range s.Cases {
			fmt.Fprintf(&b, "    <testcase classname=\"%s\" name=\"%s\" file=\"%s\" line=\"%d\"", escapeXML(s.File), escapeXML(c.Name), escapeXML(s.File), c.Line)
			if len(c.Failures) == 0 {
				b.WriteString("/>\n")
				continue
			}
			b.WriteString(">\n")
			var all strings.Builder // one element, because many readers expect at most one
			for _, f := range c.Failures {
				all.WriteString(f.sentence() + "\n" + f.Diff)
			}
			for _, sentence := range c.Skipped {
				all.WriteString(problem.OneLine(sentence) + "\n")
			}
			fmt.Fprintf(&b, "      <failure message=\"%s\">%s</failure>\n    </testcase>\n", escapeXML(c.Failures[0].sentence()), escapeXML(all.String()))
		}
		b.WriteString("  </testsuite>\n")
	}
	return b.String() + "</testsuites>\n"
}

// escapeXML returns a string for XML, which has no control characters.
func escapeXML(text string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || r == '\uFFFE' || r == '\uFFFF' {
			return unicode.ReplacementChar
		}
		return r
	}, text))
}
