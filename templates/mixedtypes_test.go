// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestMixedValues checks where values may have different types: in json.marshal, in whole fields and in
// variables for them. Everywhere else there is an error when the template is loaded.
func TestMixedValues(t *testing.T) {
	t.Parallel()
	const (
		oneType = "all values of a map or a list need one type"
		asWhole = "so it must be a whole field or an argument of json.marshal()"
	)
	for _, row := range []struct {
		probe, set, fields string
		want               string // the container's fields, or a part of the error
	}{
		{"1", "1", `args: ["${json.marshal({'service': ns.name, 'labels': pod.metadata.labels})}"]`, `"args":["{\"labels\":{\"app\":\"web\"},\"service\":\"shop\"}"]`},
		{"1", "1", `args: ["${json.marshal(['a', 'b'].map(k, {'d': k, 'x': 1}))}"]`, `"args":["[{\"d\":\"a\",\"x\":1},{\"d\":\"b\",\"x\":1}]"]`},
		{"1", "1", `args: ["x=${json.marshal([1, 'a', [true], {}, null])}"]`, `"args":["x=[1,\"a\",[true],{},null]"]`},
		{"1", "1", `args: ["${json.marshal({'a': params.j.?l.orValue([]), 'b': params.j.n, 'c': params.j})}"]`, `"args":["{\"a\":[],\"b\":7,\"c\":{\"n\":7}}"]`},
		{"{'tcpSocket': {'port': 80}, 'periodSeconds': 5}", "variables.p", `livenessProbe: "${variables.v}", args: ["${json.marshal(variables.p)}"]`, `"livenessProbe":{"tcpSocket":{"port":80},"periodSeconds":5},"args":["{\"periodSeconds\":5,\"tcpSocket\":{\"port\":80}}"]`},
		{"[{'name': 'A', 'value': 'b'}]", "[{'name': 'S', 'valueFrom': {'secretKeyRef': {'name': 's', 'key': 'k'}}}]", `env: "${variables.v}"`, `"env":[{"name":"S","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]`},
		{"{'a': 1, 'b': ''}", "1", `"${when}": "'b' in variables.p"`, asWhole},
		{"{'a': 1, 'b': ''}", "variables.p.a", `args: [x]`, asWhole},
		{"{'a': 1, 'b': ''}", "{'x': variables.p, 'y': 1}", `args: ["${string(variables.v == variables.p)}"]`, asWhole},
		{"[{'a': 1, 'b': ''}]", "1", `env: [{"${forEach}": {m: variables.p}, name: A}]`, asWhole},
		{"{'a': 1, 'b': ''}", "1", `args: ["${variables.p}"]`, "so it must be a whole field"},
		{"{'periodSeconds': 'x', 'tcpSocket': {'port': 80}}", "1", `livenessProbe: "${variables.p}"`, "periodSeconds: must be an integer, not a string"},
		{"{'tcpSocket': {'port': 80}, 'peroidSeconds': 5}", "variables.p", `livenessProbe: "${variables.v}"`, `did you mean "periodSeconds"?`},
		{"1", "1", `args: ["${json.marshal({'a': [1, 'x'].map(i, i)})}"]`, oneType},
		{"1", "1", `args: ["${json.marshal({'a': 1, 'b': ''}['a'])}"]`, oneType},
		{"1", "1", `args: ["${json.marshal({'a': dyn([1])})}"]`, "leave out dyn()"},
		{"1", "1", `args: ["${json.marshal({'a': 1, 'p': pod})}"]`, "the pod as a whole has fields that are not set yet"},
		{"1", "1", `args: ["${json.marshal([1, {'m': [pod.metadata]}])}"]`, "metadata as a whole has fields that are not set yet"},
		{"{'a': 1, 'p': pod.spec}", "1", `args: ["${json.marshal(variables.p)}"]`, "pod.spec as a whole has fields that are not set yet"},
		{"[1, 'x']", "1", `args: [x]`, oneType},
		{"{'a': 1, 'b': ''} == {}", "1", `args: [x]`, oneType},
	} {
		got := ""
		found, problems := Parse("x", fmt.Appendf(nil, `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {params: [{name: j, type: json, default: '{"n": 7}'}],
			variables: [{name: p, expression: "%s"}, {name: v, expression: "%s"}], pod: {spec: {containers: [{name: c, image: i, %s}]}}}}`, row.probe, row.set, row.fields))
		if len(problems) > 0 {
			got = problems.Error()
		} else {
			in := wholeInput(t, `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"a"}]}}`)
			in.Namespace = request.Namespace{Name: "shop", Known: true}
			n, err := found[0].Render(in, found[0].params.Defaults())
			if err != nil {
				t.Errorf("%s: %v", row.fields, err)
			}
			got = n.String()
		}
		if !strings.Contains(got, row.want) {
			t.Errorf("%s, %s, %s:\n%s\nnot %s", row.probe, row.set, row.fields, got, row.want)
		}
	}
}

// TestMixedVariablesBounds checks that a variable that contains others very many times is rejected before it is
// written out: when the template is loaded if it cannot be an object, and otherwise for a pod.
func TestMixedVariablesBounds(t *testing.T) {
	declared := []string{"{name: v0, expression: \"{'exec': {'command': ['x']}, 'periodSeconds': 5}\"}"}
	for i := range maxVariables - 1 {
		declared = append(declared, fmt.Sprintf(`{name: v%d, expression: "{'exec': variables.v%d, 'tcpSocket': [variables.v%[2]d], 'periodSeconds': 5}"}`, i+1, i))
	}
	for field, want := range map[string]string{
		`livenessProbe: "${pod.spec.containers.size() > 0 ? variables.v63 : {}}"`: `exec: unknown key "exec"`,
		`args: ["${json.marshal(variables.v63)}"]`:                                "would cost more than",
	} {
		before := cpu.Used(t)
		found, problems := Parse("x", []byte("apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: x}\nspec:\n  variables: ["+strings.Join(declared, ", ")+"]\n  pod: {spec: {containers: [{name: c, image: i, "+field+"}]}}"))
		got := problems.Error()
		if len(problems) == 0 {
			if _, err := found[0].Render(wholeInput(t, `{"spec":{"containers":[{"name":"a"}]}}`), nil); err != nil {
				got = err.Error()
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", field, got)
		}
		if took := cpu.Used(t) - before; took > time.Second { // of the whole process, so this test is not parallel
			t.Errorf("%s: %v", field, took)
		}
	}
}
