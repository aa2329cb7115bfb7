// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

func withVariables(t testing.TB, variables, args string) *Template {
	t.Helper()
	found, problems := Parse("it", fmt.Appendf(nil, `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: it}, spec: {
		params: [{name: p, default: x}, {name: "n", type: integer, default: 2}],
		variables: [%s],
		pod: {spec: {containers: [{name: c, image: i, args: [%s]}]}},
		forEachContainer: [{where: "container.name != variables.none", add: {env: [{name: A, value: "${container.name + variables.none}"}]}}]}}`, variables, args))
	if len(problems) > 0 {
		t.Fatal(problems.Error())
	}
	return found[0]
}

func withPod(t testing.TB, pod string) *cel.Input {
	t.Helper()
	n, err := jsontree.Parse([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	return &cel.Input{Pod: n, Namespace: request.Namespace{Name: "shop"}}
}

const none = `{name: none, expression: "'-' + ns.name"}`

// TestVariables checks that variables have the values of their expressions, are evaluated only if
// an expression reads them, and only once.
func TestVariables(t *testing.T) {
	t.Parallel()
	tmpl := withVariables(t, none+`,
		{name: fails, expression: "pod.spec.containers[9].name"},
		{name: dear, expression: "lists.range(900).map(i, i * 2).size()"},
		{name: names, expression: "pod.spec.containers.map(c, c.name)"},
		{name: both, expression: "variables.names.join('+') + params.p"},
		{name: many, expression: "pod.spec.volumes.exists(v, v.name == 'v')"}`,
		`"${variables.both}", "${pod.spec.containers.exists(c, variables.many && c.name == 'a') ? 'yes' : 'no'}", "${string(variables.dear)}", "${string(variables.dear) + '!'}"`)
	in := withPod(t, `{"spec":{"containers":[{"name":"a"},{"name":"b"}],"volumes":[{"name":"v"}]}}`)
	values := tmpl.params.Defaults()
	n, err := tmpl.Render(in, values)
	if err != nil {
		t.Fatal(err)
	}
	if got := n.At("spec", "containers").Items()[0].Get("args").String(); got != `["a+bx","yes","900","900!"]` {
		t.Error(got)
	}
	spent := in.Spent()
	each, err := tmpl.ForEach(in, values, &in.Pod.At("spec", "containers").Items()[0], false)
	if err != nil || len(each) != 1 || each[0].Get("env").Items()[0].Get("value").Text() != "a-shop" {
		t.Error(each, err)
	}
	if again := (&cel.Input{Pod: in.Pod, Namespace: in.Namespace}); true {
		if _, err := tmpl.variables[2].Expression().EvalString(again); err != nil || spent > 2*again.Spent() {
			t.Errorf("rendering costs %d, and the variable %d", spent, again.Spent())
		}
	}
	if got := fmt.Sprint(tmpl.UnusedVariables()); got != "[fails]" {
		t.Errorf("unused: %s", got)
	}
}

// TestVariablesReads checks that an expression depends on what its variables read.
func TestVariablesReads(t *testing.T) {
	t.Parallel()
	tmpl := withVariables(t, none+`,
		{name: app, expression: "pod.metadata.labels.app"}, {name: of, expression: "variables.app + params.p"},
		{name: pure, expression: "params.n + 1"}`, `"${variables.of}", "${string(variables.pure)}"`)
	if got := fmt.Sprint(tmpl.Computed); got != "[args]" {
		t.Errorf("computed: %s", got)
	}
	if got := fmt.Sprint(tmpl.Reads()); !strings.Contains(got, "metadata.labels") {
		t.Errorf("reads: %s", got)
	}
	args := tmpl.pod.Member("spec").Member("containers").Items()[0].Member("args").Items()
	if !args[1].IsPreset() || args[0].IsPreset() {
		t.Error("what depends only on parameters is not rendered beforehand, or what depends on the pod is")
	}
}

// TestVariablesCost checks that a chain of variables costs no more than the template's limit, even
// if expressions handle the errors.
func TestVariablesCost(t *testing.T) {
	var list []string
	for i := range 50 {
		list = append(list, fmt.Sprintf(`{name: v%d, expression: "lists.range(90000).map(i, string(i)).size() > 0"}`, i))
	}
	any := make([]string, len(list))
	for i := range any {
		any[i] = fmt.Sprintf("variables.v%d", i)
	}
	tmpl := withVariables(t, none+","+strings.Join(list, ","), `"${`+strings.Join(any, " || ")+` || true ? 'x' : 'y'}"`)
	in := withPod(t, `{"spec":{"containers":[{"name":"a"}]}}`)
	if _, err := tmpl.Render(in, tmpl.params.Defaults()); err == nil || in.Spent() > cel.MaxTemplateCost+2*cel.MaxCost {
		t.Errorf("%d: %v", in.Spent(), err)
	}
	doubled := []string{none, `{name: d0, expression: "params.p != 'y'"}`}
	for i := range 60 {
		doubled = append(doubled, fmt.Sprintf(`{name: d%d, expression: "variables.d%d && variables.d%[2]d"}`, i+1, i))
	}
	tmpl = withVariables(t, strings.Join(doubled, ","), `"${string(variables.d60)}"`)
	if _, err := tmpl.Render(withPod(t, `{"spec":{"containers":[{"name":"a"}]}}`), tmpl.params.Defaults()); err != nil {
		t.Error(err)
	}
}
