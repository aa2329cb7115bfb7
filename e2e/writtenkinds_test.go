// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// workloadKind is a kind of objects that contain a pod, and the path of the pod in them.
type workloadKind struct {
	group, kind string
	path        []string
}

// workloadKinds are the kinds that pillion inject reads.
var workloadKinds = []workloadKind{
	{"", "Pod", nil},
	{"", "PodTemplate", []string{"template"}},
	{"", "ReplicationController", []string{"spec", "template"}},
	{"apps", "Deployment", []string{"spec", "template"}},
	{"apps", "StatefulSet", []string{"spec", "template"}},
	{"apps", "DaemonSet", []string{"spec", "template"}},
	{"apps", "ReplicaSet", []string{"spec", "template"}},
	{"batch", "Job", []string{"spec", "template"}},
	{"batch", "CronJob", []string{"spec", "jobTemplate", "spec", "template"}},
}

func (k workloadKind) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.group, Version: "v1", Resource: strings.ToLower(k.kind) + "s"}
}

// TestWrittenKinds checks for each kind that pillion inject reads: the API server accepts the object that it wrote, and its
// pods are like those that the webhook injects, also if the same file has the ServiceAccount. What uninject leaves is
// accepted too, and stored like the original.
func TestWrittenKinds(t *testing.T) {
	t.Parallel()
	objects, err := dynamic.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	ns := optedInNamespace(t)
	priorityClass(t, ns)
	runtimeClass(t, ns)
	accounts := map[string]*corev1.ServiceAccount{"default": nil}
	for name, secrets := range map[string][]corev1.LocalObjectReference{"secretive": {{Name: "registry"}}, "plain": nil} {
		accounts[name] = &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, ImagePullSecrets: secrets}
		if _, err := env.Client.CoreV1().ServiceAccounts(ns).Create(testContext(t), accounts[name], metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range workloadKinds {
		for name, declared := range accounts {
			for _, inFile := range []bool{false, true} {
				if inFile && declared == nil {
					continue
				}
				t.Run(fmt.Sprintf("%s of %s in file %t", kind.kind, name, inFile), func(t *testing.T) {
					t.Parallel()
					manifest := marshal(t, workloadOf(t, kind, ns, name))
					var account []byte
					if inFile {
						account = append(marshal(t, declared), "---\n"...)
					}
					stream := writtenBy(t, "inject", slices.Concat(account, manifest))
					written := stream[lastDocument(stream):]

					store := func(manifest []byte) (stored *unstructured.Unstructured) {
						object := &unstructured.Unstructured{}
						if err := yaml.Unmarshal(manifest, object); err != nil {
							t.Fatal(err)
						}
						eventually(t, "the API server knows the ServiceAccount", func(ctx context.Context) (err error) {
							stored, err = objects.Resource(kind.resource()).Namespace(ns).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
							return err
						})
						return stored
					}
					before, after := store(manifest), store(written)
					if a, b := aroundPod(t, kind, before), aroundPod(t, kind, after); a != b {
						t.Errorf("beside the pod, the file gives\n%s\nand the original\n%s", b, a)
					}
					original, changed := podOf(t, ns, kind, before), podOf(t, ns, kind, after)
					if !bytes.Contains(written, []byte("name: WRITTEN")) {
						t.Errorf("nothing is injected into\n%s", written)
					}
					if !bytes.Contains(original, []byte(`"WRITTEN"`)) || !bytes.Equal(original, changed) {
						t.Errorf("the file gives\n%s\nand the webhook\n%s", changed, original)
					}
					left := writtenBy(t, "uninject", stream)
					want := slices.Concat(account, manifest)
					if a, b := documentsOf(t, left), documentsOf(t, want); !reflect.DeepEqual(a, b) {
						t.Errorf("uninject leaves\n%s\nof\n%s", left, want)
					}
					if again := podOf(t, ns, kind, store(left[lastDocument(left):])); !bytes.Equal(original, again) {
						t.Errorf("after uninject, a pod is\n%s\nand was\n%s", again, original)
					}
				})
			}
		}
	}
}

// workloadOf returns an object of a kind, with a pod that requests the template and gets a priority and an overhead.
func workloadOf(t *testing.T, kind workloadKind, ns, account string) map[string]any {
	t.Helper()
	pod := newPod("web", func(p *corev1.Pod) {
		p.Annotations = map[string]string{"pillion.dev/templates": "written"}
		p.Spec.ServiceAccountName, p.Spec.PriorityClassName, p.Spec.RuntimeClassName = account, className, new(className)
		if kind.group == "batch" {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
		}
	})
	template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"status", "kind", "apiVersion"} {
		delete(template, name)
	}
	object := map[string]any{}
	if kind.path == nil {
		object = template
	} else {
		unstructured.RemoveNestedField(template, "metadata", "name")
		if err := unstructured.SetNestedMap(object, template, kind.path...); err != nil {
			t.Fatal(err)
		}
	}
	set := func(value any, path ...string) {
		if err := unstructured.SetNestedField(object, value, path...); err != nil {
			t.Fatal(err)
		}
	}
	set(kind.resource().GroupVersion().String(), "apiVersion")
	set(kind.kind, "kind")
	set("web", "metadata", "name")
	set(ns, "metadata", "namespace")
	switch {
	case kind.kind == "CronJob":
		set("0 3 * * *", "spec", "schedule")
	case kind.group == "apps":
		set(map[string]any{"matchLabels": map[string]any{"app": "web"}}, "spec", "selector")
	}
	if kind.kind == "StatefulSet" {
		set("web", "spec", "serviceName")
	}
	return object
}

