// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
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
		parts = append(parts, "no check failed")
	}
	if n := r.countResults(Warning); n > 0 {
		parts = append(parts, formatCount(n, "warning"))
	}
	if n := r.countResults(NotChecked); n > 0 {
		parts = append(parts, fmt.Sprintf("%d not checked", n))
	}
	r.Summary = strings.Join(parts, ", ") + "."
	if r.countResults(OK) == len(checks) {
		r.Summary = "all checks passed."
	}
	r.Summary = strings.ToUpper(r.Summary[:1]) + r.Summary[1:]
	return r
}

// askAgain replaces advice about rights if these are not what is missing.
func (check *Check) askAgain(c Commands) {
	if check.Result == NotChecked && strings.Contains(check.Message, Unanswered) {
		check.Hint, check.Command = "See whether the API server is well, and check again:", c.Kubectl+" get --raw '/readyz?verbose'"
	}
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

// Text returns the report for users, at most width wide. It does not wrap commands.
func (r *Report) Text(width int) string {
	const indent = 15
	margin := strings.Repeat(" ", indent)
	var out strings.Builder
	group := ""
	for i := range r.Checks {
		c := &r.Checks[i]
		if c.Group != group {
			group = c.Group
			fmt.Fprintln(&out, group)
		}
		head := fmt.Sprintf("  %-13s", c.Result)
		lines := terminal.Wrap(c.Name+": "+c.Message, width-indent)
		for _, detail := range c.Details {
			for k, line := range terminal.Wrap(detail, width-indent-2) {
				lines = append(lines, map[bool]string{true: "- ", false: "  "}[k == 0]+line)
			}
		}
		if c.Hint != "" {
			lines = append(lines, terminal.Wrap(c.Hint, width-indent)...)
		}
		if c.Command != "" {
			lines = append(lines, "  "+strings.Join(terminal.Wrap(c.Command, len(c.Command)), " "))
		}
		for _, line := range lines {
			fmt.Fprintln(&out, head+line)
			head = margin
		}
	}
	fmt.Fprintln(&out, "\n"+r.Summary)
	return out.String()
}
