// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/mattbaird/jsonpatch"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// references are other ways to add the typical template's sidecar, as webhooks commonly do it.
func references() map[string]http.Handler {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(admissionv1.AddToScheme(scheme))
	t := typed{serializer.NewCodecFactory(scheme).UniversalDeserializer()}
	return map[string]http.Handler{
		"read-only":          http.HandlerFunc(readOnly),
		"typed-direct":       t.handler(direct),
		"typed-diff":         t.handler(diff),
		"controller-runtime": &admission.Webhook{Handler: runtimeHandler{admission.NewDecoder(scheme)}},
	}
}

func readOnly(w http.ResponseWriter, r *http.Request) {
	if body, err := io.ReadAll(r.Body); err != nil || len(body) == 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, `{"response":{"allowed":true}}`)
}

// sidecar is what the typical template makes of a pod.
type sidecar struct {
	container corev1.Container
	volumes   []corev1.Volume
	mount     corev1.VolumeMount
}

const injectedAnnotation = "agent-0.pillion.dev/injected"

func newSidecar(pod *corev1.Pod) sidecar {
	always, yes, no := corev1.ContainerRestartPolicyAlways, true, false
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	s := sidecar{
		container: corev1.Container{
			Name: "agent-0", Image: "registry.example/log-agent:1.4.2", RestartPolicy: &always,
			Args: []string{"--level=info", "--service=" + pod.Labels["app"]},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("32Mi")},
				Limits:   corev1.ResourceList{"memory": resource.MustParse("64Mi")},
			},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, RunAsNonRoot: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "agent-0-logs", MountPath: "/logs", ReadOnly: true}, {Name: "agent-0-state", MountPath: "/state"}},
		},
		volumes: []corev1.Volume{{Name: "agent-0-logs", VolumeSource: empty}, {Name: "agent-0-state", VolumeSource: empty}},
		mount:   corev1.VolumeMount{Name: "agent-0-logs", MountPath: "/var/log/agent-0"},
	}
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		if m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount" { // comes before webhooks, so nothing else mounts it
			s.container.VolumeMounts = append(s.container.VolumeMounts, m)
		}
	}
	return s
}

// addTo changes the pod.
func (s sidecar) addTo(pod *corev1.Pod) {
	pod.Annotations[injectedAnnotation] = "0123456789ab"
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, s.container)
	pod.Spec.Volumes = append(pod.Spec.Volumes, s.volumes...)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].VolumeMounts = append(pod.Spec.Containers[i].VolumeMounts, s.mount)
	}
}

// typed reads reviews and pods into Kubernetes' types.
type typed struct{ decoder runtime.Decoder }

// operations make the patch for a pod.
type operations func(pod *corev1.Pod, raw []byte) ([]jsonpatch.JsonPatchOperation, error)

func (t typed) handler(make operations) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := t.answer(r, make)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})
}

func (t typed) answer(r *http.Request, make operations) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	review, pod := &admissionv1.AdmissionReview{}, &corev1.Pod{}
	if _, _, err := t.decoder.Decode(body, nil, review); err != nil {
		return nil, err
	}
	raw := review.Request.Object.Raw
	if _, _, err := t.decoder.Decode(raw, nil, pod); err != nil {
		return nil, err
	}
	ops, err := make(pod, raw)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return nil, err
	}
	kind := admissionv1.PatchTypeJSONPatch
	return json.Marshal(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: &admissionv1.AdmissionResponse{
		UID: review.Request.UID, Allowed: true, Patch: patch, PatchType: &kind,
	}})
}

// direct writes the operations by hand.
func direct(pod *corev1.Pod, _ []byte) ([]jsonpatch.JsonPatchOperation, error) {
	s := newSidecar(pod)
	ops := []jsonpatch.JsonPatchOperation{
		jsonpatch.NewPatch("add", "/metadata/annotations/agent-0.pillion.dev~1injected", "0123456789ab"),
		jsonpatch.NewPatch("add", "/spec/initContainers", []corev1.Container{s.container}),
	}
	for i := range s.volumes {
		ops = append(ops, jsonpatch.NewPatch("add", "/spec/volumes/-", s.volumes[i]))
	}
	for i := range pod.Spec.Containers {
		ops = append(ops, jsonpatch.NewPatch("add", fmt.Sprintf("/spec/containers/%d/volumeMounts/-", i), s.mount))
	}
	return ops, nil
}

// diff changes the pod and compares it with what came.
func diff(pod *corev1.Pod, raw []byte) ([]jsonpatch.JsonPatchOperation, error) {
	newSidecar(pod).addTo(pod)
	after, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	return jsonpatch.CreatePatch(raw, after)
}

// runtimeHandler is controller-runtime's way.
type runtimeHandler struct{ decoder admission.Decoder }

func (h runtimeHandler) Handle(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := h.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	newSidecar(pod).addTo(pod)
	after, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, after)
}
