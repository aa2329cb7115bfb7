// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/inject/testing/size"
)

// TestRequired checks that templates/validation/required_generated.go has the fields that Kubernetes requires, and the lists, maps
// and strings that it does not accept empty. It makes a valid pod with each field that a template may set. Then
// Kubernetes' own validation judges each of them without the field, and with the field empty.
func TestRequired(t *testing.T) {
	size.SkipUnlessFull(t, "the file changes only with the version of Kubernetes")
	t.Cleanup(gates(t, "AllAlpha=true,AllBeta=true"))
	all := samples(t)
	r := &requirements{present: map[string]bool{}, absent: map[string]bool{}, texts: map[string]bool{}, lists: map[string]bool{}, empty: map[string]bool{}, types: map[string]string{}}
	for _, s := range all {
		r.probe(s, s["spec"], reflect.TypeFor[corev1.PodSpec](), "Pod.spec")
	}
	want := strings.ReplaceAll(source("validation", r.table()), "TEST_SIZE=full go test -run TestDefaults", "TEST_SIZE=full go test -run TestRequired")
	const file = "../../templates/validation/required_generated.go"
	if updating() {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not current: TEST_SIZE=full go test -run TestRequired -update (%v)", file, err)
	}
}

// samples returns a valid pod for each field that a template may set, as far as this is possible.
func samples(t *testing.T) (all []object) {
	t.Helper()
	var without []string
	for _, target := range targets(reflect.TypeFor[corev1.PodSpec](), nil) {
		if target[len(target)-1].name == "terminationGracePeriodSeconds" && target[len(target)-2].name == "readinessProbe" {
			continue // never allowed
		}
		found, last := false, (*sample)(nil)
		for n := range (&sample{}).candidates(target[len(target)-1]) {
			for _, spec := range beginnings() {
				last = newSample(spec, target, n)
				if last.complete() {
					all, found = append(all, last.pod), true
					break
				}
			}
		}
		if !found {
			without = append(without, fmt.Sprintf("%s (%v)", last.at(len(target)), last.last))
		}
	}
	if len(without) > 0 {
		t.Errorf("no valid pod has\n%s", strings.Join(without, "\n"))
	}
	t.Logf("%d valid pods", len(all))
	return all
}

// beginnings are valid specs. Each allows some fields that the others do not.
func beginnings() []object {
	var all []object
	for _, further := range []object{{}, {"os": object{"name": "linux"}}, {"hostUsers": false}} {
		all = append(all, object{
			"containers":     []any{object{"name": "app", "image": "app:1"}},
			"volumes":        []any{object{"name": "data", "emptyDir": object{}}, object{"name": "dev", "persistentVolumeClaim": object{"claimName": "claim"}}},
			"resourceClaims": []any{object{"name": "claim", "resourceClaimName": "claim"}},
		})
		maps.Copy(all[len(all)-1], further)
	}
	return all
}

// targets returns the paths of all fields that a template may set.
func targets(t reflect.Type, path []field) (all [][]field) {
	for _, f := range fieldsOf(t) {
		if !fragmentField(t, f.name) || f.name == "initContainers" { // these are containers too
			continue
		}
		next := append(slices.Clip(path), f)
		all = append(all, next)
		if elem := elemOf(f.typ); elem.Kind() == reflect.Struct && !isAtom(elem) {
			all = append(all, targets(elem, next)...)
		}
	}
	return all
}

// elemOf returns the type of the items of a list, or the type itself.
func elemOf(t reflect.Type) reflect.Type {
	if t = deref(t); t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		t = deref(t.Elem())
	}
	return t
}

// isAtom reports whether values of a struct are no objects in JSON.
func isAtom(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.FieldsV1]():
		return true
	}
	return false
}

// sample is a pod that becomes valid, with a field at a path of spec.
type sample struct {
	pod    object
	target []field
	tried  map[string]int // how many values a place has had
	last   error
}

