// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// TestPodName checks that expressions see the name of a pod only if a user chose it. The mutating
// webhook sees no name if the API server generates it later; the validating webhook sees that one.
func TestPodName(t *testing.T) {
	t.Parallel()
	found, problems := templates.Parse("t", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t}, spec: {required: true,
		variables: [{name: v, expression: "pod.metadata.?name"}], validate: {mode: Deny, protect: [all]}, pod: {spec: {containers: [{name: t, image: i,
		args: ["${pod.metadata.?name.orValue('none')}", "${has(pod.metadata.name) ? 'yes' : 'no'}", "${pod.?metadata.name.orValue('none')}", "${variables.v.orValue('none')}"]}]}}}}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	injector := inject.New(templates.NewSet(found))
	long := strings.Repeat("a", 60) + "-"
	for _, c := range []struct{ mutating, validating, want string }{
		{`{"name":"web"}`, `{"name":"web"}`, "web"},
		{`{"generateName":"web-"}`, `{"name":"web-bcdfg","generateName":"web-"}`, "none"},
		{`{"generateName":"` + long + `"}`, `{"name":"` + long[:58] + `24679","generateName":"` + long + `"}`, "none"},
		{`{"name":"web-0","generateName":"web-"}`, `{"name":"web-0","generateName":"web-"}`, "web-0"}, // of a StatefulSet
		{`{"name":"web-24679","generateName":"web-"}`, `{"name":"web-24679","generateName":"web-"}`, "none"},
		{`{"name":"web-abcde","generateName":"web-"}`, `{"name":"web-abcde","generateName":"web-"}`, "web-abcde"},
		{`{}`, `{"name":"x"}`, "none"},
	} {
		pod := `{"metadata":` + c.mutating + `,"spec":{"containers":[{"name":"app","image":"a"}]}}`
		r, after := checkInvariants(t, injector, inject.Request{Operation: "CREATE", OptedIn: true, Object: []byte(pod)})
		if has := map[bool]string{true: "yes", false: "no"}[c.want != "none"]; !strings.Contains(string(after), `["`+c.want+`","`+has+`","`+c.want+`","`+c.want+`"]`) {
			t.Errorf("%s: %v\n%s", c.mutating, r.Decisions, after)
		}
		final := decodeJSON(t, after).(map[string]any)
		metadata := final["metadata"].(map[string]any)
		maps.Copy(metadata, decodeJSON(t, []byte(c.validating)).(map[string]any))
		v := mustJudge(t, inject.NewJudge(injector, nil, true), inject.Request{Operation: "CREATE", OptedIn: true, Object: withKeysBackwards(t, final)})
		if v.Denied != (c.mutating == "{}") { // the name appears only in the final pod
			t.Errorf("%s, then %s: %v", c.mutating, c.validating, v.Judged)
		}
	}
}
