// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// some is a string that is a valid name, label and annotation.
const some = "sample"

// knownValue returns a valid value for a field that does not accept every value of its type.
func knownValue(name string) (any, bool) {
	object := func(key string, value any) map[string]any { return map[string]any{key: value} }
	probe := object("tcpSocket", object("port", 8080))
	value, ok := map[string]any{
		"image": "registry.example/sample:1", "restartPolicy": "Always", "imagePullPolicy": "IfNotPresent", "dnsPolicy": "Default", "protocol": "TCP",
		"terminationMessagePolicy": "File", "preemptionPolicy": "Never", "operator": "Exists", "ip": "192.0.2.1", "mountPath": "/sample", "path": "/sample",
		"hostPath": object("path", "/sample"), "secret": object("secretName", some), "configMap": object("name", some), "csi": object("driver", "csi.example.com"),
		"persistentVolumeClaim": object("claimName", some), "nfs": map[string]any{"server": "nfs.example.com", "path": "/sample"},
		"projected": object("sources", []any{}), "emptyDir": map[string]any{}, "os": object("name", "linux"), "httpGet": object("port", 8080), "tcpSocket": object("port", 8080),
		"limits": object("cpu", "100m"), "requests": object("cpu", "100m"), "preStop": object("sleep", object("seconds", 1)), "lifecycle": object("preStop", object("sleep", object("seconds", 1))),
		"livenessProbe": probe, "readinessProbe": probe, "startupProbe": probe,
		"exec": object("command", []any{"true"}), "valueFrom": object("fieldRef", object("fieldPath", "metadata.name")),
	}[name]
	return value, ok
}

// newElement returns a new item of a list.
func newElement(list path, n int) any {
	item := map[string]any{"name": fmt.Sprintf("%s-%d", some, n)}
	switch name, _ := list[len(list)-1].(string); name {
	case "containers", "initContainers":
		item["image"], _ = knownValue("image")
		item["securityContext"] = map[string]any{
			"allowPrivilegeEscalation": false, "runAsNonRoot": true,
			"capabilities": map[string]any{"drop": []any{"ALL"}}, "seccompProfile": map[string]any{"type": "RuntimeDefault"},
		}
	case "volumes":
		item["emptyDir"] = map[string]any{}
	case "volumeMounts":
		item["mountPath"] = fmt.Sprintf("/%s-%d", some, n)
	case "env":
		item["name"] = fmt.Sprintf("SAMPLE_%d", n)
	case "ports":
		return map[string]any{"containerPort": 8080 + n}
	case "envFrom":
		return map[string]any{"configMapRef": item}
	case "ownerReferences":
		item["apiVersion"], item["kind"], item["uid"], item["controller"] = "apps/v1", "ReplicaSet", "00000000-0000-0000-0000-000000000000", true
	case "imagePullSecrets":
	default:
		return anyOf(list.childPath(n))
	}
	return item
}

// anyOf returns a value of the right type for a place, or nil if the pod has no such place.
func anyOf(p path) any {
	if name, ok := p[len(p)-1].(string); ok {
		if value, ok := knownValue(name); ok {
			return value
		}
	}
	t := reflect.TypeFor[string]() // ns, request, and labels
	if p[0] == "pod" {
		t = typeAt(reflect.TypeFor[corev1.Pod](), p[1:])
	}
	if t == nil {
		return nil
	}
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString]():
		return 1
	case reflect.TypeFor[metav1.Time]():
		return "2026-01-01T00:00:00Z"
	}
	switch t.Kind() {
	case reflect.String:
		return some
	case reflect.Bool:
		return true
	case reflect.Int, reflect.Int32, reflect.Int64:
		return 1
	case reflect.Slice:
		return []any{newElement(p, 0)}
	case reflect.Map:
		return map[string]any{some: anyOf(p.childPath(some))}
	}
	return map[string]any{}
}

// typeAt returns the Go type of a place in an object, or nil.
func typeAt(t reflect.Type, p path) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(p) == 0 {
		return t
	}
	switch t.Kind() {
	case reflect.Map, reflect.Slice:
		return typeAt(t.Elem(), p[1:])
	case reflect.Struct:
		if name, ok := p[0].(string); ok {
			if f, ok := jsontree.StructFieldOf(t, name); ok {
				return typeAt(f.Type, p[1:])
			}
		}
	}
	return nil
}

// path is a place in a world: names and indices.
type path []any

func (p path) childPath(more ...any) path { return append(slices.Clone(p), more...) }

// maxList limits the length of a list.
const maxList = 50
