// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/request"
)

// looping returns a template that adds a container with these fields.
func looping(t testing.TB, params, fields string) *Template {
	t.Helper()
	found, problems := Parse("it", fmt.Appendf(nil, `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: it}, spec: {
		params: [%s], pod: {spec: {containers: [{%s, image: i}]}}}}`, params, fields))
	if len(problems) > 0 {
		t.Fatal(problems.Error())
	}
	return found[0]
}

// setParam returns the values of a template's only parameter for a pod that sets it.
func setParam(t testing.TB, tmpl *Template, text string) params.Values {
	t.Helper()
	annotations := jsontree.Members(jsontree.Field(tmpl.Key(&tmpl.Spec.Params[0]), jsontree.Text(text)))
	set, err := tmpl.Values(&annotations, nil, &request.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestLoopBounds checks the limits of loops: at each of them a template renders, in little time and
// memory, and above it there is an error.
func TestLoopBounds(t *testing.T) {
	const loopOf = `{"${forEach}": {m: "lists.range(%s)"}, name: "%s${string(m)}", value: "%s"}`
	text := strings.Repeat("x", 8<<10)
	for name, row := range map[string]struct {
		fields string // N is the size
		most   int
		over   int
		want   string
	}{
		"values of a loop":   {`name: c, env: [` + fmt.Sprintf(loopOf, "params.n", "A", "x") + `]`, 100, 101, "has 101 values, and at most 100 are allowed"},
		"items of all loops": {`"${forEach}": {k: "lists.range(params.n)"}, name: "c-${string(k)}", env: [` + fmt.Sprintf(loopOf, "49", "A", "x${string(k)}") + `]`, 20, 21, "more than 1000 items"},
		"strings in loops":   {`name: c, env: [` + fmt.Sprintf(loopOf, "params.n", "A", "x"+text+"${string(m)}"+text) + `]`, 63, 64, "more than 1048576 bytes"},
		"cost":               {`"${forEach}": {k: "lists.range(params.n)"}, name: "c-${string(k)}", env: [{"${forEach}": {m: "lists.range(900 + k).map(i, i + k).filter(i, i < 1)"}, name: A, value: x}]`, 25, 40, "cost more than 500000"},
	} {
		tmpl := looping(t, `{name: "n", type: integer}`, row.fields)
		for _, n := range []int{row.most, row.over} {
			set := setParam(t, tmpl, fmt.Sprint(n))
			in := &cel.Input{Pod: &jsontree.Node{}}
			var m1, m2 runtime.MemStats
			runtime.ReadMemStats(&m1)
			before := cpu.Used(t)
			rendered, err := tmpl.Render(in, set)
			took := cpu.Used(t) - before
			runtime.ReadMemStats(&m2)
			switch {
			case n == row.most && err != nil, n > row.most && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Errorf("%s: with %d: %v %d", name, n, err, in.Spent())
			case err == nil && len(rendered.At("spec", "containers").Items()) == 0:
				t.Errorf("%s: with %d nothing is rendered", name, n)
			}
			if allocated := m2.TotalAlloc - m1.TotalAlloc; took > 400*time.Millisecond || allocated > 100<<20 {
				t.Errorf("%s: %d take %v and %d MB", name, n, took, allocated>>20)
			}
		}
	}
}

// TestLoopPresets checks that what depends on parameters alone is rendered once, and a part of a loop only if it
// does not read the loop's variable.
func TestLoopPresets(t *testing.T) {
	t.Parallel()
	const fields = `"${forEach}": {m: "%s"}, "${when}": "m != 'z'", name: "c-${m}", env: [
		{name: A, value: "${m + params.p}"}, {"${forEach}": {k: "%s"}, "${when}": "k != 'z'", name: "${k}", value: x}]`
	const ofPod = "pod.metadata.labels.map(l, l)"
	for _, row := range []struct {
		outer, inner string
		list, env    bool // whether the containers, and the inner list's only item, are preset
	}{
		{"params.p.split(',')", "params.p.split('')", true, false},
		{"params.p.split(',')", ofPod, false, false},
		{ofPod, "params.p.split('')", false, false},
	} {
		tmpl := looping(t, "{name: p, default: 'a,b'}", fmt.Sprintf(fields, row.outer, row.inner))
		list := tmpl.pod.Member("spec").Member("containers")
		if env := list.Items()[0].Member("env"); list.IsPreset() != row.list || env.IsPreset() != row.env || env.Items()[1].IsPreset() {
			t.Errorf("%v: preset: %v %v %v", row, list.IsPreset(), env.IsPreset(), env.Items()[1].IsPreset())
		}
		for p, want := range map[string]string{"a,b": "c-a c-b", "x": "c-x", "z": ""} {
			in := withPod(t, `{"metadata":{"labels":{"x":"","y":""}}}`)
			values := setParam(t, tmpl, p)
			if p == "a,b" {
				values = tmpl.params.Defaults()
			}
			if row.outer == ofPod {
				want = "c-x c-y"
			}
			n, err := tmpl.Render(in, values)
			if err != nil || names(&n) != want {
				t.Errorf("%v with %s: %s, want %s: %v", row, p, names(&n), want, err)
			}
		}
	}
}

func names(pod *jsontree.Node) string {
	var all []string
	for _, c := range pod.At("spec", "containers").Items() {
		all = append(all, c.Get("name").Text())
	}
	return strings.Join(all, " ")
}
