// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/report/terminal"
)

// Result is the result of one check.
type Result string

// The results.
const (
	OK         Result = "ok"
	Warning    Result = "warning"
	Failed     Result = "failed"
	NotChecked Result = "not checked"
)

// The groups of checks.
const (
	ofCluster  = "cluster"
	ofWebhooks = "webhooks"
	ofPillion  = "pillion"
	ofPods     = "pods"
)

// The hints that several checks have.
const (
	applyAgain   = "Apply your kustomization again:"
	applyCommand = "apply --server-side -k my-pillion"
	allowHint    = "An administrator can allow it:"
)

// Check is one check with its result.
type Check struct {
	Group   string `json:"group"`
	Name    string `json:"name"`
	Result  Result `json:"result"`
	Message string `json:"message"`
	// Details are sentences or names that the message counts.
	Details []string `json:"details,omitempty"`
	// Hint is what to do next, and Command is how. Both are missing if the result is ok.
	Hint    string `json:"hint,omitempty"`
	Command string `json:"command,omitempty"`
}

// Report has all checks in order. Its JSON is a format for scripts.
type Report struct {
	// Summary is one sentence.
	Summary string  `json:"summary"`
	Checks  []Check `json:"checks"`
}

// newReport returns the checks with their summary.
func newReport(checks []Check, c Commands) *Report {
	for i := range checks {
		checks[i].askAgain(c)
	}
	r := &Report{Checks: checks}
	var parts []string
	if n := r.countResults(Failed); n > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d checks failed", n, len(checks)))
	} else {
		parts = append(parts, fmt.Sprintf("%d of %d checks passed", r.countResults(OK), len(checks)))
	}
	if n := r.countResults(Warning); n > 0 {
		parts = append(parts, formatCount(n, "warning"))
	}
	if n := r.countResults(NotChecked); n > 0 {
		parts = append(parts, fmt.Sprintf("%d not checked", n))
	}
	r.Summary = strings.Join(parts, ", ") + "."
	if r.countResults(OK) == len(checks) {
		r.Summary = "All checks passed."
	}
	return r
}

// askAgain replaces advice about rights if these are not what is missing.
func (check *Check) askAgain(c Commands) {
	if check.Result == NotChecked && strings.Contains(check.Message, Unanswered) {
		check.Hint, check.Command = "See whether the API server is well, and check again:", c.Kubectl+" get --raw '/readyz?verbose'"
	}
}

// isForbidden reports whether a check was not made because the user lacks a right.
func (check *Check) isForbidden() bool {
	return slices.ContainsFunc(append([]string{check.Message}, check.Details...), func(text string) bool {
		return strings.Contains(strings.ToLower(text), NotAllowed)
	})
}

func (r *Report) countResults(result Result) (n int) {
	for i := range r.Checks {
		if r.Checks[i].Result == result {
			n++
		}
	}
	return n
}

// Failed reports whether a check failed.
func (r *Report) Failed() bool { return r.countResults(Failed) > 0 }

// Text returns the report for users, at most width wide: what is not ok first, with what to do about it, and each reason why something
// was not checked once. It does not wrap commands.
func (r *Report) Text(width int) string {
	p := &printer{width: width}
	p.printLine(r.Summary)
	p.printLine("")
	for _, result := range []Result{Failed, Warning} {
		for i := range r.Checks {
			if c := &r.Checks[i]; c.Result == result {
				p.printCheck(c.Name, c)
			}
		}
	}
	p.printPassed(r)
	p.printUnchecked(r.Checks)
	return p.String()
}

// AllText returns all of the report for users, in groups.
func (r *Report) AllText(width int) string {
	p := &printer{width: width}
	p.printLine(r.Summary)
	group := ""
	for i := range r.Checks {
		c := &r.Checks[i]
		if c.Group != group {
			group = c.Group
			p.printLine("\n" + group)
		}
		p.printCheck(c.Name, c)
	}
	return p.String()
}

// printer collects the lines of a report.
type printer struct {
	strings.Builder

	width int
}

// indent is where the text of a check begins, after its result.
const indent = 13

func (p *printer) printLine(line string) { p.WriteString(line + "\n") }

// printResult prints lines after a result.
func (p *printer) printResult(result Result, lines []string) {
	head := string(result)
	for _, line := range lines {
		fmt.Fprintf(p, "%-*s%s\n", indent, head, line)
		head = ""
	}
}

// printCheck prints all of a check, or of several with the same reason.
func (p *printer) printCheck(names string, c *Check) {
	lines := terminal.Wrap(names+": "+c.Message, p.width-indent)
	for _, detail := range c.Details {
		for k, line := range terminal.Wrap(detail, p.width-indent-2) {
			lines = append(lines, map[bool]string{true: "- ", false: "  "}[k == 0]+line)
		}
	}
	if c.Hint != "" {
		lines = append(lines, terminal.Wrap(c.Hint, p.width-indent)...)
	}
	if c.Command != "" {
		lines = append(lines, "  "+strings.Join(terminal.Wrap(c.Command, len(c.Command)), " "))
	}
	p.printResult(c.Result, lines)
}

// printPassed prints the checks that are ok: what each of them found, or if another one failed their names, because then the failure is
// what users look for.
func (p *printer) printPassed(r *Report) {
	var names []string
	for i := range r.Checks {
		c := &r.Checks[i]
		if c.Result != OK {
			continue
		}
		if names = append(names, c.Name); !r.Failed() {
			p.printCheck(c.Name, c)
		}
	}
	if r.Failed() && len(names) > 0 {
		p.printResult(OK, terminal.Wrap(strings.Join(names, ", "), p.width-indent))
	}
}

// printUnchecked prints each reason why something was not checked once, and lacking rights last, because most users can do nothing about
// these.
func (p *printer) printUnchecked(checks []Check) {
	var forbidden, allow []string
	names := map[string][]string{} // by the reason
	for i := range checks {
		switch c := &checks[i]; {
		case c.Result != NotChecked:
		case c.isForbidden():
			forbidden = append(forbidden, c.Name)
			if c.Hint == allowHint {
				allow = []string{"An administrator can let you read templates and webhook configurations:", "  " + c.Command}
			}
		default:
			names[c.Message] = append(names[c.Message], c.Name)
		}
	}
	for i := range checks {
		c := &checks[i]
		if same := names[c.Message]; c.Result == NotChecked && len(same) > 0 && same[0] == c.Name {
			p.printCheck(strings.Join(same, ", "), c)
		}
	}
	if len(forbidden) > 0 {
		p.printResult(NotChecked, slices.Concat(
			terminal.Wrap(strings.Join(forbidden, ", ")+": you lack the rights", p.width-indent),
			terminal.Wrap("Ask an administrator to run this command. With -v, it prints which rights these are.", p.width-indent), allow))
	}
}