// newSample returns a pod whose target has one of its candidates, by number. Parents have only what leads there.
func newSample(spec object, target []field, n int) *sample {
	s := &sample{target: target, tried: map[string]int{}, pod: object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "web"}, "spec": spec}}
	o := spec
	for i, f := range target {
		value := s.candidates(f)[0]
		if i == len(target)-1 {
			value = s.candidates(f)[n]
		}
		switch {
		case f.name == "volumes" && i == 0:
			o["volumes"] = append([]any{object{}}, o["volumes"].([]any)...)
		case o[f.name] == nil:
			o[f.name] = value
		}
		if i < len(target)-1 {
			switch v := o[f.name].(type) {
			case object:
				o = v
			case []any:
				o = v[0].(object)
			}
		}
	}
	return s
}

// at returns the path of the first fields of the target, as in Kubernetes' errors.
func (s *sample) at(n int) string {
	path := "spec"
	for i, f := range s.target[:n] {
		path += "." + f.name
		if i < n-1 && deref(f.typ).Kind() == reflect.Slice {
			path += "[0]"
		}
	}
	return path
}

// complete changes what Kubernetes rejects until the pod is valid.
func (s *sample) complete() bool {
	for range 60 {
		_, s.last = stored(compact(s.pod))
		if s.last == nil {
			return true
		}
		status, ok := errors.AsType[*apierrors.StatusError](s.last)
		if !ok || status.ErrStatus.Details == nil || !slices.ContainsFunc(status.ErrStatus.Details.Causes, s.fix) && !slices.ContainsFunc(status.ErrStatus.Details.Causes, s.change) {
			return false
		}
	}
	return false
}

var steps = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// fix changes the pod because of one error. It reports whether it did.
func (s *sample) fix(cause metav1.StatusCause) bool {
	path := steps.FindAllString(cause.Field, -1)
	if len(path) < 2 || path[0] != "spec" {
		return false
	}
	o, f, value, ok := s.find(path[1:])
	switch {
	case !ok:
		return false
	case cause.Type == metav1.CauseTypeFieldValueRequired && isStruct(value):
		return s.addMember(value, elemOf(f.typ), cause)
	case s.tried[cause.Field] < len(s.candidates(f)) && cause.Type != metav1.CauseTypeForbidden && !isStruct(value):
		o[f.name] = s.candidates(f)[s.tried[cause.Field]]
		s.tried[cause.Field]++
		return true
	case strings.HasPrefix(s.at(len(s.target)), cause.Field) || o[f.name] == nil:
		return s.addMember(o, f.owner, cause)
	}
	delete(o, f.name)
	return true
}

func isStruct(value any) bool {
	_, ok := value.(object)
	return ok
}

// addMember adds a member after which the error is gone.
func (s *sample) addMember(value any, t reflect.Type, cause metav1.StatusCause) bool {
	o, ok := value.(object)
	if !ok || t.Kind() != reflect.Struct {
		return false
	}
	for _, f := range fieldsOf(t) {
		if o[f.name] != nil {
			continue
		}
		for _, o[f.name] = range s.candidates(f) {
			if s.isGone(cause) {
				return true
			}
		}
		delete(o, f.name)
	}
	before := maps.Clone(o)
	for _, f := range fieldsOf(t) {
		if o[f.name] == nil {
			o[f.name] = s.candidates(f)[0]
		}
	}
	if s.isGone(cause) {
		return true
	}
	clear(o)
	maps.Copy(o, before)
	return false
}

// isGone reports whether the pod has fewer errors of this kind at this place, and none about a field that is not allowed.
func (s *sample) isGone(cause metav1.StatusCause) bool {
	count := func(err error) (n int) {
		status, _ := errors.AsType[*apierrors.StatusError](err)
		if status == nil || status.ErrStatus.Details == nil {
			return 1000
		}
		for _, other := range status.ErrStatus.Details.Causes {
			if other.Field == cause.Field && other.Type == cause.Type {
				n++
			}
			if other.Type == metav1.CauseTypeForbidden {
				n += 1000
			}
		}
		return n
	}
	_, err := stored(compact(s.pod))
	return err == nil || count(err) < count(s.last)
}

