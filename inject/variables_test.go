// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestVariablesChangeNothing checks that templates whose expressions are variables inject the same
// as the templates without variables, and that the validating webhook has the same findings.
func TestVariablesChangeNothing(t *testing.T) {
	t.Parallel()
	count, injected := size.Choose(t, 60, 200), 0
	for seed := range uint64(count) {
		g := reviews.NewSets(seed, 11)
		var plain, named []string
		for i := range 1 + g.IntN(3) {
			spec := g.Template(i)
			if strings.HasPrefix(spec, "variables:") {
				continue
			}
			plain, named = append(plain, spec), append(named, g.Named(spec))
		}
		pod := g.Pod(true)
		one, errs := outcome(t, plain, pod)
		other, errs2 := outcome(t, named, pod)
		if errs != errs2 || one != other {
			t.Fatalf("seed %d: %s (%s)\nand with variables %s (%s)\n%s\n%s\n%s", seed, one, errs, other, errs2, plain, named, pod)
		}
		if strings.Contains(one, string(inject.CodeInjected)) {
			injected++
		}
	}
	if injected < count/10 {
		t.Errorf("only %d of the pods got something", injected)
	}
}

// outcome returns the decisions, the patch and the findings, without the revisions and the expressions.
func outcome(t *testing.T, specs []string, pod string) (text string, problems string) {
	t.Helper()
	var set []*templates.Template
	for i, spec := range specs {
		found, bad := templates.Parse("t", fmt.Appendf(nil, "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t%d}, spec: {%s}}", i, spec))
		if len(bad) > 0 {
			return "", "not loaded"
		}
		set = append(set, found...)
	}
	injector := inject.New(templates.NewSet(set))
	req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop", Known: true, ServiceAccounts: roles{}}, Object: []byte(pod)}
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := inject.NewJudge(injector, nil, true).Judge(req)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Decisions {
		text += string(d.Code) + " "
	}
	text += string(r.Patch())
	for _, f := range verdict.Findings {
		text += fmt.Sprintf("\n%s %s %s", f.Code, f.Path, f.Found)
	}
	for _, t := range set {
		text = strings.ReplaceAll(text, t.Revision, "REVISION")
	}
	return text, ""
}
