// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
)

const somePod = `{"metadata":{"labels":{"z":"1","app":"we\"b","a":"2"}},"spec":{"containers":[{"name":"app","ports":[{"containerPort":80}]}],"priority":7}}`

func renderText(t *templates.Template) (string, error) {
	pod, err := jsontree.Parse([]byte(somePod))
	if err != nil {
		return "", err
	}
	in := &cel.Input{Pod: pod, Namespace: request.Namespace{
		Name: "shop", Labels: map[string]string{"team": "blue", "b": "1", "a": "2", "c": "3"}, Known: true,
	}, Request: request.Info{Operation: "CREATE", Username: "jane"}}
	values, err := t.Values(nil, in.ServiceAccount, &in.Namespace)
	if err != nil {
		return "", err
	}
	n, err := t.Render(in, values)
	return n.String(), err
}

func parseExpression(t *testing.T, leaf string) (*templates.Template, problem.Problems) {
	t.Helper()
	quoted, err := json.Marshal(leaf)
	if err != nil {
		t.Fatal(err)
	}
	found, problems := templates.Parse("x.yaml", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: a}, spec: {
		params: [{name: "n", type: integer, default: 3}, {name: f, type: number, default: 0.5}, {name: b, type: boolean, default: true}, {name: s, default: "x\"y"}],
		pod: {spec: {containers: [{name: c, image: i, args: [`+string(quoted)+`]}]}}}}`))
	if len(problems) > 0 {
		return nil, problems
	}
	return found[0], nil
}

// renderLeaf returns the JSON of a pod with the leaf, or the error of its expression for [somePod].
func renderLeaf(t *testing.T, leaf string) (string, error) {
	t.Helper()
	tpl, problems := parseExpression(t, leaf)
	if problems != nil {
		t.Fatalf("%s: %v", leaf, problems)
	}
	return renderText(tpl)
}

// TestLeaves checks the values of strings with expressions.
func TestLeaves(t *testing.T) {
	for leaf, want := range map[string]string{
		"plain $(X) $$ {}":                                      "plain $(X) $$ {}",
		"$${x} $$${y}":                                          "${x} $${y}",
		"${params.n} ${params.f} ${params.b}":                   "3 0.5 true",
		"a${params.s}b":                                         `ax"yb`,
		"${params.s}":                                           `x"y`,
		"${ params.s + '}' + \"{\" }":                           `x"y}{`,
		"${ns.name.replace('o', r'\\')}":                        `sh\p`,
		"${'''it's a }''' + R\"\"\"\"}\"\"\"}":                  `it's a }"}`,
		"${ns.name // it's a }\n + '//'}":                       "shop//",
		"${pod.metadata.labels.app}":                            `we"b`,
		"${pod.metadata.labels[?'no'].orValue('none')}":         "none",
		"${pod.metadata.labels.map(k, k).join(',')}":            "a,app,z",
		"${ns.labels.map(k, k + '=' + ns.labels[k]).join(',')}": "a=2,b=1,c=3,team=blue",
		"${ns.name}/${request.operation}/${request.username}/${request.dryRun}":                          "shop/CREATE/jane/false",
		"${{'b': 1, 'a': 2}.map(k, k).join(',')}":                                                        "a,b",
		"${optional.of({'b': 1, 'a': 2}).optMap(m, m.map(k, k)).orValue([]).join(',')}":                  "a,b",
		"${[{'z': ns.name, 'y': 'x', 'x': ns.name}][0].map(k, k).join(',')}":                             "x,y,z",
		"${{2: 'b', 1: 'a', 10: 'c'}.map(k, string(k)).join(',')}":                                       "1,2,10",
		"${{true: 'b', false: 'a'}.filter(k, true).map(k, string(k)).join(',')}":                         "false,true",
		"${has(pod.spec.hostNetwork) ? 'host' : 'pod'}":                                                  "pod",
		"${string(pod.spec.containers.filter(c, c.name == 'app')[0].ports[0].containerPort + params.n)}": "83",
		"${string(pod.spec.priority > 5)}":                                                               "true",
		"${string(size(pod.metadata.annotations))}${string(size(pod.spec.volumes))}":                     "00",
	} {
		text, err := renderLeaf(t, leaf)
		if err != nil {
			t.Errorf("%s: %v", leaf, err)
			continue
		}
		var pod struct {
			Spec struct{ Containers []struct{ Args []string } }
		}
		if err := json.Unmarshal([]byte(text), &pod); err != nil || pod.Spec.Containers[0].Args[0] != want {
			t.Errorf("%s: got %s, want %q", leaf, text, want)
		}
	}
}