// change adds, changes or removes a member of an object of the target, after which the error is gone. It is for errors
// that name only an object around their reason.
func (s *sample) change(cause metav1.StatusCause) bool {
	top := s.target[0]
	value := s.pod["spec"].(object)[top.name]
	if list, ok := value.([]any); ok {
		value = list[0]
	}
	return s.changeIn(value, elemOf(top.typ), s.target[1:], cause)
}

// changeIn changes an object, or one in it. Those in it come first. Rest are the fields from here to the target.
func (s *sample) changeIn(value any, t reflect.Type, rest []field, cause metav1.StatusCause) bool {
	o, ok := value.(object)
	if !ok || t.Kind() != reflect.Struct || isAtom(t) {
		return false
	}
	for _, f := range fieldsOf(t) {
		value := o[f.name]
		if list, ok := value.([]any); ok {
			value = list[0]
		}
		var next []field
		if len(rest) > 0 && rest[0].name == f.name {
			next = rest[1:]
		}
		if s.changeIn(value, elemOf(f.typ), next, cause) {
			return true
		}
	}
	if s.addMember(o, t, cause) {
		return true
	}
	for _, f := range fieldsOf(t) {
		there := o[f.name]
		if there == nil {
			continue
		}
		if len(rest) == 0 || rest[0].name != f.name {
			if delete(o, f.name); s.isGone(cause) {
				return true
			}
		}
		if elem := elemOf(f.typ); elem.Kind() != reflect.Struct || isAtom(elem) {
			for _, o[f.name] = range s.candidates(f) {
				if s.isGone(cause) {
					return true
				}
			}
		}
		o[f.name] = there
	}
	return false
}

// find returns the object at the end of a path, the field in it and its value.
func (s *sample) find(path []string) (o object, f field, value any, ok bool) {
	o, t := s.pod["spec"].(object), reflect.TypeFor[corev1.PodSpec]()
	for i := 0; i < len(path); i++ {
		fields := fieldsOf(t)
		n := slices.IndexFunc(fields, func(f field) bool { return f.name == path[i] })
		if n < 0 {
			return o, f, value, f.name != ""
		}
		next := fields[n]
		if value != nil {
			if o, ok = value.(object); !ok {
				return o, f, value, false
			}
		} else if i > 0 {
			return o, f, value, true // the error is about a missing parent
		}
		f, value = next, o[next.name]
		t = elemOf(f.typ)
		if i+1 < len(path) && path[i+1][0] == '[' {
			i++
			list, isList := value.([]any)
			index, err := strconv.Atoi(strings.Trim(path[i], "[]"))
			if !isList || err != nil || index >= len(list) {
				return o, f, value, true // a key of a map
			}
			if i == len(path)-1 && !isStruct(list[index]) {
				return o, f, value, true
			}
			value = list[index]
		} else if list, isList := value.([]any); isList && i == len(path)-1 && len(list) > 0 && isStruct(list[0]) {
			value = list[0]
		}
		if t.Kind() != reflect.Struct || isAtom(t) {
			return o, f, value, true
		}
	}
	return o, f, value, true
}

// candidates are values of a field. Most are valid.
func (s *sample) candidates(f field) (all []any) {
	t := deref(f.typ)
	if t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		for _, item := range s.scalars(deref(t.Elem()), f) {
			all = append(all, []any{item})
		}
		return all
	}
	if t.Kind() == reflect.Map {
		m := newMaker(1, 1)
		for range 8 {
			for _, item := range s.scalars(deref(t.Elem()), f) {
				all = append(all, object{m.key(t, f.name): item})
			}
		}
		return all
	}
	return s.scalars(t, f)
}

