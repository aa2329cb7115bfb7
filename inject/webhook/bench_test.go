// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mattbaird/jsonpatch"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates"
)

// benchPod is a pod as an API server sends it, with defaults, managedFields and
// the token's volume; its size is that of a percentile of real ones.
func benchPod(containers, env int, note string, annotations map[string]string) []byte {
	mount := corev1.VolumeMount{Name: "kube-api-access-x2x8z", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}
	pod := &corev1.Pod{}
	pod.GenerateName, pod.Namespace = "web-6d4cf56db6-", "shop"
	pod.Labels = map[string]string{"app": "web", "pod-template-hash": "6d4cf56db6"}
	pod.Annotations = annotations
	pod.Spec.Volumes = []corev1.Volume{{Name: mount.Name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
	}}}, {Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for i := range containers {
		c := corev1.Container{
			Name: fmt.Sprint("app-", i), Image: "registry.example/team/app:1.4.2", Args: []string{"--verbose", "--listen=:8080"},
			Ports:           []corev1.ContainerPort{{ContainerPort: int32(8080 + i), Protocol: "TCP"}},
			ImagePullPolicy: "IfNotPresent", TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File",
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, mount},
		}
		for j := range env {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_NUMBER_", j), Value: "the value of a setting " + strings.Repeat("x", j%17)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	object, err := json.Marshal(pod)
	if err != nil {
		panic(err)
	}
	managed := `"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{}},"f:note":"` + note + `"}}],`
	return bytes.Replace(object, []byte(`"metadata":{`), []byte(`"metadata":{`+managed), 1)
}

func benchBody(pod []byte) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",`+
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"requestKind":{"group":"","version":"v1","kind":"Pod"},`+
		`"requestResource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","operation":"CREATE","userInfo":{"username":"system:serviceaccount:kube-system:replicaset-controller",`+
		`"uid":"5b6c2a9e","groups":["system:serviceaccounts","system:serviceaccounts:kube-system","system:authenticated"]},"object":%s,"oldObject":null,"dryRun":false,`+
		`"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`, pod)
}

