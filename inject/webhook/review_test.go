// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// FuzzReview compares the single pass over a review with encoding/json decoding into maps: names
// are case-sensitive, and the last of two equal names counts. If no name appears twice, the
// Kubernetes decoder must read the same.
func FuzzReview(f *testing.F) {
	const pod = `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","env":[{"name":"X","value":"1"}],"volumeMounts":[{"name":"v","mountPath":"/x"}]}]}}`
	review := func(request string) string {
		return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":` + request + `}`
	}
	for _, body := range []string{
		``, `null`, `[]`, `{}`, ` {} x`, `"\ud800"`, "{\"kind\":\"\xff\"}", `{"request":{"uid":"\u0061\"\\"}}`,
		review(`{"uid":"1","operation":"CREATE","namespace":"n","dryRun":true,"userInfo":{"username":"u"},"object":` + pod + `}`),
		review(`{"uid":"1","UID":"2","Object":{},"object":{"metadata":null,"metadata":{"name":"last"}},"object":` + pod + `}`),
		review(`{"uid":"1","kind":{"group":"g","version":"v","kind":"k"},"resource":{"group":"g","version":"v","resource":"r"},"oldObject":{"a":[1,{"b":"c"}]}}`),
		review(`{"uid":1}`), review(`{"uid":"1","dryRun":"yes"}`), review(`{"uid":"1","kind":[]}`), review(`7`),
		review(`{"uid":"1","object":{"n":[0,-1,1.5e300,12345678901234567890,1E+2],"s":"\\\"\\","t":true,"f":false,"z":null,"":{"":[]}}}`),
		review(`{"uid":"1","object":` + strings.Repeat(`[`, 50) + strings.Repeat(`]`, 50) + `}`),
		strings.Repeat(`[`, 10_001) + strings.Repeat(`]`, 10_001),
		"\n{ \"kind\" : \"AdmissionReview\" ,\t\"apiVersion\":\"admission.k8s.io/v1beta1\", \"request\" : { \"uid\" : \"1\" , \"object\" : { \"a\" : [ 1 , 2 ] } } }\r\n",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var parser jsontree.Parser
		if _, err := parser.Parse(`{"what":["was","there",{"before":[]}]}`, 3); err != nil {
			t.Fatal(err)
		}
		r, rejected := decodeReview(&parser, nil, body, podLevel)
		var want any
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		valid := json.Valid(body) && d.Decode(&want) == nil
		root, _ := want.(map[string]any)
		sent, _ := root["request"].(map[string]any)
		if rejected != nil {
			if text, ok := sent["uid"].(string); valid && utf8.Valid(body) && !strings.Contains(string(body), `\u`) && ok && text != "" &&
				root["kind"] == "AdmissionReview" && root["apiVersion"] == "admission.k8s.io/v1" && !strings.Contains(rejected.sentence, "wrong type") {
				t.Errorf("%q: %s", body, rejected.sentence)
			}
			return
		}
		if !valid {
			t.Fatalf("%q is no JSON", body)
		}
		text := func(in any, name string) string {
			members, _ := in.(map[string]any)
			s, _ := members[name].(string)
			return s
		}
		dryRun, _ := sent["dryRun"].(bool)
		if r.version != text(root, "apiVersion") || r.UID != text(sent, "uid") || r.Namespace != text(sent, "namespace") || r.Name != text(sent, "name") ||
			string(r.Operation) != text(sent, "operation") || r.SubResource != text(sent, "subResource") || r.UserInfo.Username != text(sent["userInfo"], "username") ||
			r.DryRun != dryRun || r.Kind != (kind{text(sent["kind"], "group"), text(sent["kind"], "version"), text(sent["kind"], "kind")}) ||
			r.Resource != (resource{text(sent["resource"], "group"), text(sent["resource"], "version"), text(sent["resource"], "resource")}) {
			t.Errorf("%q became %+v", body, r)
		}
		sameValue(t, r.Object, sent["object"])
		sameValue(t, r.OldObject, sent["oldObject"])
		likeKubernetes(t, body, r)
	})
}

// likeKubernetes compares with the API server's own decoder.
func likeKubernetes(t *testing.T, body []byte, r *admissionRequest) {
	t.Helper()
	var typed struct {
		Request struct {
			UID       string                `json:"uid"`
			Namespace string                `json:"namespace"`
			Operation admissionv1.Operation `json:"operation"`
			Object    runtime.RawExtension  `json:"object"`
		} `json:"request"`
	}
	if strict, err := kjson.UnmarshalStrict(body, &typed, kjson.DisallowDuplicateFields); err != nil || len(strict) > 0 {
		return
	}
	got := typed.Request
	if got.Object.Raw == nil {
		got.Object.Raw = []byte("null")
	}
	if got.UID != r.UID || got.Namespace != r.Namespace || got.Operation != r.Operation || string(got.Object.Raw) != r.Object.String() {
		t.Errorf("%q: Kubernetes reads %+v, not %+v %s", body, got, r, r.Object)
	}
}

// sameValue compares a whole tree with the values that encoding/json decoded.
func sameValue(t *testing.T, n *jsontree.Node, want any) {
	t.Helper()
	if n.Kind() == 0 {
		if want != nil {
			t.Errorf("nothing, not %v", want)
		}
		return
	}
	if got := valueOf(n); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

func valueOf(n *jsontree.Node) any {
	switch n.Kind() {
	case jsontree.String:
		return n.Text()
	case jsontree.Number:
		return json.Number(n.String())
	case jsontree.True, jsontree.False:
		return n.Kind() == jsontree.True
	case jsontree.Object:
		all := map[string]any{}
		for i := range n.Members() {
			all[n.Members()[i].Name()] = valueOf(&n.Members()[i])
		}
		return all
	case jsontree.Array:
		all := []any{}
		for i := range n.Items() {
			all = append(all, valueOf(&n.Items()[i]))
		}
		return all
	}
	return nil
}
