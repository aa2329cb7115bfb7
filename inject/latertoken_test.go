// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/validation"
)

// TestLaterToken checks that a file and a workload are judged with the mount of the API token that their pods get.
func TestLaterToken(t *testing.T) {
	t.Parallel()
	const at = validation.TokenPath
	templateOf := func(volume, mount string) string {
		return "pod: {spec: {volumes: [{name: v, " + volume + "}]}}, forEachContainer: [{add: {volumeMounts: [{name: v, " + mount + "}]}}]"
	}
	inside := templateOf("configMap: {name: c}", "mountPath: "+at+"/extra, subPath: key")
	for _, c := range []struct {
		what, template, pod string
		account             *request.ServiceAccount
		owner               workloads.Owner
		stored, conflict    bool
	}{
		{what: "a file inside", template: inside, conflict: true},
		{what: "a file inside, of a node", template: templateOf("hostPath: {path: /x, type: Socket}", "mountPath: "+at+"/x.sock"), conflict: true},
		{what: "a directory inside", template: templateOf("emptyDir: {}", "mountPath: "+at+"/extra")},
		{what: "a file around", template: templateOf("configMap: {name: c}", "mountPath: /var/run/secrets, subPath: key"), conflict: true},
		{what: "a directory around", template: templateOf("configMap: {name: c}", "mountPath: /var/run/secrets")},
		{what: "an empty directory around", template: templateOf("emptyDir: {}", "mountPath: /var/run/secrets, readOnly: true"), conflict: true},
		{what: "no token in the pod", template: inside, pod: `"automountServiceAccountToken":false,`},
		{what: "no token in the account", template: inside, account: &request.ServiceAccount{Known: true, NoToken: true}},
		{what: "a token in the pod, but not in the account", template: inside, pod: `"automountServiceAccountToken":true,`, account: &request.ServiceAccount{Known: true, NoToken: true}, conflict: true},
		{what: "an account", template: inside, account: &request.ServiceAccount{Known: true}, conflict: true},
		{what: "a workload of a cluster", template: inside, stored: true, owner: workloads.Owner{Kind: "Deployment", Name: "web"}, conflict: true},
		{what: "a pod that the plugin has seen", template: inside, stored: true},
	} {
		namespace := shopNamespace()
		if c.account != nil {
			namespace.ServiceAccounts = request.SameServiceAccount(*c.account)
		}
		r, err := withSpecs(t, c.template).Inject(inject.Request{
			Operation: "CREATE", OptedIn: true, Namespace: namespace, File: !c.stored, Owner: c.owner, Object: []byte(`{"metadata":{"name":"web"},"spec":{` + c.pod + `"containers":[{"name":"app","image":"a"}]}}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := &r.Decisions[0]; c.conflict != (d.Code == inject.CodeConflict && strings.Contains(d.Message, at)) || !c.conflict && d.Code != inject.CodeInjected {
			t.Errorf("%s: %s %s", c.what, d.Code, d.Message)
		}
	}
}
