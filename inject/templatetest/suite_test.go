// SPDX-License-Identifier: Apache-2.0

package templatetest

import (
	"encoding/xml"
	"errors"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

const agent = `
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  pod: {spec: {containers: [{name: agent, image: x}]}}
  forEachContainer:
  - add: {env: [{name: A, value: "1"}]}
`

func setOf(t *testing.T, text string) *templates.Set {
	t.Helper()
	set, err := templates.Compile(templates.File{Path: "agent.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestProblems checks that each problem of a suite is reported with its line.
func TestProblems(t *testing.T) {
	t.Parallel()
	set := setOf(t, agent)
	golden.Cases(t, "testdata/*.txtar", func(_ *testing.T, a *txtar.Archive) []txtar.File {
		s, problems := Parse(a.Files[0].Name, a.Files[0].Data)
		if len(problems) == 0 {
			problems = s.Check(set)
		}
		return []txtar.File{{Name: "problems", Data: []byte(problems.Error() + "\n")}}
	})
}

// parse returns the only case of a suite.
func parse(t *testing.T, text string) *Case {
	t.Helper()
	s, problems := Parse("x_test.yaml", []byte("apiVersion: pillion.dev/v1alpha1\nkind: SidecarTemplateTest\ntemplates: [agent.yaml]\n"+
		"pod: {spec: {containers: [{name: web, image: web}]}}\ncases:\n- name: a\n  "+text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return &s.Cases[0]
}

// TestDifferences checks that each kind of difference fails a case.
func TestDifferences(t *testing.T) {
	t.Parallel()
	injector := inject.New(setOf(t, agent))
	for expect, want := range map[string]string{
		`decisions: {agent: injected}`:                                  "",
		`decisions: {agent: "injected: lacks a part of it"}`:            "",
		`decisions: {agent: "injected: other words"}`:                   "expect.decisions.agent: must be injected: other words, but is injected: the pod should have it",
		`decisions: {agent: conflict}`:                                  "expect.decisions.agent: must be conflict, but is injected: ",
		`warnings: [unknown_parameter]`:                                 "expect.warnings: there is no warning unknown_parameter",
		`values: {"spec.containers[agent].image": x}`:                   "",
		`values: {"spec.containers[1].image": x}`:                       "",
		`values: {"spec.containers[*].image": x}`:                       "",
		`values: {"spec.containers[web].env": [{value: "1", name: A}]}`: "",
		`values: {"spec.containers[web].args": null}`:                   "",
		`values: {"spec.containers[agent].image": other}`:               `expect.values "spec.containers[agent].image": must be other, but is x`,
		`values: {"spec.containers[agent].image": {a: b}}`:              "-a: b\n+x\n",
		`values: {"spec.containers[agent].args": [other]}`:              `must be ["other"], but is absent`,
		`values: {"spec.containers[agent].image": null}`:                `must be absent, but is "x"`,
		`values: {"spec.containers[*].image": other}`:                   `must be other, but there are only web, x`,
		`values: {"spec.containers[web].env": [{name: B}]}`:             "differs\n--- expected\n+++ got\n",
		`pod: {spec: {containers: [{name: web, image: web}]}}`:          "expect.pod: the injected pod differs\n--- expected\n+++ got\n",

		`verdict: allowed`:    "",
		`findings: []`:        "",
		`verdict: denied`:     "expect.verdict: must be denied, but is allowed",
		`findings: [altered]`: "expect.findings: there is no finding altered",
		`golden: a.yaml`:      "expect.golden a.yaml: the injected pod differs\n--- expected\n+++ got\n",
	} {
		in := Input{
			Request: inject.Request{Operation: "CREATE", File: true, Object: []byte(`{"spec":{"containers":[{"name":"web","image":"web"}]}}`)},
			Golden:  []byte("spec: {}\n"),
		}
		o, err := parse(t, "expect: {"+expect+"}\n").Run(injector, in)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, f := range o.Failures {
			got.WriteString(f.sentence() + "\n" + f.Diff)
		}
		if want == "" && got.Len() > 0 || !strings.Contains(got.String(), want) {
			t.Errorf("%s: it says %q, want %q", expect, &got, want)
		}
	}
}

// TestExpectedPod checks that the order of keys and the records of injections make no difference.
func TestExpectedPod(t *testing.T) {
	t.Parallel()
	c := parse(t, `expect:
    pod:
      spec:
        containers:
        - {image: web, name: web, env: [{value: "1", name: A}]}
        - {image: x, name: agent}
      metadata: {annotations: {}}
`)
	in := Input{Request: inject.Request{Operation: "CREATE", File: true, Object: []byte(`{"kind":"Pod","spec":{"containers":[{"name":"web","image":"web"}]}}`)}}
	o, err := c.Run(inject.New(setOf(t, agent)), in)
	if err != nil || len(o.Failures) > 0 {
		t.Errorf("%v %v", o.Failures, err)
	}
}

// TestPromises checks that a violation of each promise fails a case. The engine keeps all promises,
// so the first injection is faked with that of another pod or of other templates.
func TestPromises(t *testing.T) {
	t.Parallel()
	other := strings.ReplaceAll(agent, "agent", "other")
	newer := strings.ReplaceAll(agent, "image: x", "image: z") + "  validate: {protect: [image]}\n"
	const web, worker = `{"spec":{"containers":[{"name":"web","image":"web"}]}}`, `{"spec":{"containers":[{"name":"worker","image":"web"}]}}`
	undo := func(is string, err error) func() (_, _ []byte, _ error) {
		return func() (_, _ []byte, _ error) { return []byte(web), []byte(is), err }
	}
	for name, c := range map[string]struct {
		templates, first, pod string
		undo                  func() (was, is []byte, err error)
		want                  string
	}{
		"kept":              {agent, agent, web, undo(web, nil), ""},
		"something lost":    {agent, agent, worker, nil, "promise: only adds: the injected pod lacks something"},
		"a second time":     {agent + "---" + other, agent, web, nil, "promise: a second injection adds nothing: it adds ["},
		"not accepted":      {newer, agent, web, nil, "promise: the validating webhook accepts the injected pod: agent: altered"},
		"undo fails":        {agent, agent, web, undo("", errors.New("it fails")), "promise: uninject gives the original back: it fails"},
		"undo is not exact": {agent, agent, web, undo(worker, nil), "promise: uninject gives the original back: it gives another manifest\n--- expected\n+++ got\n"},
	} {
		first, err := inject.New(setOf(t, c.first)).Inject(inject.Request{Operation: "CREATE", File: true, Object: []byte(web)})
		if err != nil {
			t.Fatal(err)
		}
		o := &Outcome{}
		err = o.checkPromises(inject.New(setOf(t, c.templates)), Input{Request: inject.Request{Operation: "CREATE", File: true, Object: []byte(c.pod)}, Undo: c.undo}, first, &Expect{})
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, f := range o.Failures {
			got.WriteString(f.sentence() + "\n" + f.Diff)
		}
		if c.want == "" && got.Len() > 0 || !strings.Contains(got.String(), c.want) {
			t.Errorf("%s: it says %q, want %q", name, &got, c.want)
		}
	}
}

// TestJUnit checks that the XML can be read, whatever names and messages contain.
func TestJUnit(t *testing.T) {
	t.Parallel()
	r := &Report{}
	r.Add(FileReport{File: `a"b.yaml`, Cases: []CaseReport{
		{Name: "<a> & 'b'", Line: 3},
		{Name: "c\x00\x1b]]>\uFFFF", Line: 4, Failures: []Failure{{What: "x", Message: "y\nz", Diff: "-a\n+b\n"}, {What: "2", Message: "3"}}},
	}})
	var got struct {
		Tests  int `xml:"tests,attr"`
		Suites []struct {
			Name  string `xml:"name,attr"`
			Cases []struct {
				Name    string `xml:"name,attr"`
				Failure []struct {
					Message string `xml:"message,attr"`
					Text    string `xml:",chardata"`
				} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(r.JUnit()), &got); err != nil {
		t.Fatal(err)
	}
	s := got.Suites[0]
	if got.Tests != 2 || s.Name != `a"b.yaml` || s.Cases[0].Name != "<a> & 'b'" || len(s.Cases[0].Failure) > 0 || s.Cases[1].Name != "c\uFFFD\uFFFD]]>\uFFFD" {
		t.Errorf("%+v", got)
	}
	if f := s.Cases[1].Failure; len(f) != 1 || f[0].Message != `x: y\nz` || f[0].Text != "x: y\\nz\n-a\n+b\n2: 3\n" {
		t.Errorf("%q", f)
	}
}

// TestNumbers checks that numbers are equal if their digits are.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`9007199254740993`: "9007199254740993\n", `1.5`: "1.5\n", `18446744073709551615`: "18446744073709551615\n", `"1"`: "\"1\"\n"} {
		if got := yamlOf([]byte(text)); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	if n, err := jsontree.Parse([]byte(`[1]`)); err != nil || len(findValues(n, nil)) != 1 {
		t.Error("the empty path leads elsewhere")
	}
}
