// SPDX-License-Identifier: Apache-2.0

// Package templatetest tests templates. A file of the kind [templates.TestKind] contains cases: a pod, and
// what Pillion is expected to do with it. [Parse] reads such a file, and [Case.Run] compares one
// case with what the engine does. The package is pure; its caller reads the files.
package templatetest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/problem"
)

// Suite is a file of cases.
type Suite struct {
	// Templates are files and folders, relative to the folder of the suite.
	Templates []string
	Cases     []Case

	doc *templates.Document
}

// document is the YAML document.
type document struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Templates  []string         `json:"templates"`
	Pod        fragment.PodJSON `json:"pod"`       // of cases that have neither pod nor file
	Namespace  *Namespace       `json:"namespace"` // of cases that have none
	// ServiceAccount is that of cases that have none.
	ServiceAccount *ServiceAccount `json:"serviceAccount"`
	Cases          []Case          `json:"cases"`
}

// Case is a pod with what is expected.
type Case struct {
	Name string           `json:"name"`
	Pod  fragment.PodJSON `json:"pod"`
	// File is a manifest with the pod or a workload, relative to the folder of the suite.
	File string `json:"file"`
	// Annotations and Labels are set in the metadata of the pod.
	Annotations map[string]string `json:"annotations"`
	Labels      map[string]string `json:"labels"`
	Namespace   *Namespace        `json:"namespace"`
	// ServiceAccount is the pod's. Without it, only those in File are known.
	ServiceAccount *ServiceAccount `json:"serviceAccount"`
	Expect         Expect          `json:"expect"`

	Line   int `json:"-"`
	index  int
	values []value
}

