// SPDX-License-Identifier: Apache-2.0

package templatetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Input is what a case is run with.
type Input struct {
	Request inject.Request // to create the pod
	// Findings are warnings about the workload around the pod.
	Findings []inject.Finding
	// Golden is the content of the file that the case expects; nil if there is none.
	Golden []byte
	// Undo returns the manifest, and what is left of it after inject and uninject. It is nil if that
	// may be something else.
	Undo func() (was, is []byte, err error)
}

// Outcome is the outcome of a case.
type Outcome struct {
	Failures []Failure
	// Pod is the content of a golden file.
	Pod string
	// Skipped are sentences about templates that are not injected, except if the case expects that
	// or the pod does not request them.
	Skipped []string
}

// Report returns the report about a case with this outcome.
func (o *Outcome) Report(c *Case) CaseReport {
	r := CaseReport{Name: c.Name, Line: c.Line, Failures: o.Failures}
	if len(o.Failures) > 0 {
		r.Skipped = o.Skipped
	}
	return r
}

// Run runs a case and compares. It returns an error if the case cannot be run.
func (c *Case) Run(injector *inject.Injector, in Input) (*Outcome, error) {
	result, err := injector.Inject(in.Request)
	if err != nil {
		return nil, err
	}
	injected := result.InjectedJSON()
	pod, err := jsontree.Parse(injected)
	if err != nil {
		return nil, err
	}
	o := &Outcome{Pod: podYAML(injected)}
	o.compareDecisions(c.Expect.Decisions, result.Decisions)
	o.compareWarnings(c.Expect.Warnings, slices.Concat(result.Findings, in.Findings))
	for i := range c.values {
		if f := c.values[i].compareIn(pod); f != nil {
			o.Failures = append(o.Failures, *f)
		}
	}
	switch {
	case c.Expect.Pod != nil:
		o.comparePod("expect.pod", podYAML(c.Expect.Pod))
	case c.Expect.Golden != "" && in.Golden == nil:
		o.addFailure(goldenPlace, "there is no file %s; --update writes it", c.Expect.Golden)
	case c.Expect.Golden != "":
		o.comparePod(goldenPlace+" "+c.Expect.Golden, string(in.Golden))
	}
	return o, o.checkPromises(injector, in, result, &c.Expect)
}

// goldenPlace is the place of failures about the golden file.
const goldenPlace = "expect.golden"

// OnlyGolden reports whether the case would pass with another golden file.
func (o *Outcome) OnlyGolden() bool {
	return !slices.ContainsFunc(o.Failures, func(f Failure) bool { return !strings.HasPrefix(f.What, goldenPlace) })
}

func (o *Outcome) addFailure(what, format string, args ...any) {
	o.Failures = append(o.Failures, Failure{What: what, Message: fmt.Sprintf(format, args...)})
}

