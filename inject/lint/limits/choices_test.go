// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates"
)

// TestChoices checks which images, commands and paths of the host lint reports as chosen by a parameter.
func TestChoices(t *testing.T) {
	t.Parallel()
	e, err := NewEvaluator()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ param, container, volumes, want string }{
		{`default: "i:1"`, `image: "${params.p}"`, "", "p (the pod or its namespace may set it) can choose the image of the container c freely"},
		{`default: "i:1", overridableBy: [Namespace]`, `image: "${params.p}"`, "", "p (only its namespace may set it) can choose"},
		{`default: "i:1", overridableBy: []`, `image: "${params.p}"`, "", ""},
		{`default: i`, `image: "registry.example/${params.p}:1"`, "", "p (the pod or its namespace may set it) can choose the image"},
		{`default: "1"`, `image: "registry.example/i:${params.p}"`, "", ""},
		{`default: "a:1", enum: ["a:1", "b:1"]`, `image: "${params.p}"`, "", ""},
		{`default: "r.example/a:1", pattern: "r[.]example/.+"`, `image: "${params.p}"`, "", ""},
		{`default: a`, `image: i, command: ["${params.p}"]`, "", "can choose what the container c runs"},
		{`default: a`, `image: i, command: [sh, -c], args: ["run ${params.p}"]`, "", "can choose what the container c runs"},
		{`default: a`, `image: i, command: [run], args: ["--flag=${params.p}"]`, "", ""},
		{`default: a`, `image: i, lifecycle: {preStop: {exec: {command: [sh, -c, "stop ${params.p}"]}}}`, "", "can choose what the container c runs"},
		{`default: /var/log`, "image: i", `{name: v, hostPath: {path: "${params.p}"}}`, "can choose the path of the host in the volume v"},
		{`default: a, pattern: "[a-z]+"`, "image: i", `{name: v, hostPath: {path: "/var/${params.p}"}}`, ""},
	} {
		text := "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {params: [{name: p, " + c.param + "}], pod: {spec: {containers: [{name: c, " + c.container + "}], volumes: [" + c.volumes + "]}}}}"
		found, problems := templates.Parse("x", []byte(text))
		if len(problems) > 0 {
			t.Fatal(text, problems)
		}
		if got := strings.Join(e.Try(templates.NewSet(found), nil)[0].Choices, "; "); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s\n%q, want %q", text, got, c.want)
		}
	}
}

// TestAllows checks what lint reports about single templates: the values, who may set them, and what it cannot find out.
func TestAllows(t *testing.T) {
	t.Parallel()
	e, err := NewEvaluator()
	if err != nil {
		t.Fatal(err)
	}
	const rest = "runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}"
	for _, c := range []struct{ params, security, want string }{
		{"{name: p, type: boolean, default: false}", `allowPrivilegeEscalation: "${params.p}", capabilities: {drop: [ALL]}, ` + rest, "with p=true (the pod or its namespace may set it), Pod Security is baseline"},
		{"{name: p, type: boolean, default: false, overridableBy: []}", `allowPrivilegeEscalation: "${params.p}", capabilities: {drop: [ALL]}, ` + rest, ""},
		// The API server accepts privileged only with allowPrivilegeEscalation.
		{"{name: p, type: boolean, default: false}", `privileged: "${params.p}", allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, ` + rest, ""},
		{"{name: p, type: boolean, default: false}, {name: q, type: boolean, default: false, overridableBy: [Namespace]}", `privileged: "${params.p}", allowPrivilegeEscalation: "${params.q}", capabilities: {drop: [ALL]}, ` + rest, "with p=true (the pod or its namespace may set it) and q=true (only its namespace may set it), Pod Security is privileged"},
		{"{name: p, type: json, default: '{}'}", `allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: "${params.p.?add.orValue([]).map(c, string(c))}"}, ` + rest, `with p={"add":["SYS_ADMIN"]} (`},
		{"{name: p, default: '1'}", `allowPrivilegeEscalation: "${params.p.matches('^[0-9]+x$')}", capabilities: {drop: [ALL]}, ` + rest, "Pod Security"},
		{"{name: p, default: a}", `allowPrivilegeEscalation: "${params.p.size() * 7 % 11 == 5 && params.p.endsWith('zz')}", capabilities: {drop: [ALL]}, ` + rest, "Pod Security may be baseline"},
		{"{name: p, type: integer, default: 5, minimum: 1}", `runAsUser: "${params.p}", allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}, runAsNonRoot: true`, ""},
		{"{name: p, type: list, default: '', items: {pattern: 'NET_BIND_SERVICE'}}", `allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: "${params.p}"}, ` + rest, ""},
		{"{name: p, type: list, default: '', items: {pattern: 'NET_.*'}}", `allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: "${params.p}"}, ` + rest, "with p=NET_ADMIN (the pod or its namespace may set it), Pod Security is privileged"},
	} {
		text := "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {params: [" + c.params + "], pod: {spec: {containers: [{name: c, image: i, securityContext: {" + c.security + "}}]}}}}"
		found, problems := templates.Parse("x", []byte(text))
		if len(problems) > 0 {
			t.Fatal(text, problems)
		}
		trial := e.Try(templates.NewSet(found), nil)[0]
		var got []string
		for i := range trial.Allows {
			got = append(got, trial.Allows[i].Sentence())
		}
		if all := strings.Join(got, "; "); !strings.Contains(all, c.want) || c.want == "" && all != "" {
			t.Errorf("%s\n%q, want %q", text, all, c.want)
		}
	}
}
