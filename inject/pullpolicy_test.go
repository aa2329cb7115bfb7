// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestPullPolicies checks which imagePullPolicy a final pod may have. The AlwaysPullImages plugin changes all of them to
// Always after injection, so that is never a finding. If the template sets none, the API server sets a default.
func TestPullPolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		template, pod string
		denied        bool
	}{
		{"IfNotPresent", "IfNotPresent", false},
		{"IfNotPresent", "Always", false},
		{"Never", "Always", false},
		{"IfNotPresent", "Never", true},
		{"Always", "IfNotPresent", true},
		{"", "IfNotPresent", false},
		{"", "Always", false},
		{"", "Never", true},
	} {
		field := ""
		if c.template != "" {
			field = ", imagePullPolicy: " + c.template
		}
		set, err := templates.Compile(templates.File{Path: "t.yaml", Data: fmt.Appendf(nil, `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: agent},
  spec: {default: true, validate: {mode: Deny, protect: [all]}, pod: {spec: {containers: [{name: agent, image: "agent:1"%s}]}}}}`, field)})
		if err != nil {
			t.Fatal(err)
		}
		verdict, err := inject.NewJudge(inject.New(set), nil, true).Judge(inject.Request{
			Operation: "CREATE", OptedIn: true, Namespace: request.Namespace{Name: "shop", Known: true},
			Object: fmt.Appendf(nil, `{"metadata":{"name":"web","annotations":{"agent.pillion.dev/injected":%q}},"spec":{"containers":[{"name":"web","image":"web:1"},{"name":"agent","image":"agent:1","imagePullPolicy":%q}]}}`, set.Templates[0].Revision, c.pod),
		})
		if err != nil {
			t.Fatal(err)
		}
		if verdict.Denied != c.denied {
			t.Errorf("the template has %q and the pod %q: %s %v", c.template, c.pod, verdict.Word(), verdict.Judged)
		}
	}
}