func (s *sample) scalars(t reflect.Type, f field) (all []any) {
	texts := func(of []string) {
		for _, text := range of {
			all = append(all, strings.TrimSuffix(strings.TrimPrefix(text, "${'"), "'}"))
		}
	}
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		return []any{"1", "2Mi", "1Gi"}
	case t == reflect.TypeFor[intstr.IntOrString]():
		return []any{80}
	case t == reflect.TypeFor[metav1.Time]():
		return []any{"2026-01-01T00:00:00Z"}
	case t.Kind() == reflect.Struct:
		return []any{object{}}
	case t.Kind() == reflect.Slice:
		return []any{"eA=="}
	case t.Kind() == reflect.Bool:
		return []any{true, false}
	case t.Kind() == reflect.Int32, t.Kind() == reflect.Int64:
		return []any{1, 80, 600, 3600, 0}
	case constants()[t.Name()] != nil && t.PkgPath() != "":
		texts(constants()[t.Name()])
	case words()[f.owner.Name()+"."+f.name] != nil:
		texts(words()[f.owner.Name()+"."+f.name])
	case words()[f.name] != nil:
		texts(words()[f.name])
	default:
		texts([]string{"a", "/a", "10.0.0.1"})
	}
	return slices.DeleteFunc(all, func(v any) bool { return v == "" })
}

// requirements are what valid pods have in common, by Type.field and by Parent.parentField.field.
type requirements struct {
	present, absent map[string]bool   // fields without which a pod is not valid, and is valid
	texts, lists    map[string]bool   // fields that may not be empty
	empty           map[string]bool   // fields that may be
	types           map[string]string // Type.field by Parent.parentField.field
}

// probe tries each field of an object in a valid pod. Place is the field of the object.
func (r *requirements) probe(pod object, value any, t reflect.Type, place string) {
	o, ok := value.(object)
	if !ok || t.Kind() != reflect.Struct || isAtom(t) {
		return
	}
	for _, f := range fieldsOf(t) {
		if !fragmentField(t, f.name) {
			continue
		}
		keys := []string{t.Name() + "." + f.name, place + "." + f.name}
		r.types[keys[1]] = keys[0]
		there, ok := o[f.name]
		if !ok {
			note(r.absent, keys)
		} else if delete(o, f.name); isValid(pod) {
			note(r.absent, keys)
		} else {
			note(r.present, keys)
		}
		if o[f.name] = emptyOf(f.typ); o[f.name] != nil && !r.empty[keys[1]] {
			if isValid(pod) {
				note(r.empty, keys)
			} else if _, isText := o[f.name].(string); ok && isText {
				note(r.texts, keys)
			} else if ok {
				note(r.lists, keys)
			}
		}
		if delete(o, f.name); !ok {
			continue
		}
		o[f.name] = there
		if items, ok := there.([]any); ok {
			for i := range items {
				r.probe(pod, items[i], elemOf(f.typ), keys[0])
			}
			continue
		}
		r.probe(pod, there, deref(f.typ), keys[0])
	}
}

func isValid(pod object) bool {
	_, err := stored(compact(pod))
	return err == nil
}

func note(set map[string]bool, keys []string) {
	for _, key := range keys {
		set[key] = true
	}
}

// emptyOf returns the empty value of a list, a map or a string, or nil for other types.
func emptyOf(t reflect.Type) any {
	switch t = deref(t); t.Kind() {
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return []any{}
		}
	case reflect.Map:
		return object{}
	case reflect.String:
		return ""
	}
	return nil
}

// table is the requirements as Go. A field of an object in one place has a row only if that of its type has none.
func (r *requirements) table() string {
	var b strings.Builder
	write := func(name, comment string, has, lacks map[string]bool) {
		fmt.Fprintf(&b, "// %s are %s\nvar %[1]s = sync.OnceValue(func() map[string]bool {\n\treturn map[string]bool{\n", name, comment)
		for _, key := range sortedKeys(has) {
			if of := r.types[key]; !lacks[key] && key != "PodSpec.containers" && (of == "" || !has[of] || lacks[of]) { // every pod has containers
				fmt.Fprintf(&b, "\t\t%q: true,\n", key)
			}
		}
		b.WriteString("\t}\n})\n\n")
	}
	write("requiredFields", "the fields that the API server requires, by Type.field, or by Parent.parentField.field if that depends\n// on the place of the object.", r.present, r.absent)
	write("nonEmptyStrings", "the strings that the API server does not accept empty, by the same keys.", r.texts, r.empty)
	write("nonEmptyLists", "the lists and maps that the API server does not accept empty, by the same keys.", r.lists, r.empty)
	return b.String()
}
