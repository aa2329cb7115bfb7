// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// maker makes random values along the types of the API. The words are few, so that
// what it makes collides.
type maker struct {
	*rand.Rand

	dense bool // most fields are there, and one of those that exclude each other
	plain bool // names of volumes are never expressions, which only templates may have
}

func newMaker(seed, stream uint64) *maker { return &maker{Rand: rand.New(rand.NewPCG(seed, stream))} }

func pick[T any](m *maker, all ...T) T { return all[m.IntN(len(all))] }

// in says yes in one of n cases.
func (m *maker) in(n int) bool { return m.IntN(n) == 0 }

type object = map[string]any

// field is a field of a struct of the API, by its name in JSON.
type field struct {
	name     string
	typ      reflect.Type
	required bool
	owner    reflect.Type // the struct that declares it
}

// fieldsOf are a struct's fields, embedded ones inlined.
func fieldsOf(t reflect.Type) []field {
	if known, ok := allFields.Load(t); ok {
		return known.([]field)
	}
	var all []field
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			all = append(all, fieldsOf(f.Type)...)
		default:
			all = append(all, field{name, f.Type, f.Type.Kind() != reflect.Pointer && !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero"), t})
		}
	}
	allFields.Store(t, all)
	return all
}

var allFields sync.Map

func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// oneOf are the types that may have at most one field, by the fields that
// may stand beside it.
func oneOf(t reflect.Type) (beside []string, ok bool) {
	switch t {
	case reflect.TypeFor[corev1.Volume]():
		return []string{"name"}, true
	case reflect.TypeFor[corev1.LifecycleHandler](), reflect.TypeFor[corev1.EnvVarSource](), reflect.TypeFor[corev1.VolumeProjection]():
		return nil, true
	case reflect.TypeFor[corev1.Probe]():
		var beside []string
		for _, f := range fieldsOf(t) {
			if !slices.Contains([]string{"exec", "httpGet", "tcpSocket", "grpc"}, f.name) {
				beside = append(beside, f.name)
			}
		}
		return beside, true
	case reflect.TypeFor[corev1.EnvVar]():
		return []string{"name"}, true
	case reflect.TypeFor[corev1.EnvFromSource]():
		return []string{"prefix"}, true
	case reflect.TypeFor[corev1.PodResourceClaim]():
		return []string{"name"}, true
	}
	return nil, false
}

// value makes a value of type t for that field of the parent.
func (m *maker) value(t, parent reflect.Type, name string, depth int) any {
	t = deref(t)
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return pick(m, "1", "100m", "64Mi", "100.5m", "2Mi", "4Mi", "0", "250m", "1Gi", "0.3", "12e1")
	case reflect.TypeFor[intstr.IntOrString]():
		return pick[any](m, 80, 8080, "http", "admin", 0, 70000, "Not-A-Port", "80")
	case reflect.TypeFor[metav1.Time]():
		return "2026-01-01T00:00:00Z"
	case reflect.TypeFor[corev1.PersistentVolumeClaimTemplate]():
		return m.claim()
	}
	switch t.Kind() {
	case reflect.Struct:
		return m.object(t, depth)
	case reflect.Map:
		o := object{}
		for range 1 + m.IntN(2) {
			o[m.key(t, name)] = m.value(t.Elem(), t, name, depth)
		}
		return o
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "eA=="
		}
		list := []any{}
		for range 1 + m.IntN(2) {
			list = append(list, m.value(t.Elem(), parent, name, depth))
		}
		return list
	case reflect.Bool:
		return m.in(2)
	case reflect.Int32:
		return m.int32(name)
	case reflect.Int64:
		return m.int64(name)
	}
	return m.text(t, parent, name)
}

