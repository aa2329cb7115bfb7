// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// sketch is a template in the making.
type sketch struct {
	name, os string
	fragment object // of a pod
	each     object // forEachContainer's add, or nil
	params   []any
	values   map[string]string // annotations that set parameters
	ways     []string          // kinds of these parameters
}

// fragmentField are the fields that a template may set.
func fragmentField(parent reflect.Type, name string) bool {
	switch parent {
	case reflect.TypeFor[corev1.Pod]():
		return name == "spec" || name == "metadata"
	case reflect.TypeFor[corev1.PodSpec]():
		return slices.Contains([]string{
			"initContainers", "containers", "volumes", "imagePullSecrets", "hostAliases", "tolerations", "shareProcessNamespace", "securityContext",
		}, name)
	case reflect.TypeFor[corev1.PodSecurityContext]():
		return name == "fsGroup" || name == "supplementalGroups"
	}
	if strings.HasSuffix(parent.Name(), "ObjectMeta") {
		return slices.Contains([]string{"annotations", "labels"}, name)
	}
	return true
}

func eachField(parent reflect.Type, name string) bool {
	if parent == reflect.TypeFor[corev1.Container]() {
		return slices.Contains([]string{
			"env", "envFrom", "volumeMounts", "volumeDevices", "ports", "resources", "securityContext", "lifecycle", "terminationMessagePath", "terminationMessagePolicy",
		}, name)
	}
	return true
}

func newSketch(m *maker, i int) *sketch {
	s := &sketch{name: fmt.Sprint("t", i), os: "linux", values: map[string]string{}}
	if m.in(12) {
		s.os = "windows"
	}
	name := pick(m, "side", "side", "agent")
	if i > 0 && m.in(2) {
		name += fmt.Sprint(i) // which no other template has
	}
	container := object{"name": name, "image": "side:1", "args": []any{"run"}}
	spec := object{"volumes": []any{object{"name": pick(m, "data", "logs", "dev"), "emptyDir": object{}}}}
	if m.in(3) {
		spec["containers"] = []any{container}
	} else {
		spec["initContainers"] = []any{container}
		if !m.in(5) {
			container["restartPolicy"] = "Always"
		}
	}
	s.fragment = object{"spec": spec}
	if m.in(2) {
		s.each = object{"env": []any{object{"name": "EACH", "value": "x"}}}
	}
	return s
}

// sketch makes the template with a number: it is loaded, and has some parameters and loops.
func (m *maker) sketch(i int) *sketch {
	s := newSketch(m, i)
	s.scene(m)
	for range 6 + m.IntN(16) {
		next := s.copy()
		next.change(m)
		if problems := next.loadTemplates(); len(problems) == 0 {
			s = next
		}
	}
	s.parametrize(m, m.IntN(5))
	for range m.IntN(4) {
		s.repeat(m)
	}
	s.decideIfSet(m)
	return s
}

// decideIfSet lets a variable decide what happens if a container already has it.
func (s *sketch) decideIfSet(m *maker) {
	variables, _ := s.each["env"].([]any)
	if len(variables) == 0 || !m.in(3) {
		return
	}
	next := s.copy()
	variable, ok := next.each["env"].([]any)[m.IntN(len(variables))].(object)
	if !ok {
		return
	}
	variable[fragment.IfSetKey] = pick[any](m, "keep", "conflict", object{"append": "B"}, object{"append": "OTHER"})
	if problems := next.loadTemplates(); len(problems) == 0 {
		*s = *next
	}
}

// change makes one random change.
func (s *sketch) change(m *maker) {
	if s.each != nil && m.in(3) {
		m.grow(s.each, reflect.TypeFor[corev1.Container](), eachField)
		return
	}
	m.grow(s.fragment, reflect.TypeFor[corev1.Pod](), fragmentField)
}

func (s *sketch) copy() *sketch {
	c := *s
	c.fragment = clone(s.fragment)
	if s.each != nil {
		c.each = clone(s.each)
	}
	c.params = append([]any{}, s.params...)
	c.values = maps.Clone(s.values)
	c.ways = slices.Clone(s.ways)
	return &c
}

// containerFields are protected all.
func containerFields() []any {
	var all []any
	for _, f := range fieldsOf(reflect.TypeFor[corev1.Container]()) {
		all = append(all, f.name)
	}
	return all
}