// benchTemplate is a typical one: a native sidecar, two volumes, mounts for the app.
const benchTemplate = `apiVersion: pillion.dev/v1alpha1
kind: SidecarTemplate
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

func benchTemplates(n int, cel bool) []string {
	var all []string
	for i := range n {
		text := strings.ReplaceAll(benchTemplate, "NAME", fmt.Sprint("agent-", i))
		if cel {
			text = strings.NewReplacer("LEVEL", "${params.level}", "SERVICE", "${pod.metadata.labels[?'app'].orValue('unknown')}").Replace(text)
		}
		all = append(all, text)
	}
	return all
}

// benchPods are percentiles of real pods, by size.
func benchPods() []struct {
	name            string
	containers, env int
	note            int
} {
	return []struct {
		name            string
		containers, env int
		note            int
	}{{"small", 1, 0, 100}, {"median", 1, 12, 2000}, {"p90", 2, 20, 3000}, {"p99", 4, 60, 4000}, {"heavy", 20, 200, 4000}}
}

func BenchmarkMutate(b *testing.B) {
	for _, p := range benchPods() {
		note := strings.Repeat("x", p.note)
		injected := benchBody(benchPod(p.containers, p.env, note, map[string]string{"a": "b"}))
		out := benchBody(benchPod(p.containers, p.env, note, map[string]string{"pillion.dev/templates": ""}))
		b.Run("pod="+p.name, func(b *testing.B) {
			for _, n := range []int{1, 5, 20} {
				for _, cel := range []bool{false, true} {
					e := newEdge(load(b, benchTemplates(n, cel)...))
					e.Log = slog.New(slog.DiscardHandler)
					name := fmt.Sprintf("templates=%d,cel=%t", n, cel)
					b.Run("handler=pillion-injected,"+name, func(b *testing.B) { send(b, e.Handler, webhook.PathMutate, injected, true) })
					b.Run("handler=pillion-opted-out,"+name, func(b *testing.B) { send(b, e.Handler, webhook.PathMutate, out, false) })
				}
			}
			b.Run("handler=read-only", func(b *testing.B) { send(b, http.HandlerFunc(readOnly), webhook.PathMutate, injected, false) })
			for _, as := range []decoding{asOfTheField(b), asPlainJSON} {
				b.Run("handler=typed-direct,decode="+as.name, func(b *testing.B) { send(b, typedDirect(as), webhook.PathMutate, injected, true) })
				b.Run("handler=typed-diff,decode="+as.name, func(b *testing.B) { send(b, typedDiff(as), webhook.PathMutate, injected, true) })
			}
		})
	}
}

// BenchmarkValidate judges final pods that are right.
func BenchmarkValidate(b *testing.B) {
	for _, p := range benchPods() {
		b.Run("pod="+p.name, func(b *testing.B) {
			for _, n := range []int{1, 5, 20} {
				e := newEdge(load(b, benchTemplates(n, false)...))
				e.Log = slog.New(slog.DiscardHandler)
				object := benchPod(p.containers, p.env, strings.Repeat("x", p.note), map[string]string{"a": "b"})
				result, err := e.Handler.Injector().Inject(inject.Request{Operation: "CREATE", OptedIn: true, Namespace: templates.Namespace{Name: "shop"}, Object: object})
				if err != nil {
					b.Fatal(err)
				}
				final, err := inject.Apply(object, result.Ops)
				if err != nil {
					b.Fatal(err)
				}
				b.Run(fmt.Sprintf("handler=pillion-judged,templates=%d", n), func(b *testing.B) {
					send(b, e.Handler, webhook.PathValidate, benchBody(final), false)
				})
			}
		})
	}
}

// send sends one body again and again.
func send(b *testing.B, h http.Handler, path string, body []byte, patched bool) {
	b.Helper()
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, path+"?timeout=5s", nil)
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(len(body))
	reader := bytes.NewReader(body)
	r.Body = io.NopCloser(reader)
	w := &discardWriter{header: http.Header{}}
	h.ServeHTTP(w, r)
	if w.status != http.StatusOK || bytes.Contains(w.last, []byte(`"patch"`)) != patched || !bytes.Contains(w.last, []byte(`"allowed":true`)) {
		b.Fatalf("%d %s", w.status, w.last)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	before := cpuTime(b)
	for b.Loop() {
		reader.Reset(body)
		h.ServeHTTP(w, r)
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// cpuTime is what this process has had of the processors: on a machine that does
// other things as well it says more than the clock.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
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

func readOnly(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || len(body) == 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, `{"response":{"allowed":true}}`)
}

// decoding is how a webhook gets its Go types out of a body.
type decoding struct {
	name   string
	decode func(text []byte, into runtime.Object) error
}

// asOfTheField is what webhooks of the field do, directly or through
// controller-runtime: it reads a document four times, to find its kind and to
// check and decode it.
func asOfTheField(tb testing.TB) decoding {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admissionv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			tb.Fatal(err)
		}
	}
	deserializer := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	return decoding{"universal", func(text []byte, into runtime.Object) error {
		_, _, err := deserializer.Decode(text, nil, into)
		return err
	}}
}

var asPlainJSON = decoding{"encoding-json", func(text []byte, into runtime.Object) error { return json.Unmarshal(text, into) }}

// typed is what most webhooks do: decode the review and the pod into Go types.
func typed(r *http.Request, as decoding) (*admissionv1.AdmissionReview, *corev1.Pod, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil, err
	}
	review, pod := &admissionv1.AdmissionReview{}, &corev1.Pod{}
	if err := as.decode(body, review); err != nil {
		return nil, nil, err
	}
	return review, pod, as.decode(review.Request.Object.Raw, pod)
}

func sidecarOf(pod *corev1.Pod) (corev1.Container, []corev1.Volume, corev1.VolumeMount) {
	always := corev1.ContainerRestartPolicyAlways
	return corev1.Container{
			Name: "agent-0", Image: "registry.example/log-agent:1.4.2", RestartPolicy: &always, Args: []string{"--level=info", "--service=" + pod.Labels["app"]},
			VolumeMounts: []corev1.VolumeMount{{Name: "logs", MountPath: "/logs"}, {Name: "state", MountPath: "/state"}},
		}, []corev1.Volume{{Name: "logs", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, {Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		corev1.VolumeMount{Name: "logs", MountPath: "/var/log/app"}
}

func answerTyped(w http.ResponseWriter, review *admissionv1.AdmissionReview, ops any) {
	patch, err := json.Marshal(ops)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	kind := admissionv1.PatchTypeJSONPatch
	answer, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: &admissionv1.AdmissionResponse{
		UID: review.Request.UID, Allowed: true, Patch: patch, PatchType: &kind,
	}})
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(answer)
}

func typedDirect(as decoding) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		review, pod, err := typed(r, as)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		container, volumes, mount := sidecarOf(pod)
		ops := []jsonpatch.JsonPatchOperation{jsonpatch.NewPatch("add", "/spec/initContainers", []corev1.Container{container})}
		for i := range volumes {
			ops = append(ops, jsonpatch.NewPatch("add", "/spec/volumes/-", volumes[i]))
		}
		for i := range pod.Spec.Containers {
			ops = append(ops, jsonpatch.NewPatch("add", fmt.Sprintf("/spec/containers/%d/volumeMounts/-", i), mount))
		}
		answerTyped(w, review, ops)
	}
}

func typedDiff(as decoding) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		review, pod, err := typed(r, as)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		container, volumes, mount := sidecarOf(pod)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		pod.Spec.Volumes = append(pod.Spec.Volumes, volumes...)
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].VolumeMounts = append(pod.Spec.Containers[i].VolumeMounts, mount)
		}
		after, err := json.Marshal(pod)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		ops, err := jsonpatch.CreatePatch(review.Request.Object.Raw, after)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		answerTyped(w, review, ops)
	}
}
