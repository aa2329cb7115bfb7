// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podSize is a pod whose AdmissionReview has the size of a percentile of the reviews for
// workloads of public projects.
type podSize struct {
	name            string
	containers, env int
	bytes           int     // of those reviews
	share           float64 // share of the pods of a cluster; used by the simulation
}

func podSizes() []podSize {
	return []podSize{
		{"small", 1, 0, 2289, 0.1},
		{"median", 1, 12, 4240, 0.5},
		{"p90", 2, 21, 9228, 0.3},
		{"p99", 4, 36, 24310, 0.09},
		{"heavy", 20, 200, 0, 0.01},
	}
}

// typicalSize returns the size that performance targets refer to.
func typicalSize() podSize { return podSizes()[1] }

// newPod returns a pod after admission plugins, with defaults and the token volume.
func newPod(s podSize) *corev1.Pod {
	yes, seconds := true, int64(300)
	token := corev1.VolumeMount{Name: "kube-api-access-x2x8z", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    "web-6d4cf56db6-",
			Labels:          map[string]string{"app": "web", "pod-template-hash": "6d4cf56db6"},
			Annotations:     map[string]string{"example.com/owner": "team-a"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-6d4cf56db6", UID: "f61d5cbf-bd26-43bf-8f66-3df6d605a311", Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{Name: token.Name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			}}}}},
			RestartPolicy: "Always", DNSPolicy: "ClusterFirst", ServiceAccountName: "default", SchedulerName: "default-scheduler",
			SecurityContext: &corev1.PodSecurityContext{},
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &seconds},
				{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &seconds},
			},
		},
	}
	for i := range s.containers {
		c := corev1.Container{
			Name: fmt.Sprint("app-", i), Image: "registry.example/team/app:1.4.2", Args: []string{"--verbose"},
			Resources:       corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")}},
			ImagePullPolicy: "IfNotPresent", TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File",
			VolumeMounts: []corev1.VolumeMount{token},
		}
		for j := range s.env {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_NUMBER_", j), Value: "the value of a setting " + strings.Repeat("x", j%37)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// managedFields returns field managers. They are about a third of what an API server sends.
func managedFields(pod *corev1.Pod) []metav1.ManagedFieldsEntry {
	type fields = map[string]any
	containers := fields{}
	for _, c := range pod.Spec.Containers {
		env := fields{".": fields{}}
		for _, e := range c.Env {
			env[`k:{"name":"`+e.Name+`"}`] = fields{".": fields{}, "f:name": fields{}, "f:value": fields{}}
		}
		containers[`k:{"name":"`+c.Name+`"}`] = fields{
			".": fields{}, "f:args": fields{}, "f:env": env, "f:image": fields{}, "f:imagePullPolicy": fields{}, "f:name": fields{},
			"f:resources": fields{".": fields{}, "f:requests": fields{".": fields{}, "f:cpu": fields{}, "f:memory": fields{}}},
		}
	}
	owned := mustMarshal(fields{
		"f:metadata": fields{"f:generateName": fields{}, "f:labels": fields{".": fields{}, "f:app": fields{}, "f:pod-template-hash": fields{}}},
		"f:spec":     fields{"f:containers": containers},
	})
	return []metav1.ManagedFieldsEntry{{
		Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(owned)),
	}}
}

// podJSON returns a pod of this size as an API server sends it. The edits are applied first.
func podJSON(s podSize, edits ...func(*corev1.Pod)) []byte {
	pod := newPod(s)
	pod.ManagedFields = managedFields(pod)
	for _, edit := range edits {
		edit(pod)
	}
	return mustMarshal(pod)
}

func optOut(pod *corev1.Pod) { pod.Labels["pillion.dev/inject"] = "disabled" }

// review returns the AdmissionReview that an API server sends for a pod.
func review(pod []byte) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",`+
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"requestKind":{"group":"","version":"v1","kind":"Pod"},`+
		`"requestResource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","operation":"CREATE","userInfo":{"username":"system:serviceaccount:kube-system:replicaset-controller",`+
		`"uid":"5b6c2a9e","groups":["system:serviceaccounts","system:serviceaccounts:kube-system","system:authenticated"]},"object":%s,"oldObject":null,"dryRun":false,`+
		`"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`, pod)
}

func mustMarshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values
	}
	return text
}