// Namespace is the pod's namespace.
type Namespace struct {
	Name string `json:"name"`
	// Labels are all labels, or nil if they are not known. The namespace then counts as opted in.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// ServiceAccount is the pod's ServiceAccount.
type ServiceAccount struct {
	// Name is that of the pod's ServiceAccount, or "".
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Expect is what a case expects. What it does not mention may be anything, except for Warnings.
type Expect struct {
	// Decisions are the codes by template: "CODE", or "CODE: a part of the sentence".
	Decisions map[string]string `json:"decisions"`
	// Warnings are the codes of all findings about the pod's labels and annotations, like Decisions.
	Warnings []string `json:"warnings"`
	// Values are the values at paths in the injected pod. Null means that there is nothing.
	Values map[string]json.RawMessage `json:"values"`
	// Verdict is the validating webhook's about the injected pod: allowed, warned or denied.
	Verdict string `json:"verdict"`
	// Findings are the codes of its findings, like Decisions.
	Findings []string `json:"findings"`
	// Pod is the injected pod, and Golden a file with it.
	Pod    fragment.PodJSON `json:"pod"`
	Golden string           `json:"golden"`
}

// Parse reads a suite and checks it.
func Parse(file string, data []byte) (*Suite, problem.Problems) {
	var d document
	doc, problems := templates.Decode(file, data, templates.TestKind, &d)
	if len(problems) > 0 {
		return nil, problems
	}
	s := &Suite{d.Templates, d.Cases, doc}
	report := func(message string, path ...any) { problems = append(problems, doc.Problem(message, path...)) }
	if len(s.Templates) == 0 {
		report("is missing; name the files or folders of the templates, relative to the folder of this file", "templates")
	}
	if len(s.Cases) == 0 {
		report("is missing; write at least one case", "cases")
	}
	names := map[string]bool{}
	for i := range s.Cases {
		c := &s.Cases[i]
		c.index, c.Line = i, doc.Problem("", "cases", i).Line
		if c.Pod == nil && c.File == "" {
			c.Pod = d.Pod
		}
		if c.Namespace == nil {
			c.Namespace = d.Namespace
		}
		if c.ServiceAccount == nil {
			c.ServiceAccount = d.ServiceAccount
		}
		if names[c.Name] {
			report(fmt.Sprintf("another case has the name %q too", c.Name), "cases", i, "name")
		}
		names[c.Name] = true
		c.checkFields(func(message string, path ...any) { report(message, append([]any{"cases", i}, path...)...) })
	}
	slices.SortStableFunc(problems, func(a, b problem.Problem) int { return a.Line - b.Line })
	return s, problems
}

// checkFields reports what is wrong with a case.
func (c *Case) checkFields(report func(message string, path ...any)) {
	e := &c.Expect
	if c.Name == "" {
		report("is missing; describe what the case shows", "name")
	}
	switch {
	case c.Pod == nil && c.File == "":
		report("the case has no pod; give it pod or file")
	case c.Pod != nil && c.File != "":
		report("the case has a pod too", "file")
	}
	if len(e.Decisions)+len(e.Values)+len(e.Warnings) == 0 && e.Findings == nil && e.Pod == nil && e.Golden == "" && e.Verdict == "" {
		report("is missing; expect decisions, values, pod, golden, warnings, verdict or findings", "expect")
	}
	if e.Pod != nil && e.Golden != "" {
		report("the case expects a pod too", "expect", "golden")
	}
	if e.Golden != "" && !fs.ValidPath(path.Clean(e.Golden)) {
		report("must be a file below the folder of the test file", "expect", "golden")
	}
	decisions := inject.DecisionCodes()
	for _, name := range slices.Sorted(maps.Keys(e.Decisions)) {
		if problem := checkCode(e.Decisions[name], decisions); problem != "" {
			report(problem, "expect", "decisions", name)
		}
	}
	for i, warning := range e.Warnings {
		if problem := checkCode(warning, []inject.Code{inject.CodeUnknownTemplate, inject.CodeUnknownParameter, inject.CodeMisplaced}); problem != "" {
			report(problem, "expect", "warnings", i)
		}
	}
	if verdicts := []string{"allowed", "warned", "denied"}; e.Verdict != "" && !slices.Contains(verdicts, e.Verdict) {
		report(fmt.Sprintf("unknown verdict %q; it must be one of %s%s", e.Verdict, strings.Join(verdicts, ", "), problem.DidYouMean(e.Verdict, verdicts)), "expect", "verdict")
	}
	for i, finding := range e.Findings {
		if problem := checkCode(finding, inject.FindingCodes()); problem != "" {
			report(problem, "expect", "findings", i)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(e.Values)) {
		steps, err := parsePath(path)
		if err != nil {
			report(err.Error(), "expect", "values", path)
		}
		c.values = append(c.values, value{path, steps, e.Values[path]})
	}
}

// checkCode returns what is wrong with "CODE" or "CODE: a part of the sentence", or "".
func checkCode(expected string, known []inject.Code) string {
	code, _ := cutCode(expected)
	names := make([]string, len(known))
	for i := range known {
		names[i] = string(known[i])
	}
	if slices.Contains(names, code) {
		return ""
	}
	hint := problem.DidYouMean(code, names)
	if hint == "" {
		hint = "; it must be one of " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("unknown code %q%s", code, hint)
}

func cutCode(expected string) (code, sentence string) {
	code, sentence, _ = strings.Cut(expected, ":")
	return code, strings.TrimSpace(sentence)
}

// Check returns the names of templates in the cases that are not in the set.
func (s *Suite) Check(set *templates.Set) (problems problem.Problems) {
	var names []string
	for _, t := range set.Templates {
		names = append(names, t.Name)
	}
	for i := range s.Cases {
		for _, name := range slices.Sorted(maps.Keys(s.Cases[i].Expect.Decisions)) {
			if !slices.Contains(names, name) {
				problems = append(problems, s.doc.Problem("no template has this name"+problem.DidYouMean(name, names), "cases", i, "expect", "decisions", name))
			}
		}
	}
	return problems
}

// Problem returns a problem at a path of keys and indexes of the suite.
func (s *Suite) Problem(message string, path ...any) problem.Problem {
	return s.doc.Problem(message, path...)
}

// CaseProblem returns a problem with a case.
func (s *Suite) CaseProblem(c *Case, message string) problem.Problem {
	return s.doc.Problem(message, "cases", c.index)
}