func (m *maker) object(t reflect.Type, depth int) any {
	o := object{}
	beside, union := oneOf(t)
	fields := fieldsOf(t)
	chosen := -1
	if union && (m.dense || !m.in(30)) {
		for chosen < 0 || slices.Contains(beside, fields[chosen].name) {
			chosen = m.IntN(len(fields))
		}
	}
	for i, f := range fields {
		wanted := f.required || m.in(3+2*depth) || m.dense && !m.in(4)
		if union && !slices.Contains(beside, f.name) {
			wanted = i == chosen || !m.dense && m.in(100)
		}
		if wanted && (m.dense || depth == 0 || !m.in(40)) {
			o[f.name] = m.value(f.typ, t, f.name, depth+1)
		}
	}
	return o
}

func (m *maker) claim() object {
	spec := object{"accessModes": []any{"ReadWriteOnce"}, "resources": object{"requests": object{"storage": "1Gi"}}}
	if m.in(3) {
		spec["volumeMode"] = pick(m, "Block", "Filesystem")
	}
	if m.in(3) {
		spec["storageClassName"] = "fast"
	}
	if m.in(5) {
		spec["dataSource"] = object{"kind": "PersistentVolumeClaim", "name": "other"}
	}
	claim := object{"spec": spec}
	if m.in(3) {
		claim["metadata"] = object{"labels": object{"app": "web"}}
	}
	return claim
}

func (m *maker) key(t reflect.Type, name string) string {
	if t == reflect.TypeFor[corev1.ResourceList]() {
		return pick(m, "cpu", "memory", "cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "gpu", "storage", "hugepages-x", "limits.cpu")
	}
	switch name {
	case "annotations":
		return pick(m, "a", "example.com/a", "bad key", "controller.kubernetes.io/pod-deletion-cost", "x/y/z",
			"container.apparmor.security.beta.kubernetes.io/side", "container.seccomp.security.alpha.kubernetes.io/app",
			"seccomp.security.alpha.kubernetes.io/pod", "scheduler.alpha.kubernetes.io/tolerations", "pod.beta.kubernetes.io/init-containers")
	case "userAnnotations":
		return pick(m, "example.com/k", "bad key")
	case "matchLabels", "labels", "nodeSelector":
		return pick(m, "app", "example.com/tier", "kubernetes.io/os", "bad key")
	}
	return pick(m, "fsType", "user", "k")
}

func (m *maker) int32(name string) any {
	switch name {
	case "containerPort", "hostPort", "port":
		return pick(m, 80, 8080, 53, 80, 8080, 0, 65536, -1)
	case "defaultMode", "mode":
		return pick(m, 420, 0, 511, 512, -1)
	}
	return pick(m, 0, 1, 1, 2, 3, 10, 30, 1000, -1, 2147483647)
}

func (m *maker) int64(name string) any {
	switch name {
	case "runAsUser", "runAsGroup", "fsGroup", "supplementalGroups", "user":
		return pick(m, 0, 1000, 65532, 2147483647, 2147483648, 3000000000, -1)
	case "expirationSeconds":
		return pick(m, 600, 3600, 599, 7200, 1<<33)
	}
	return pick(m, 0, 1, 2, 5, 10, 30, 60, -1, 3000000000)
}

// text makes a string: of the type's constants, or of the words for the field.
func (m *maker) text(t, parent reflect.Type, name string) string {
	if all := constants()[t.Name()]; all != nil && t.PkgPath() != "" {
		if m.in(12) {
			return "Bogus"
		}
		return pick(m, all...)
	}
	if parent != nil {
		if all := words()[parent.Name()+"."+name]; all != nil {
			word := pick(m, all...)
			if m.plain {
				word = strings.TrimSuffix(strings.TrimPrefix(word, "${'"), "'}")
			}
			return word
		}
	}
	if all := words()[name]; all != nil {
		return pick(m, all...)
	}
	if m.in(12) {
		return pick(m, "", "a b", "../up", "Upper", strings.Repeat("x", 300), "${x", "é")
	}
	return pick(m, "a", "b", "data", "x1", "value")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func compact(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprint("not JSON: ", err))
	}
	return text
}