func (s *sketch) document() object {
	spec := object{
		"default": true, "match": object{"os": s.os, "hostNetwork": true},
		"pod": s.fragment, "validate": object{"protect": containerFields()},
	}
	if len(s.params) > 0 {
		spec["params"] = s.params
	}
	if s.each != nil {
		spec["forEachContainer"] = []any{object{"add": s.each}}
	}
	return object{"apiVersion": templates.APIVersion, "kind": v1alpha1.ClusterKind, "metadata": object{"name": s.name}, "spec": spec}
}

// loadTemplates returns the problems of the template.
func (s *sketch) loadTemplates() problem.Problems {
	_, problems := templates.Parse("t.yaml", compact(s.document()))
	return problems
}

// alone is the smallest pod with all that the template adds, as its author would
// write it by hand.
func (s *sketch) alone() object {
	app := object{"name": "other", "image": "app:1"}
	for k, v := range s.each {
		app[k] = copied(v)
	}
	p := clone(s.fragment)
	p["apiVersion"], p["kind"] = "v1", "Pod"
	metadata, _ := p["metadata"].(object)
	if metadata == nil {
		metadata = object{}
		p["metadata"] = metadata
	}
	metadata["name"] = "web"
	spec, _ := p["spec"].(object)
	if spec == nil {
		spec = object{}
		p["spec"] = spec
	}
	spec["terminationGracePeriodSeconds"] = 1 << 40 // the pod's matter
	spec["os"] = object{"name": s.os}
	if strings.Contains(string(compact(s.document())), "Unmasked") {
		spec["hostUsers"] = false
	}
	containers, _ := spec["containers"].([]any)
	spec["containers"] = append([]any{app}, containers...)
	if s.os != "windows" {
		for _, list := range []string{"initContainers", "containers"} {
			all, _ := spec[list].([]any)
			for _, c := range all {
				if context, ok := c.(object)["securityContext"].(object); ok {
					delete(context, "windowsOptions") // as for any pod with os: linux
				}
			}
		}
	}
	return p
}

// scene starts a template with something that is coupled with what pods have.
func (s *sketch) scene(m *maker) {
	spec := s.fragment["spec"].(object)
	var container object
	for _, list := range []string{"containers", "initContainers"} {
		if containers, ok := spec[list].([]any); ok {
			container = containers[0].(object)
		}
	}
	switch m.IntN(12) {
	case 0:
		container["resizePolicy"] = []any{object{"resourceName": "cpu", "restartPolicy": "RestartContainer"}}
	case 1:
		s.each = object{"lifecycle": object{"preStop": object{"sleep": object{"seconds": 10}}}}
	case 2:
		s.each = object{"securityContext": object{"privileged": true}}
	case 3:
		s.each = object{"securityContext": object{"capabilities": object{"add": []any{"CAP_SYS_ADMIN"}}}}
	case 4:
		volume := object{"name": pick(m, "data", "dev"), "persistentVolumeClaim": object{"claimName": "claim"}}
		spec["volumes"] = []any{volume}
		s.each = object{"volumeMounts": []any{object{"name": volume["name"], "mountPath": "/mnt"}}}
	case 5:
		s.params = append(s.params, object{"name": "user", "type": "integer", "default": 1000})
		s.values[s.name+".pillion.dev/user"] = pick(m, "3000000000", "1000", "-1")
		container["securityContext"] = object{"runAsUser": "${params.user}"}
		s.os = "linux"
	case 6:
		container["securityContext"], s.os = object{"procMount": "Unmasked"}, "linux"
	case 7:
		s.each = object{"lifecycle": object{"stopSignal": "SIGTERM"}}
	case 8:
		spec["volumes"] = []any{object{"name": strings.Repeat("v", 63), "ephemeral": object{"volumeClaimTemplate": m.claim()}}}
	case 9:
		s.os = "linux"
		s.each = object{"securityContext": object{"windowsOptions": object{"runAsUserName": "user"}}}
		container["securityContext"] = s.each["securityContext"]
	}
	if problems := s.loadTemplates(); len(problems) > 0 {
		container["restartPolicy"] = "Always" // if it is one that needs that
	}
	if problems := s.loadTemplates(); len(problems) > 0 {
		delete(container, "restartPolicy")
		delete(container, "resizePolicy")
	}
}
