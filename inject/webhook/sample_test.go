// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/webhook"
)

// samplePod is a pod as an API server sends it, with defaults, managedFields and
// the token's volume. Its size is a percentile of the sizes of real pods.
func samplePod(annotations map[string]string) []byte {
	mount := corev1.VolumeMount{Name: "kube-api-access-x2x8z", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}
	pod := &corev1.Pod{}
	pod.GenerateName, pod.Namespace = "web-6d4cf56db6-", "shop"
	pod.Labels = map[string]string{"app": "web", "pod-template-hash": "6d4cf56db6"}
	pod.Annotations = annotations
	pod.Spec.Volumes = []corev1.Volume{{Name: mount.Name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
	}}}, {Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	c := corev1.Container{
		Name: "app-0", Image: "registry.example/team/app:1.4.2", Args: []string{"--verbose", "--listen=:8080"},
		Ports:           []corev1.ContainerPort{{ContainerPort: 8080, Protocol: "TCP"}},
		ImagePullPolicy: "IfNotPresent", TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File",
		VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, mount},
	}
	for j := range 12 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_NUMBER_", j), Value: "the value of a setting " + strings.Repeat("x", j%17)})
	}
	pod.Spec.Containers = []corev1.Container{c}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	object, err := json.Marshal(pod)
	if err != nil {
		panic(err)
	}
	managed := `"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{}},"f:note":""}}],`
	return bytes.Replace(object, []byte(`"metadata":{`), []byte(`"metadata":{`+managed), 1)
}

func sampleBody(pod []byte) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",`+
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"requestKind":{"group":"","version":"v1","kind":"Pod"},`+
		`"requestResource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","operation":"CREATE","userInfo":{"username":"system:serviceaccount:kube-system:replicaset-controller",`+
		`"uid":"5b6c2a9e","groups":["system:serviceaccounts","system:serviceaccounts:kube-system","system:authenticated"]},"object":%s,"oldObject":null,"dryRun":false,`+
		`"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`, pod)
}

// sampleTemplate is a typical one: a native sidecar, two volumes, mounts for the app.
const sampleTemplate = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: NAME}
spec:
  default: true
  params: [{name: level, default: info, enum: [debug, info]}]
  pod:
    spec:
      initContainers:
      - name: NAME
        restartPolicy: Always
        image: registry.example/log-agent:1.4.2
        args: ["--level=LEVEL", "--service=SERVICE"]
        resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 64Mi}}
        securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: NAME-logs, mountPath: /logs, readOnly: true}, {name: NAME-state, mountPath: /state}]
      volumes: [{name: NAME-logs, emptyDir: {}}, {name: NAME-state, emptyDir: {}}]
  forEachContainer:
  - add: {volumeMounts: [{name: NAME-logs, mountPath: /var/log/NAME}]}
`

func sampleTemplates(n int, cel bool) []string {
	var all []string
	for i := range n {
		text := strings.ReplaceAll(sampleTemplate, "NAME", fmt.Sprint("agent-", i))
		if cel {
			text = strings.NewReplacer("LEVEL", "${params.level}", "SERVICE", "${pod.metadata.labels[?'app'].orValue('unknown')}").Replace(text)
		}
		all = append(all, text)
	}
	return all
}

// discardWriter keeps the last answer.
type discardWriter struct {
	header http.Header
	status int
	last   []byte
}

func (w *discardWriter) Header() http.Header { return w.header }
func (w *discardWriter) WriteHeader(status int) {
	w.status = status
}

func (w *discardWriter) Write(p []byte) (int, error) {
	w.last = p
	return len(p), nil
}

// again sends a body, checks the answer, and returns a function that sends the body once more.
func again(tb testing.TB, h http.Handler, body []byte) func() {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, webhook.PathMutate+"?timeout=5s", nil)
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(len(body))
	reader := bytes.NewReader(body)
	w := &discardWriter{header: http.Header{}}
	send := func() {
		reader.Reset(body)
		r.Body = io.NopCloser(reader)
		h.ServeHTTP(w, r)
	}
	send()
	if w.status != http.StatusOK || !bytes.Contains(w.last, []byte(`"patch"`)) || !bytes.Contains(w.last, []byte(`"allowed":true`)) {
		tb.Fatalf("%d %s", w.status, w.last)
	}
	return send
}
