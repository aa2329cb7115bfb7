// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestFaults checks that an error about a pod has the line in the template's file, and the annotations
// that set what the failing part reads. In these templates, spec.params is in line 5.
func TestFaults(t *testing.T) {
	t.Parallel()
	const set, others = "; params.a is set by the pod's annotation x.pillion.dev/a", "; params.other is set by the namespace's annotation example.com/other"
	for _, c := range []struct{ spec, place, blames string }{
		{"match: {condition: \"params.a.split(',')[1] == '2'\"}\n  pod: {}", "spec.match.condition (line 6): ", set},
		{"pod:\n    spec:\n      containers:\n      - {name: c, image: i, args: [a, \"${params.a.split(',')[1]}\"]}", "spec.pod.spec.containers[0].args[1] (line 9): ", set},
		{"pod:\n    spec: {containers: [{name: c, image: i, args: [\"${pod.metadata.labels['x']}\", \"${params.a}\"]}]}", "args[0] (line 7): ", ""},
		{"pod:\n    spec:\n      volumes:\n      - \"${when}\": params.a.split(',')[1] == '2'\n        name: v\n      containers: []", "spec.pod.spec.volumes[0].${when} (line 9): ", set},
		{"pod:\n    spec:\n      containers:\n      - \"${forEach}\": {m: \"params.a.split(',')\"}\n        name: c-${m}\n        image: ${m.split('x')[1]}", "image (line 11): ", set},
		{"pod:\n    spec:\n      containers:\n      - \"${forEach}\":\n          m: \"[params.a.split(',')[1]]\"\n        name: c-${m}\n        image: i", "containers[0].${forEach} (line 10): ", set},
		{"variables: [{name: v, expression: \"params.a.split(',')[1]\"}]\n  pod: {spec: {containers: [{name: c, image: \"${variables.v}\"}]}}", "image (line 7): ", set},
		{"pod: {spec: {containers: [{name: c, image: \"${params.other}\"}]}}", "image (line 6): must not be empty", others},
		{"pod: {spec: {containers: [{name: c, image: i}]}}\n  placement: {containers: \"${params.a}\"}", "spec.placement.containers (line 7): ", set},
	} {
		tpl := parseWhole(t, "params: [{name: a, default: '1,2'}, {name: b, default: '3'}, {name: other, annotation: example.com/other, default: i}]\n  "+c.spec)
		pod := jsontree.Members(jsontree.Field("x.pillion.dev/a", jsontree.Text("first")), jsontree.Field("x.pillion.dev/b", jsontree.Text("4")))
		values, err := tpl.Values(&pod, nil, &request.Namespace{Annotations: map[string]string{"example.com/other": ""}})
		if err != nil {
			t.Fatal(err)
		}
		in := wholeInput(t, `{"metadata":{"labels":{}},"spec":{"containers":[{"name":"a"}]}}`)
		if _, err = tpl.Condition(in, values); err == nil {
			_, err = tpl.Render(in, values)
		}
		if err == nil {
			_, err = tpl.Placement(in, values)
		}
		switch {
		case err == nil || !strings.Contains(err.Error(), c.place):
			t.Errorf("%s: %v, want %s", c.spec, err, c.place)
		case c.blames == "" && strings.Contains(err.Error(), " is set by ") || !strings.HasSuffix(err.Error(), c.blames):
			t.Errorf("%s: %v, want the end %q", c.spec, err, c.blames)
		}
	}
}

// TestFaultOfJSON checks that a template in one line, as JSON is, has no lines in errors.
func TestFaultOfJSON(t *testing.T) {
	t.Parallel()
	found, problems := Parse("x", []byte(`{"apiVersion":"pillion.dev/v1alpha1","kind":"ClusterSidecarTemplate","metadata":{"name":"x"},"spec":{"pod":{"spec":{"containers":[{"name":"c","image":"${pod.metadata.labels['x']}"}]}}}}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if _, err := found[0].Render(wholeInput(t, `{"metadata":{"labels":{}}}`), nil); err == nil || !strings.HasPrefix(err.Error(), "spec.pod.spec.containers[0].image: ") {
		t.Error(err)
	}
}

// TestFaultOfObject checks that errors about a template in the API server have no line.
func TestFaultOfObject(t *testing.T) {
	t.Parallel()
	found, problems := ParseObject("x", []byte(`{"apiVersion":"pillion.dev/v1alpha1","kind":"ClusterSidecarTemplate","metadata":{"name":"x"},"spec":{
		"forEachContainer":[{"add":{"env":[{"name":"A","value":"${pod.metadata.labels['x']}"}]}}]}}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	in := wholeInput(t, `{"metadata":{"labels":{}},"spec":{"containers":[{"name":"a"}]}}`)
	if _, err := found.ForEach(in, nil, &in.Pod.At("spec", "containers").Items()[0], false); err == nil || strings.Contains(err.Error(), "(line ") {
		t.Error(err)
	}
}