func (o *Outcome) compareDecisions(want map[string]string, got []inject.Decision) {
	for i := range got {
		d := &got[i]
		if _, expected := want[d.Template]; !expected && !d.Code.Succeeded() && d.Code != inject.CodeNotRequested {
			o.Skipped = append(o.Skipped, fmt.Sprintf("%s is %s: %s", d.Template, d.Code, d.Sentence()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		i := slices.IndexFunc(got, func(d inject.Decision) bool { return d.Template == name })
		if i < 0 {
			continue // Suite.Check reports it
		}
		if d := &got[i]; !matchesCode(want[name], d.Code, d.Sentence()) {
			o.addFailure("expect.decisions."+name, "must be %s, but is %s: %s", want[name], d.Code, d.Sentence())
		}
	}
}

// matchesCode compares "CODE" or "CODE: a part of the sentence" with a code and a sentence.
func matchesCode(want string, code inject.Code, sentence string) bool {
	name, part := cutCode(want)
	return name == string(code) && strings.Contains(sentence, part)
}

// compareWarnings compares all findings, because a misspelled annotation would otherwise go unnoticed.
func (o *Outcome) compareWarnings(want []string, got []inject.Finding) {
	unexpected, missing := matchFindings(want, got)
	for _, f := range unexpected {
		o.addFailure("expect.warnings", "unexpected warning %s: %s", f.Code, f.Message)
	}
	for _, w := range missing {
		o.addFailure("expect.warnings", "there is no warning %s", w)
	}
}

// matchFindings returns the findings that are not expected, and the expected ones that are missing.
func matchFindings(want []string, got []inject.Finding) (unexpected []*inject.Finding, missing []string) {
	missing = slices.Clone(want)
	for i := range got {
		f := &got[i]
		k := slices.IndexFunc(missing, func(w string) bool { return matchesCode(w, f.Code, f.Message) })
		if k < 0 {
			unexpected = append(unexpected, f)
			continue
		}
		missing = slices.Delete(missing, k, k+1)
	}
	return unexpected, missing
}

// compareVerdict compares the verdict about the injected pod, as an API server stores it.
func (o *Outcome) compareVerdict(want *Expect, got *inject.Verdict) {
	if want.Verdict != "" && want.Verdict != got.Word() {
		o.addFailure("expect.verdict", "must be %s, but is %s%s", want.Verdict, got.Word(), denialOf(got))
	}
	if want.Findings == nil {
		return
	}
	unexpected, missing := matchFindings(want.Findings, got.Judged)
	for _, f := range unexpected {
		o.addFailure("expect.findings", "unexpected finding %s", f)
	}
	for _, w := range missing {
		o.addFailure("expect.findings", "there is no finding %s", w)
	}
}

func denialOf(v *inject.Verdict) string {
	if len(v.Judged) == 0 {
		return ""
	}
	return ": " + inject.Denial(v.Judged)
}

// comparePod compares the injected pod with the expected one.
func (o *Outcome) comparePod(what, want string) {
	if d := diffLines(want, o.Pod); d != "" {
		o.Failures = append(o.Failures, Failure{What: what, Message: "the injected pod differs", Diff: d})
	}
}

// checkPromises checks what holds for every template and pod.
func (o *Outcome) checkPromises(injector *inject.Injector, in Input, first *inject.Result, want *Expect) error {
	before, err := jsontree.Parse(in.Request.Object)
	if err != nil {
		return err
	}
	injected := first.InjectedJSON()
	after, err := jsontree.Parse(injected)
	if err != nil {
		return err
	}
	if _, err := first.AppendVerified(nil, &jsontree.Verifier{}); err != nil {
		o.addFailure("promise: only adds", "%v", err)
	} else if !schema.Pod().Contains(after, before) {
		o.addFailure("promise: only adds", "the injected pod lacks something of the original pod")
	}
	req := in.Request
	req.Object = injected
	again, err := o.checkSecondInjection(injector, req)
	if err != nil {
		return err
	}
	// In a cluster, the second call and the validating webhook see what the API server stores.
	if req.Object, err = schema.AsStored(injected); err != nil {
		return err
	}
	req.File = false
	if again {
		if _, err := o.checkSecondInjection(injector, req); err != nil {
			return err
		}
	}
	verdict, err := inject.NewJudge(injector, nil, true).Judge(req)
	if err != nil {
		return err
	}
	o.compareVerdict(want, verdict)
	for i := range verdict.Judged {
		if f := &verdict.Judged[i]; !isExpected(f, first) && want.Findings == nil && want.Verdict == "" {
			o.addFailure("promise: the validating webhook accepts the injected pod", "%s", f)
		}
	}
	if in.Undo == nil {
		return nil
	}
	const restores = "promise: uninject gives the original back"
	switch was, is, err := in.Undo(); {
	case err != nil:
		o.addFailure(restores, "%v", err)
	case !bytes.Equal(was, is):
		o.Failures = append(o.Failures, Failure{restores, "it gives another manifest", diffLines(yamlOf(was), yamlOf(is))})
	}
	return nil
}

// checkSecondInjection checks that another injection adds nothing, and reports whether that holds.
func (o *Outcome) checkSecondInjection(injector *inject.Injector, req inject.Request) (bool, error) {
	second, err := injector.Inject(req)
	if err != nil {
		return false, err
	}
	if second.Adds() {
		o.addFailure("promise: a second injection adds nothing", "it adds %s", second.Patch())
	}
	return !second.Adds(), nil
}

// isExpected reports whether a finding about the injected pod follows from the decisions: a template
// could not be injected, or the pod has a wrong annotation.
func isExpected(f *inject.Finding, first *inject.Result) bool {
	return slices.ContainsFunc(first.Decisions, func(d inject.Decision) bool { return d.Template == f.Template && d.Code.Failed() }) ||
		slices.ContainsFunc(first.Findings, func(known inject.Finding) bool { return known.Code == f.Code && known.Message == f.Message })
}
