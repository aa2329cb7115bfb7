// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/pillion-dev/pillion/inject"
)

// TestProtectedBesideOthers checks what other webhooks may do to a container that a required template protects: they may
// add to lists, sort variables that do not refer to each other, and harden it. A template that names the field allows
// none of it.
func TestProtectedBesideOthers(t *testing.T) {
	t.Parallel()
	sidecar := func(variables string) string {
		return `pod: {spec: {containers: [{name: side, image: s, env: [` + variables + `], securityContext: {readOnlyRootFilesystem: false}}]}}`
	}
	const two = "{name: Z, value: z}, {name: A, value: a}"
	for what, test := range map[string]struct {
		changed string // fields of the container in the final pod
		field   string
		allowed bool
	}{
		"further items":             {`"env":[{"name":"O","value":"o"},{"name":"Z","value":"z"},{"name":"A","value":"a"}]`, "env", true},
		"sorted":                    {`"env":[{"name":"A","value":"a"},{"name":"Z","value":"z"}]`, "", true},
		"another value":             {`"env":[{"name":"Z","value":"y"},{"name":"A","value":"a"}]`, "", false},
		"no escalation":             {`"securityContext":{"readOnlyRootFilesystem":false,"allowPrivilegeEscalation":false}`, "securityContext", true},
		"fewer capabilities":        {`"securityContext":{"readOnlyRootFilesystem":false,"capabilities":{"drop":["ALL"]},"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}}`, "securityContext", true},
		"more capabilities":         {`"securityContext":{"readOnlyRootFilesystem":false,"capabilities":{"add":["NET_ADMIN"],"drop":["ALL"]}}`, "", false},
		"another user":              {`"securityContext":{"readOnlyRootFilesystem":false,"runAsUser":1000}`, "", false},
		"privileged":                {`"securityContext":{"readOnlyRootFilesystem":false,"privileged":true}`, "", false},
		"hardened against its will": {`"securityContext":{"readOnlyRootFilesystem":true}`, "", false},
		"no securityContext":        {`"securityContext":null`, "", false},
		"its last message":          {`"terminationMessagePolicy":"FallbackToLogsOnError"`, "terminationMessagePolicy", true},
		"the file of its message":   {`"terminationMessagePath":"/etc/side.conf"`, "", false},
		"another command":           {`"command":["sh"]`, "", false},
		"another start":             {`"lifecycle":{"postStart":{"exec":{"command":["sh"]}}}`, "", false},
	} {
		check := func(protect string, want bool) {
			t.Helper()
			injector := withSpecs(t, "required: true, validate: {protect: ["+protect+"]}, "+sidecar(two))
			if v := judgeChanged(t, injector, test.changed); v.Denied == want {
				t.Errorf("%s, protect [%s]: %s %v", what, protect, v.Word(), v.Judged)
			}
		}
		if check("all", test.allowed); test.field != "" {
			check("all, "+test.field, false)
		}
	}
	refers := withSpecs(t, "required: true, "+sidecar(two+`, {name: B, value: "$(A)"}`))
	if v := judgeChanged(t, refers, `"env":[{"name":"A","value":"a"},{"name":"B","value":"$(A)"},{"name":"Z","value":"z"}]`); !v.Denied {
		t.Error("variables that refer to each other may change their places")
	}
}

// judgeChanged judges a pod that was injected, and whose container side was changed then.
func judgeChanged(t *testing.T, injector *inject.Injector, changed string) *inject.Verdict {
	t.Helper()
	req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: []byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"a"}]}}`)}
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	doc := decodeJSON(t, applyPatch(t, req.Object, r.Patch())).(map[string]any)
	for _, c := range doc["spec"].(map[string]any)["containers"].([]any) {
		if c := c.(map[string]any); c["name"] == "side" {
			maps.Copy(c, decodeJSON(t, []byte("{"+changed+"}")).(map[string]any))
		}
	}
	if req.Object, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	v, err := inject.NewJudge(injector, nil, true).Judge(req)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
