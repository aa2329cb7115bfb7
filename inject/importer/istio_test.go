// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject/report/yamldiff"
)

// TestIstioMerges checks that an imported injection template adds to a pod what Istio adds: the template is executed by Go and merged
// into the pod by Kubernetes, as Istio's injector does.
func TestIstioMerges(t *testing.T) {
	compared := 0
	for _, path := range []string{"testdata/cases/istio-configmap.txtar", "testdata/cases/istio-merge.txtar", "testdata/public/04-istio-containers.txtar", "testdata/public/06-istio-grpc.txtar"} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var pod corev1.Pod
			if err := yaml.Unmarshal(fileOf(archive, "pod.yaml"), &pod); err != nil {
				t.Fatal(err)
			}
			for name, text := range istioTemplatesOf(t, archive) {
				if name != "sidecar" {
					pod = istioMerge(t, pod, name, text)
					compared++
				}
			}
			sortVariables(&pod)
			want, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			var got corev1.Pod
			injected := injectCase(t, archive, fileOf(archive, "pod.yaml"), importCase(t, archive))
			if err := yaml.Unmarshal([]byte(injected), &got); err != nil {
				t.Fatal(err)
			}
			sortVariables(&got)
			again, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := yamldiff.Of("Istio", yamldiff.Encode(yamldiff.Decode(want)), "Pillion", yamldiff.Encode(yamldiff.Decode(again))); diff != "" {
				t.Error(diff)
			}
		})
	}
	if compared < 4 {
		t.Errorf("only %d templates are compared", compared)
	}
}

// sortVariables sorts variables by name. A merge puts new ones first, and Pillion last.
func sortVariables(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		slices.SortFunc(pod.Spec.Containers[i].Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	}
}

// istioTemplatesOf returns the injection templates of a case.
func istioTemplatesOf(t *testing.T, archive *txtar.Archive) map[string]string {
	t.Helper()
	var object struct {
		Data map[string]string
		Spec struct {
			Values struct {
				SidecarInjectorWebhook struct{ Templates map[string]string }
			}
		}
	}
	if err := yaml.Unmarshal(sourcesOf(archive)[0].Data, &object); err != nil {
		t.Fatal(err)
	}
	var config struct{ Templates map[string]string }
	if err := yaml.Unmarshal([]byte(object.Data["config"]), &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Templates) > 0 {
		return config.Templates
	}
	return object.Spec.Values.SidecarInjectorWebhook.Templates
}

// istioMerge executes a template for a pod, and merges the result into it.
func istioMerge(t *testing.T, pod corev1.Pod, name, text string) (merged corev1.Pod) {
	t.Helper()
	functions := template.FuncMap{
		"isset": func(m map[string]string, key string) bool { _, ok := m[key]; return ok },
		"annotation": func(meta metav1.ObjectMeta, key string, fallback any) string {
			if value, ok := meta.Annotations[key]; ok {
				return value
			}
			return fmt.Sprint(fallback)
		},
		"valueOrDefault": func(value, fallback any) any {
			if value == "" || value == nil {
				return fallback
			}
			return value
		},
		"toLower": strings.ToLower, "quote": func(text string) string { return fmt.Sprintf("%q", text) },
		"contains": func(part, text string) bool { return strings.Contains(text, part) },
	}
	parsed, err := template.New(name).Funcs(functions).Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	meta := pod.ObjectMeta
	meta.Namespace = "shop"
	values := map[string]any{"global": map[string]any{"istioNamespace": "mesh", "hub": "registry.example"}}
	if strings.Contains(t.Name(), "configmap") {
		values["global"].(map[string]any)["istioNamespace"] = "mesh-system"
	}
	if err := parsed.Execute(&out, map[string]any{"ObjectMeta": meta, "Spec": pod.Spec, "Values": values}); err != nil {
		t.Fatal(err)
	}
	patch, err := yaml.YAMLToJSON(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	original, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	result, err := strategicpatch.StrategicMergePatch(original, patch, corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(result, &merged); err != nil {
		t.Fatal(err)
	}
	return merged
}
