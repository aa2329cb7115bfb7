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
	"github.com/pillion-dev/pillion/templates/request"
)

// path is a place in a world: names and indices.
type path []any

// The places of the lists of containers.
var containers, initContainers = path{"pod", "spec", "containers"}, path{"pod", "spec", "initContainers"}

func (p path) childPath(step any) path { return append(slices.Clone(p), step) }

// labeled is a namespace, or a ServiceAccount, whose name is the pod's.
type labeled struct {
	Name        string            `json:"name,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// requested is what templates read of a request.
type requested struct {
	Operation string `json:"operation"`
	Username  string `json:"username"`
	DryRun    bool   `json:"dryRun"`
}

// some is a string that is a valid name, label and annotation.
const some = "sample"

// maxList limits the length of a list.
const maxList = 50

// knownValue returns a valid value for a field that does not accept every value of its type.
func knownValue(name string) (any, bool) {
	object := func(key string, value any) map[string]any { return map[string]any{key: value} }
	probe := object("tcpSocket", object("port", 8080))
	value, ok := map[string]any{
		"image": "registry.example/sample:1", "restartPolicy": "Always", "imagePullPolicy": "IfNotPresent", "dnsPolicy": "Default", "protocol": "TCP",
		"terminationMessagePolicy": "File", "preemptionPolicy": "Never", "operator": "Exists", "ip": "192.0.2.1", "mountPath": "/sample", "path": "/sample",
		"hostPath": object("path", "/sample"), "secret": object("secretName", some), "configMap": object("name", some), "csi": object("driver", "csi.example.com"),
		"persistentVolumeClaim": object("claimName", some), "nfs": map[string]any{"server": "nfs.example.com", "path": "/sample"},
		"projected": object("sources", []any{}), "os": object("name", "linux"), "httpGet": object("port", 8080), "tcpSocket": object("port", 8080),
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

// anyOf returns a value of the right type for a place, or nil if there is no such place.
func anyOf(p path) any {
	last := len(p) - 1
	if of := typeAt(p[:last]); of != nil && of.Kind() == reflect.Struct {
		if value, ok := knownValue(p[last].(string)); ok {
			return value
		}
	}
	t := typeAt(p)
	switch {
	case t == nil:
		return nil
	case t == reflect.TypeFor[metav1.Time]():
		return "2026-01-01T00:00:00Z"
	case isNumber(t), isText(t) && t.Kind() == reflect.Struct:
		return 1
	}
	switch t.Kind() {
	case reflect.String:
		return some
	case reflect.Bool:
		return true
	case reflect.Slice:
		return []any{newElement(p, 0)}
	case reflect.Map:
		return map[string]any{some: anyOf(p.childPath(some))}
	}
	return map[string]any{}
}

// typeAt returns the Go type of a place, or nil if there is no such place.
func typeAt(p path) reflect.Type {
	t := map[any]reflect.Type{
		"pod": reflect.TypeFor[corev1.Pod](), "ns": reflect.TypeFor[labeled](), request.AccountVariable: reflect.TypeFor[labeled](), "request": reflect.TypeFor[requested](),
	}[p[0]]
	for _, step := range p[1:] {
		switch {
		case t == nil:
			return nil
		case t.Kind() == reflect.Map, t.Kind() == reflect.Slice:
			t = t.Elem()
		default:
			name, _ := step.(string)
			_, t = jsontree.FieldTypeOf(t, name)
		}
		for t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t
}

func isNumber(t reflect.Type) bool {
	return t.Kind() == reflect.Int || t.Kind() == reflect.Int32 || t.Kind() == reflect.Int64
}

// isText reports whether the values of a type may be strings in JSON.
func isText(t reflect.Type) bool {
	return t.Kind() == reflect.String || t == reflect.TypeFor[resource.Quantity]() || t == reflect.TypeFor[intstr.IntOrString]()
}

// isMap reports whether a place has a map, whose members have any name.
func isMap(p path) bool { return typeAt(p) != nil && typeAt(p).Kind() == reflect.Map }

// appendNew appends the values that a list lacks.
func appendNew[T comparable](all []T, values ...T) []T {
	for _, v := range values {
		if !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}
