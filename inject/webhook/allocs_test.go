// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/webhook"
)

// maxAllocs are those of a typical injected request. More is no mistake but has a price: say in the change what
// it buys.
const maxAllocs = 400

// typicalTemplate has a native sidecar, two volumes, a mount for the app, and expressions in its leaves.
const typicalTemplate = `apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
metadata: {name: log-agent}
spec:
  default: true
  params: [{name: level, default: info, enum: [debug, info]}]
  pod:
    spec:
      initContainers:
      - name: log-agent
        restartPolicy: Always
        image: registry.example/log-agent:1.4.2
        args: ["--level=${params.level}", "--service=${pod.metadata.labels[?'app'].orValue('unknown')}"]
        resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 64Mi}}
        securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: logs, mountPath: /logs, readOnly: true}, {name: state, mountPath: /state}]
      volumes: [{name: logs, emptyDir: {}}, {name: state, emptyDir: {}}]
  forEachContainer:
  - add: {volumeMounts: [{name: logs, mountPath: /var/log/app}]}
`

// typicalBody has a container with a dozen variables, which managedFields name once more.
func typicalBody() []byte {
	env, managed := make([]string, 12), make([]string, 12)
	for i := range env {
		name := "SETTING_" + string(rune('A'+i))
		env[i] = `{"name":"` + name + `","value":"the value of a setting that is not short"}`
		managed[i] = `"k:{\"name\":\"` + name + `\"}":{".":{},"f:name":{},"f:value":{}}`
	}
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",` +
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","operation":"CREATE",` +
		`"userInfo":{"username":"system:serviceaccount:kube-system:replicaset-controller","groups":["system:serviceaccounts","system:authenticated"]},"object":{` +
		`"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"web-6d4cf56db6-","labels":{"app":"web","pod-template-hash":"6d4cf56db6"},"annotations":{"a":"b"},` +
		`"managedFields":[{"manager":"kube-controller-manager","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:containers":{"f:env":{` + strings.Join(managed, ",") + `}}}}}]},` +
		`"spec":{"volumes":[{"name":"token","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}],"containers":[{"name":"web","image":"registry.example/web:1.4.2",` +
		`"env":[` + strings.Join(env, ",") + `],"resources":{},"volumeMounts":[{"name":"token","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],` +
		`"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","securityContext":{}},"status":{}},"oldObject":null,"dryRun":false}}`)
}

// forgetful keeps nothing of an answer but its length.
type forgetful struct {
	header  http.Header
	written int
}

func (w *forgetful) Header() http.Header { return w.header }
func (*forgetful) WriteHeader(int)       {}

func (w *forgetful) Write(p []byte) (int, error) {
	w.written += len(p)
	return len(p), nil
}

// TestAllocations is not parallel: it counts what the whole process allocates.
func TestAllocations(t *testing.T) {
	e := newEdge(load(t, typicalTemplate))
	e.Log = slog.New(slog.DiscardHandler)
	body := typicalBody()
	if _, patch := checkContract(t, webhook.PathMutate, body, e.answer(post(t, webhook.PathMutate, body))); !bytes.Contains(patch, []byte("--service=web")) {
		t.Fatalf("not injected: %s", patch)
	}
	r := post(t, webhook.PathMutate+"?timeout=5s", nil)
	w := &forgetful{header: http.Header{}}
	allocs := testing.AllocsPerRun(200, func() {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		e.ServeHTTP(w, r)
	})
	t.Logf("%.0f allocations for a request of %d bytes", allocs, len(body))
	if allocs > maxAllocs {
		t.Errorf("a request makes %.0f allocations, more than %d", allocs, maxAllocs)
	}
}