// aroundPod returns the labels of a workload and what its spec has beside the pod, as JSON. For a pod it returns "".
func aroundPod(t *testing.T, kind workloadKind, object *unstructured.Unstructured) string {
	t.Helper()
	if kind.path == nil {
		return ""
	}
	rest := object.DeepCopy()
	unstructured.RemoveNestedField(rest.Object, kind.path...)
	text, err := json.Marshal(map[string]any{"labels": rest.GetLabels(), "spec": rest.Object["spec"]})
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), string(object.GetUID()), "UID") // in the labels of Jobs
}

// podOf returns the pod that a controller would create for an object, as the API server would store it.
func podOf(t *testing.T, ns string, kind workloadKind, object *unstructured.Unstructured) []byte {
	t.Helper()
	template, _, err := unstructured.NestedMap(object.Object, kind.path...)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, pod); err != nil {
		t.Fatal(err)
	}
	if kind.path == nil { // it is already stored
		return withoutGenerated(t, pod)
	}
	pod.ObjectMeta = metav1.ObjectMeta{GenerateName: "web-", Labels: pod.Labels, Annotations: pod.Annotations}
	stored, err := env.Client.CoreV1().Pods(ns).Create(testContext(t), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	return withoutGenerated(t, stored)
}

// withoutGenerated is normalizePod without the labels that controllers generate for a dry run.
func withoutGenerated(t *testing.T, pod *corev1.Pod) []byte {
	t.Helper()
	for name := range pod.Labels {
		if strings.HasSuffix(name, "controller-uid") {
			delete(pod.Labels, name)
		}
	}
	return normalizePod(t, pod)
}

// lastDocument returns where the last document of a stream begins.
func lastDocument(stream []byte) int {
	if i := bytes.LastIndex(stream, []byte("\n---\n")); i >= 0 {
		return i + len("\n---\n")
	}
	return 0
}

func marshal(t *testing.T, object any) []byte {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func documentsOf(t *testing.T, stream []byte) (all []any) {
	t.Helper()
	for document := range bytes.SplitSeq(stream, []byte("\n---\n")) {
		var object any
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
	}
	return all
}
