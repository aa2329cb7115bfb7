// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestLeavesSelector checks the reason that is reported for a workload that does not find its pods. A quota is not the reason.
func TestLeavesSelector(t *testing.T) {
	t.Parallel()
	found, problems := templates.Parse("mesh", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: mesh}, spec: {default: true, labelDomains: [example.com], pod: {metadata: {labels: {example.com/track: canary}}, spec: {initContainers: [{name: mesh, restartPolicy: Always, image: "registry.example/mesh:1"}]}}}}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	injector := inject.New(templates.NewSet(found))
	const quota = `"status":{"conditions":[{"type":"ReplicaFailure","status":"True","reason":"FailedCreate","message":"exceeded quota"}]}`
	object := func(kind, selector, labels, spec, status string) string {
		return `{"apiVersion":"apps/v1","kind":"` + kind + `","metadata":{"name":"web"},"spec":{` + spec + `"selector":{"matchLabels":{"app":"web"}` + selector + `},"template":{"metadata":{"labels":{"app":"web"` + labels + `}},"spec":{"containers":[{"name":"web","image":"w"}]}}},` + status + `}`
	}
	const notIn, absent, other = `,"matchExpressions":[{"key":"example.com/track","operator":"NotIn","values":["canary"]}]`,
		`,"matchExpressions":[{"key":"example.com/track","operator":"DoesNotExist"}]`, `,"matchExpressions":[{"key":"example.com/track","operator":"NotIn","values":["stable"]}]`
	const leaves = "it loses its pods because of the template mesh: its label example.com/track=canary takes the pods out of the selector"
	for _, c := range []struct{ name, object, want string }{
		{"a ReplicaSet at its quota", object("ReplicaSet", notIn, "", "", quota), leaves},
		{"a ReplicaSet without a quota", object("ReplicaSet", absent, "", "", `"status":{"replicas":0}`), leaves},
		{"a Deployment", object("Deployment", absent, "", "", `"status":{}`), leaves},
		{"a StatefulSet", object("StatefulSet", absent, "", "", `"status":{}`), leaves},
		{"a DaemonSet", object("DaemonSet", absent, "", "", `"status":{}`), leaves},
		{"a selector that finds the pods", object("ReplicaSet", other, "", "", quota), "exceeded quota"},
		{"pods with a label of their own", object("ReplicaSet", notIn, `,"example.com/track":"stable"`, "", quota), "exceeded quota"},
		{"an old ReplicaSet", object("ReplicaSet", absent, "", `"replicas":0,`, `"status":{}`), ""},
		{"pods that opted out", object("ReplicaSet", absent, `,"pillion.dev/inject":"disabled"`, "", quota), "exceeded quota"},
	} {
		f, err := status.NewCount(injector, status.Scope{Namespace: request.Namespace{Name: "shop", Known: true, Labels: map[string]string{inject.LabelInject: inject.Enabled}}, Unknown: true}).FindFailing([]byte(c.object))
		if err != nil {
			t.Fatal(err)
		}
		why := ""
		if f != nil {
			why = f.Why
		}
		if c.want == "" && f != nil || !strings.HasPrefix(why, c.want) {
			t.Errorf("%s: %q, want %q", c.name, why, c.want)
		}
	}
}
