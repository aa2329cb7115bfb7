// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the chart has differently, because Helm needs it. Everything else is the same.
const (
	// helm install --create-namespace makes the namespace, and Helm keeps the release in it.
	onlyKustomize = "Namespace/" + system
	// Helm deletes all that it installed, except what has this annotation. Only
	// CustomResourceDefinitions have it.
	keepAnnotation = "helm.sh/resource-policy"
)

// compare expects the same objects with the same fields.
func compare(t *testing.T, chart, kustomized set) {
	t.Helper()
	want := maps.Clone(kustomized)
	delete(want, onlyKustomize)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(chart))); diff != "" {
		t.Errorf("objects (- kustomize, + chart):\n%s", diff)
	}
	for id, object := range chart {
		if object.GetKind() == "CustomResourceDefinition" {
			annotations := object.GetAnnotations()
			if annotations[keepAnnotation] != "keep" {
				t.Errorf("%s has the annotations %v", id, annotations)
			}
			delete(annotations, keepAnnotation)
			object.SetAnnotations(annotations)
		}
		if want[id] == nil {
			continue
		}
		if diff := cmp.Diff(want[id].Object, object.Object); diff != "" {
			t.Errorf("%s (- kustomize, + chart):\n%s", id, diff)
		}
	}
}

// overlays are the values of each overlay. The key is its folder.
var overlays = map[string]string{
	"cert-manager": "certificates: {source: cert-manager}\n",
	"self-signed":  "certificates: {source: self-signed}\n",
}

// components are the values of each component. The key is its folder.
var components = map[string]string{
	"exempt-pods":         "exemptPods: true\n",
	"fail-closed":         "failurePolicy: {mutating: Fail}\n",
	"fail-open":           "failurePolicy: {validating: Ignore}\n",
	"hpa":                 "hpa: {enabled: true}\n",
	"keep-ca-bundle":      "keepCABundle: true\n",
	"monitoring":          "monitoring: {enabled: true}\n",
	"network-policy":      "networkPolicy: {enabled: true}\n",
	"no-advise":           "advise: false\n",
	"no-custom-resources": "crds: {install: false}\ncontroller: {enabled: false}\n",
	"rollout":             "rollout: true\n",
	"static-pods":         "staticPods: {enabled: true}\n",
	"viewers":             "viewers: \"system:authenticated\"\n",
}

// TestSame checks that each overlay with each component has the same objects as a chart and as a
// kustomization, and so does each overlay with all components.
func TestSame(t *testing.T) {
	folders(t, "overlays", overlays)
	folders(t, "components", components)
	for overlay, source := range overlays {
		resources := "resources: [MANIFESTS/overlays/" + overlay + "]\n"
		t.Run(overlay, func(t *testing.T) {
			compare(t, objects(t, mustRenderChart(t, system, source).Manifest), kustomize(t, resources, nil))
		})
		for component, values := range components {
			t.Run(overlay+"/"+component, func(t *testing.T) {
				compare(t, objects(t, mustRenderChart(t, system, source+values).Manifest),
					kustomize(t, resources+"components: [MANIFESTS/components/"+component+"]\n", nil))
			})
		}
		t.Run(overlay+"/all", func(t *testing.T) {
			values, list := source, ""
			for _, component := range slices.Sorted(maps.Keys(components)) {
				if component == "fail-open" { // it and fail-closed set the same key
					continue
				}
				values, list = values+components[component], list+"- MANIFESTS/components/"+component+"\n"
			}
			compare(t, objects(t, mustRenderChart(t, system, values).Manifest), kustomize(t, resources+"components:\n"+list, nil))
		})
	}
}

// folders checks that the table names each folder.
func folders(t *testing.T, folder string, table map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(manifests + "/" + folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff(names, slices.Sorted(maps.Keys(table))); diff != "" {
		t.Errorf("the folders of %s (-), and those that are compared (+):\n%s", folder, diff)
	}
}

// TestSameOwn does the same for a certificate of the user's own.
func TestSameOwn(t *testing.T) {
	example, err := os.ReadFile("../../examples/own-certificate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const ca = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
	want := kustomize(t, strings.ReplaceAll(string(example), "../manifests", "MANIFESTS"), map[string]string{"tls.crt": ca, "tls.key": "key"})
	delete(want, "Secret/pillion-tls") // the chart takes no key; the user makes the Secret
	for _, id := range []string{"MutatingWebhookConfiguration/pillion", "ValidatingWebhookConfiguration/pillion", "ValidatingWebhookConfiguration/pillion-advise"} {
		for _, webhook := range want[id].Object["webhooks"].([]any) { // kustomize breaks the lines of base64
			config := webhook.(map[string]any)["clientConfig"].(map[string]any)
			config["caBundle"] = strings.ReplaceAll(config["caBundle"].(string), "\n", "")
		}
	}
	values := "certificates: {source: own, own: {ca: \"" + strings.ReplaceAll(ca, "\n", `\n`) + "\"}}"
	compare(t, objects(t, mustRenderChart(t, system, values).Manifest), want)
}
