// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// grow changes one random place of o, an object of type t, for which only the
// fields that allowed names count (nil: all). It reports whether it did.
func (m *maker) grow(o object, t reflect.Type, allowed func(parent reflect.Type, name string) bool) {
	fields := fieldsOf(t)
	for range 20 {
		f := fields[m.IntN(len(fields))]
		if t == reflect.TypeFor[corev1.PodSpec]() && !m.in(3) && !slices.Contains(busy(), f.name) {
			continue
		}
		if t == reflect.TypeFor[corev1.Pod]() && f.name == "metadata" && !m.in(5) {
			continue
		}
		if allowed != nil && !allowed(t, f.name) {
			continue
		}
		there, ok := o[f.name]
		typ := deref(f.typ)
		switch {
		case !ok || m.in(12):
			o[f.name] = m.value(typ, t, f.name, 0)
			if typ.Kind() == reflect.Struct && entered(typ) { // few fields at a time
				sub := object{}
				m.grow(sub, typ, allowed)
				o[f.name] = sub
			}
		case m.in(20) && !f.required:
			delete(o, f.name)
		default:
			o[f.name] = m.within(there, typ, t, f.name, allowed)
		}
		return
	}
}

// busy are the fields of a pod that templates have most to do with.
func busy() []string {
	return []string{
		"containers", "containers", "containers", "initContainers", "volumes", "volumes", "securityContext", "restartPolicy",
		"terminationGracePeriodSeconds", "os", "hostNetwork", "hostUsers", "resources", "shareProcessNamespace", "tolerations",
	}
}

func entered(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[corev1.PodSpec](), reflect.TypeFor[corev1.PodSecurityContext](), reflect.TypeFor[corev1.SecurityContext](),
		reflect.TypeFor[corev1.Lifecycle](), reflect.TypeFor[corev1.ResourceRequirements]():
		return true
	}
	return t.Name() == "ObjectMeta"
}

// within changes a random place of a value.
func (m *maker) within(there any, t, parent reflect.Type, name string, allowed func(reflect.Type, string) bool) any {
	switch v := there.(type) {
	case object:
		if t.Kind() == reflect.Struct {
			m.grow(v, t, allowed)
			return v
		}
		if t.Kind() == reflect.Map {
			v[m.key(t, name)] = m.value(t.Elem(), t, name, 1)
			return v
		}
	case []any:
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
			if len(v) == 0 || m.in(3) {
				return append(v, m.value(t.Elem(), parent, name, 0))
			}
			i := m.IntN(len(v))
			v[i] = m.within(v[i], t.Elem(), t, name, allowed)
			return v
		}
		if len(v) < 4 && m.in(2) && t.Kind() == reflect.Slice {
			return append(v, m.value(t.Elem(), parent, name, 0))
		}
	}
	return m.value(t, parent, name, 0)
}

func clone(o object) object { return copied(o).(object) }

func copied(v any) any {
	switch v := v.(type) {
	case object:
		c := make(object, len(v))
		for k, child := range v {
			c[k] = copied(child)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i := range v {
			c[i] = copied(v[i])
		}
		return c
	}
	return v
}

// podField excludes fields that no pod has when it is created, and fields that decide before any
// template is evaluated.
func podField(parent reflect.Type, name string) bool {
	switch parent {
	case reflect.TypeFor[corev1.Pod]():
		return name == "spec" || name == "metadata"
	case reflect.TypeFor[corev1.PodSpec]():
		return !slices.Contains([]string{"ephemeralContainers", "nodeName", "serviceAccountName", "serviceAccount"}, name)
	}
	if strings.HasSuffix(parent.Name(), "ObjectMeta") {
		return slices.Contains([]string{"annotations", "labels"}, name)
	}
	return true
}

// pod makes a valid pod: it grows a small one, and takes back what Kubernetes
// does not take.
func (m *maker) pod(steps int) object {
	p := object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": "web", "annotations": object{}, "labels": object{"app": "web"}},
		"spec": object{
			"containers": []any{object{"name": "app", "image": "app:1"}},
			"volumes":    []any{object{"name": "data", "emptyDir": object{}}},
		},
	}
	m.scene(p)
	if _, err := stored(compact(p)); err != nil {
		panic(err)
	}
	for range steps {
		next := clone(p)
		m.grow(next, reflect.TypeFor[corev1.Pod](), podField)
		if _, err := stored(compact(next)); err == nil {
			p = next
		}
	}
	return p
}

// scene starts a pod with something that templates are coupled with, which growing
// alone reaches seldom.
func (m *maker) scene(p object) {
	spec := p["spec"].(object)
	app := spec["containers"].([]any)[0].(object)
	switch m.IntN(18) {
	case 0:
		spec["restartPolicy"] = pick(m, "Never", "OnFailure")
	case 1:
		spec["terminationGracePeriodSeconds"] = pick(m, 0, 5, 1)
	case 2:
		app["securityContext"] = object{"allowPrivilegeEscalation": false}
	case 3:
		spec["volumes"] = []any{object{"name": pick(m, "data", "dev"), "persistentVolumeClaim": object{"claimName": "claim"}}}
		app["volumeDevices"] = []any{object{"name": spec["volumes"].([]any)[0].(object)["name"], "devicePath": "/dev/xvda"}}
	case 4:
		p["metadata"].(object)["annotations"] = object{"big": strings.Repeat("x", 256<<10-m.IntN(400)-3)}
	case 5:
		spec["os"] = object{"name": pick(m, "windows", "linux")}
	case 6:
		spec["resources"] = object{"limits": object{"cpu": "2", "memory": "1Gi"}}
	case 7:
		spec["hostNetwork"] = true
	case 8:
		app["name"], spec["initContainers"] = "web", []any{object{"name": "side", "image": "own:1", "restartPolicy": "Always"}}
		p["metadata"].(object)["annotations"] = object{"t0.pillion.dev/customize": "true"}
	case 9:
		spec["initContainers"] = []any{object{"name": "init", "image": "init:1"}}
	case 10:
		spec["securityContext"] = object{"windowsOptions": object{"hostProcess": true, "runAsUserName": "user"}, "runAsNonRoot": false}
		spec["hostNetwork"] = true
	case 11:
		spec["hostUsers"] = false
	case 12, 13:
		m.appArmor(p, app)
	}
}

// appArmor gives containers a profile in the old form, an annotation with the name of the container, and perhaps in the new form too.
// One of them may be the user's version of a template's container.
func (m *maker) appArmor(p, app object) {
	spec, annotations := p["spec"].(object), object{}
	containers := []object{app}
	if m.in(2) {
		own := object{"name": "side", "image": "own:1"}
		if m.in(2) {
			spec["containers"] = append(spec["containers"].([]any), own)
		} else {
			spec["initContainers"] = []any{own}
		}
		containers = append(containers, own)
		annotations["t0.pillion.dev/customize"] = "true"
	}
	for _, c := range containers {
		profile := pick(m, "runtime/default", "unconfined", "localhost/one", "localhost/two")
		annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c["name"].(string)] = profile
		if m.in(3) {
			field := object{"type": map[string]string{"runtime/default": "RuntimeDefault", "unconfined": "Unconfined"}[profile]}
			if name, is := strings.CutPrefix(profile, "localhost/"); is {
				field = object{"type": "Localhost", "localhostProfile": name}
			}
			c["securityContext"] = object{"appArmorProfile": field}
		}
	}
	if m.in(3) {
		spec["securityContext"] = object{"appArmorProfile": object{"type": pick(m, "RuntimeDefault", "Unconfined")}}
	}
	p["metadata"].(object)["annotations"] = annotations
}
