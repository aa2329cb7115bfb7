// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

func parseWhole(t testing.TB, spec string) *Template {
	t.Helper()
	found, problems := Parse("x", []byte("apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: x}\nspec:\n  "+spec))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return found[0]
}

func wholeInput(t testing.TB, pod string) *cel.Input {
	t.Helper()
	n, err := jsontree.Parse([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	return &cel.Input{Pod: n}
}

func variables(n, size int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"name":"A%d","value":"%s"}`, i, strings.Repeat("x", size))
	}
	return strings.Join(all, ",")
}

// TestWholeObjectBounds checks a computed list at the bounds of its number of items and of its size.
func TestWholeObjectBounds(t *testing.T) {
	t.Parallel()
	tpl := parseWhole(t, `pod: {spec: {containers: [{name: c, image: i, env: "${pod.spec.containers[0].env}"}]}}`)
	for _, c := range []struct {
		items, size int
		want        string
	}{
		{values.MaxItems, 1, ""},
		{values.MaxItems + 1, 1, "too long to be read"},
		{100, 500, ""},
		{100, 700, "more than 65536 bytes"},
	} {
		in := wholeInput(t, fmt.Sprintf(`{"spec":{"containers":[{"name":"a","env":[%s]}]}}`, variables(c.items, c.size)))
		n, err := tpl.Render(in, nil)
		if c.want == "" {
			if err != nil || len(n.At("spec", "containers").Items()[0].Get("env").Items()) != c.items {
				t.Errorf("%d items of %d bytes: %v", c.items, c.size, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d items of %d bytes: %v, want %s", c.items, c.size, err, c.want)
		}
	}
}

// TestSpreadBounds checks that a list between items has the bound of other computed lists.
func TestSpreadBounds(t *testing.T) {
	t.Parallel()
	tpl := parseWhole(t, `params: [{name: count, type: integer}]
  pod: {spec: {containers: [{name: c, image: i, env: [{name: LAST}, "${lists.range(params.count).map(i, {'name': 'a' + string(i)})}"]}]}}`)
	for _, c := range []struct {
		items int
		want  string
	}{{values.MaxItems, ""}, {values.MaxItems + 1, "at most 1000 are allowed"}} {
		_, err := tpl.Render(wholeInput(t, `{"spec":{"containers":[{"name":"a"}]}}`), setParam(t, tpl, fmt.Sprint(c.items)))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d items: %v, want %q", c.items, err, c.want)
		}
	}
}

// TestWholeObjectsCost checks that the work for all containers of a pod together is bounded: copying
// a list into each container takes as many steps as there are containers times items.
func TestWholeObjectsCost(t *testing.T) {
	t.Parallel()
	tpl := parseWhole(t, `forEachContainer: [{add: {env: "${pod.spec.containers[0].env}"}}]`)
	container, err := jsontree.Parse([]byte(`{"name":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	cost := func(n int) (uint64, error) {
		in := wholeInput(t, fmt.Sprintf(`{"spec":{"containers":[{"name":"a","env":[%s]}]}}`, variables(n, 1)))
		for range n {
			if _, err := tpl.ForEach(in, nil, container, false); err != nil {
				return in.Spent(), err
			}
		}
		return in.Spent(), nil
	}
	small, err := cost(50)
	if err != nil || small < 50*50 {
		t.Fatalf("50 containers with 50 variables cost %d: %v", small, err)
	}
	if most, err := cost(1000); err == nil || most > 2*cel.MaxTemplateCost {
		t.Errorf("1000 containers with 1000 variables cost %d: %v", most, err)
	}
}

// TestWholeObjectOrder checks that the keys of a copied object do not depend on the order in the
// pod.
func TestWholeObjectOrder(t *testing.T) {
	t.Parallel()
	tpl := parseWhole(t, `pod: {spec: {containers: [{name: c, image: i, resources: "${pod.spec.containers[0].resources}"}]}}`)
	want := ""
	for _, resources := range []string{
		`{"limits":{"cpu":"1","memory":"2Gi"},"requests":{"cpu":1,"ephemeral-storage":"1Gi"}}`,
		`{"requests":{"ephemeral-storage":"1Gi","cpu":1},"limits":{"memory":"2Gi","cpu":"1"}}`,
		`{"requests":{"ephemeral-storage":"1Gi","cpu":1,"memory":null},"future":{},"limits":{"memory":"2Gi","cpu":"1"}}`,
	} {
		n, err := tpl.Render(wholeInput(t, `{"spec":{"containers":[{"name":"a","resources":`+resources+`}]}}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.String(); want != "" && got != want {
			t.Errorf("%s\n%s", got, want)
		} else {
			want = got
		}
	}
}

// TestOptionalBounds checks that a template with many optional fields renders in one step for each.
func TestOptionalBounds(t *testing.T) {
	t.Parallel()
	fields := make([]string, 500)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"${pod.metadata.annotations[?'a%d']}"`, i)
	}
	tpl := parseWhole(t, `pod: {spec: {containers: [{name: c, image: i, args: [`+strings.Join(fields, ",")+`]}]}}`)
	in := wholeInput(t, `{"metadata":{"annotations":{"a7":"x"}}}`)
	n, err := tpl.Render(in, nil)
	if args := n.At("spec", "containers").Items()[0].Get("args").String(); err != nil || args != `["x"]` || in.Spent() > 0 {
		t.Errorf("%s, cost %d: %v", args, in.Spent(), err)
	}
}

// TestWholeSharedValues checks that a value that contains another one very many times is rejected
// before it is written out.
func TestWholeSharedValues(t *testing.T) {
	t.Parallel()
	tpl := parseWhole(t, `pod: {spec: {containers: [{name: c, image: i}], volumes: [{name: v, projected: "${cel.bind(a, lists.range(300).map(i, {'key': 'k', 'path': 'p'}), {'defaultMode': 420, 'sources': lists.range(300).map(i, {'secret': {'name': 's', 'items': a}})})}"}]}}`)
	if _, err := tpl.Render(wholeInput(t, `{"spec":{"containers":[{"name":"a"}]}}`), nil); err == nil || !strings.Contains(err.Error(), "more than 65536 bytes") {
		t.Errorf("%v", err)
	}
}

// TestWholeScalars checks that a value that CEL takes for strings, although a parameter of type json is a
// part of it, cannot become an object.
func TestWholeScalars(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"${['a'] + params.cfg}", "${optional.ofNonZeroValue(['a'].filter(a, a == 'b')).or(dyn(optional.of(params.cfg))).value()}", "${variables.v}"} {
		tpl := parseWhole(t, `params: [{name: cfg, type: json, default: "[b]"}]
  variables: [{name: v, expression: "['a'] + params.cfg"}]
  pod: {spec: {containers: [{name: c, image: i, args: "`+args+`"}]}}`)
		annotations, err := jsontree.Parse([]byte(`{"x.pillion.dev/cfg":"[[\"b\"],{\"c\":1}]"}`))
		if err != nil {
			t.Fatal(err)
		}
		values, err := tpl.Values(annotations, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := tpl.Render(wholeInput(t, `{}`), values); err == nil || !strings.Contains(err.Error(), ": must be a string, not [") {
			t.Errorf("%s: %s, %v", args, n.String(), err)
		}
	}
}

// TestListOfStrings checks that a list of objects in the place of a list of strings is not reported as "must be a list".
func TestListOfStrings(t *testing.T) {
	t.Parallel()
	_, problems := Parse("x", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {pod: {spec: {containers: [{name: c, image: i, args: "${pod.spec.containers}"}]}}}}`))
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "must be a list of strings, but ${pod.spec.containers} gives a list of Container values") {
		t.Errorf("%v", problems)
	}
}

// TestListAsItem checks the error of an item that is a list: it says how the items of the list become items.
func TestListAsItem(t *testing.T) {
	t.Parallel()
	spec := `{params: [{name: env, type: json, default: "[{name: A, value: b}]"}], pod: {spec: {containers: [{name: c, image: i, env: ["${%s}"]}]}}}`
	render := func(expression string) (jsontree.Node, error) {
		tpl := parseWhole(t, fmt.Sprintf(spec, expression))
		values, err := tpl.Values(nil, &request.ServiceAccount{}, &request.Namespace{})
		if err != nil {
			t.Fatal(err)
		}
		return tpl.Render(wholeInput(t, `{"spec":{"containers":[{"name":"a"}]}}`), values)
	}
	const fixed = "params.env.map(x, x)"
	if n, err := render("params.env"); err == nil || !strings.HasSuffix(err.Error(), "; to insert the items of a list, write ${"+fixed+"}") {
		t.Errorf("got %v, %v", n.String(), err)
	}
	if n, err := render(fixed); err != nil || len(n.At("spec", "containers").Items()[0].Get("env").Items()) != 1 {
		t.Errorf("got %v, %v", n.String(), err)
	}
}
