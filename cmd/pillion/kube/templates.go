// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Taken is why a template is not used that has the name of one of the cluster, even if that one is invalid:
// otherwise, replicas that know its last valid content would disagree with others.
func Taken(name string) string {
	return fmt.Sprintf("the %s of this name takes precedence (%s/%s); use another name", v1alpha1.ClusterKind, strings.ToLower(v1alpha1.ClusterKind), name)
}

// CompareAge compares the age of two templates. The older one is less.
func CompareAge(a, b metav1.Object) int {
	return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), strings.Compare(a.GetName(), b.GetName()))
}

// TemplateResources returns the resources of templates: those of the cluster, then those of namespaces.
func TemplateResources() [2]schema.GroupVersionResource {
	version := schema.GroupVersion{Group: v1alpha1.Group, Version: v1alpha1.Version}
	return [2]schema.GroupVersionResource{version.WithResource(v1alpha1.ClusterResource), version.WithResource(v1alpha1.NamespacedResource)}
}

// TemplateID returns how messages name a template object, for example "sidecartemplate/team-a/agent".
func TemplateID(o *unstructured.Unstructured) string {
	return templateID(o.GetKind(), o.GetNamespace(), o.GetName())
}

func templateID(kind, namespace, name string) string {
	id := strings.ToLower(kind) + "/"
	if namespace != "" {
		id += namespace + "/"
	}
	return id + name
}

// TemplateText returns the part of a template object that Pillion reads, as JSON.
func TemplateText(o *unstructured.Unstructured) ([]byte, error) {
	spec, ok := o.Object["spec"]
	if !ok {
		return templateText(o.GetKind(), o.GetNamespace(), o.GetName(), nil), nil
	}
	text, err := json.Marshal(spec)
	return templateText(o.GetKind(), o.GetNamespace(), o.GetName(), text), err
}

// CompileTemplateText compiles the result of [TemplateText]. An error is [problem.Problems].
func CompileTemplateText(id string, text []byte) (*templates.Template, error) {
	t, problems := templates.ParseObject(id, text)
	if len(problems) > 0 {
		return nil, problems
	}
	return t, nil
}

// templateText returns the part of a template object that Pillion reads, as JSON.
func templateText(kind, namespace, name string, spec []byte) []byte {
	metadata := map[string]string{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	head, err := json.Marshal(map[string]any{"apiVersion": v1alpha1.Group + "/" + v1alpha1.Version, "kind": kind, "metadata": metadata})
	if err != nil {
		panic("kube: strings are no JSON: " + err.Error())
	}
	if len(spec) == 0 {
		return head
	}
	return slices.Concat(bytes.TrimSuffix(head, []byte("}")), []byte(`,"spec":`), spec, []byte("}"))
}