// TestLeavesThatFail checks the errors of expressions that have no value.
func TestLeavesThatFail(t *testing.T) {
	for leaf, want := range map[string]string{
		"${pod.spec.nodeSelector['a']}":  "no such key",
		"${pod.spec.hostname}":           "no such key: hostname",
		"${string(1/(params.n - 3))}":    "division by zero",
		"${[1,2].map(x, 'a')[params.n]}": "index out of bounds",
		// goes through lists in lists until the cost limit stops it
		"${string([1,2,3,4,5,6,7,8,9,10].map(a, [1,2,3,4,5,6,7,8,9,10].map(b, [1,2,3,4,5,6,7,8,9,10].map(c, [1,2,3,4,5,6,7,8,9,10].map(d, [1,2,3,4,5,6,7,8,9,10].map(e, [1,2,3,4,5,6,7,8,9,10].map(f, f).size()).size()).size()).size()).size()).size())}": "cost limit",
	} {
		if text, err := renderLeaf(t, leaf); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %s", leaf, err, text)
		}
	}
}

// TestPresets checks that parts that depend only on parameters have the same value if they are
// rendered at load time and if they are rendered for the pod. A pod's own parameters must take
// effect.
func TestPresets(t *testing.T) {
	t.Parallel()
	tmpl, problems := parseExpression(t, "${params.n} ${params.s}")
	if problems != nil {
		t.Fatal(problems)
	}
	in := &cel.Input{Pod: &jsontree.Node{}}
	for _, c := range []struct{ annotation, value, want string }{
		{"", "", `3 x\"y`},
		{"a.pillion.dev/n", "3", `3 x\"y`},
		{"a.pillion.dev/n", "4", `4 x\"y`},
		{"a.pillion.dev/s", "z", "3 z"},
		{"a.pillion.dev/b", "false", `3 x\"y`},
	} {
		values, err := tmpl.Values(new(jsontree.Members(jsontree.Field(c.annotation, jsontree.Text(c.value)))), nil, &in.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		n, err := tmpl.Render(in, values)
		if want := `{"spec":{"containers":[{"name":"c","image":"i","args":["` + c.want + `"]}]}}`; err != nil || n.String() != want {
			t.Errorf("%s=%s: %v, want %s (%v)", c.annotation, c.value, n.String(), want, err)
		}
	}
}

// TestReads checks that a template is evaluated again if something was added to one of these parts.
func TestReads(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"string(size(pod.spec.containers))":                                                      "spec.containers[]",
		"string(pod.spec.containers.exists(c, c.name == 'a'))":                                   "spec.containers[]",
		"pod.spec.containers.map(c, c.name)[0]":                                                  "spec.containers[]",
		"string(pod.spec.containers.exists(c, c.image == 'a'))":                                  "spec.containers",
		"string(pod.spec.containers.exists(c, has(c.env)))":                                      "spec.containers",
		"pod.spec.containers.filter(c, c.name == 'a')[0].image":                                  "spec.containers",
		"pod.spec.containers[0].name":                                                            "spec.containers",
		"string(pod.spec.containers.exists(c, pod.spec.containers.exists(d, d.name == c.name)))": "spec.containers[]",
		"pod.metadata.labels['a.b/c']":                                                           "metadata.labels[a.b/c]",
		"pod.metadata.annotations[?'x'].orValue('')":                                             "metadata.annotations[x]",
		"string('x' in pod.metadata.annotations)":                                                "metadata.annotations[x]",
		"pod.metadata.labels[ns.name]":                                                           "metadata.labels",
		"pod.metadata.labels.map(k, k)[0]":                                                       "metadata.labels",
		"string(pod.spec.hostNetwork)":                                                           "spec.hostNetwork",
		"string(has(pod.spec))":                                                                  "*",
	} {
		tmpl, problems := parseExpression(t, "${"+expression+"}")
		if problems != nil {
			t.Errorf("%s: %v", expression, problems)
		} else if got := strings.Join(tmpl.Reads(), " "); got != want {
			t.Errorf("%s reads %s, want %s", expression, got, want)
		}
	}
}
