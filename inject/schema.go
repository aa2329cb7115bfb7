// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"path"
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

type shape int

const (
	// unit is taken as a whole: equal, absent, or the pod's own. Scalars, lists
	// whose order matters, and objects whose fields exclude each other (a volume's
	// sources, an environment variable's value and valueFrom): filling in half of
	// one would make a pod that the API server refuses, or change what it means.
	unit shape = iota
	object
	mapping   // an object with free keys
	keyedList // a list whose items are told apart by a key
	set       // a list whose order means nothing
)

// schema says how a place in the pod is merged.
type schema struct {
	shape    shape
	fields   map[string]*field // of a struct, be it object or unit
	slots    []*field          // the same, see [schema.at]
	elem     *schema           // of a list or mapping
	each     *field            // of a mapping
	key      string            // of a keyedList
	quantity bool
	goType   reflect.Type
}

// field is a place with what its absence means.
type field struct {
	*schema
	name string // "" where any is
	// absentIsZero: encoded by the API server, a zero value is left out, so a
	// template's zero value and nothing are the same.
	absentIsZero bool
	parent       reflect.Type // the struct that it is a field of
	gated        bool         // the API server drops it if a feature gate is off
	alwaysSent   bool         // as zero where there is nothing
}

// podSchema reads how a pod is merged from k8s.io/api: fields and their types,
// and the patchMergeKey tags that say what tells the items of a list apart.
func podSchema() *schema {
	return schemas{}.of(reflect.TypeFor[corev1.Pod]())
}

type schemas map[reflect.Type]*schema

func (known schemas) of(t reflect.Type) *schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s := known[t]; s != nil {
		return s
	}
	s := &schema{goType: t}
	known[t] = s
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		s.quantity = true
	case t.Kind() == reflect.Struct:
		s.fields = map[string]*field{}
		known.addFields(s, t)
		s.spread()
		if entered(t) {
			s.shape = object
		}
	case t.Kind() == reflect.Map:
		s.shape, s.elem = mapping, known.of(t.Elem())
		s.each = &field{schema: s.elem}
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		s.elem = known.of(t.Elem())
	}
	return s
}

func (known schemas) addFields(s *schema, t reflect.Type) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			known.addFields(s, f.Type)
			continue
		}
		if name == "-" || !f.IsExported() {
			continue
		}
		place := &field{schema: known.of(f.Type), name: name, parent: t, gated: gated()[t.Name()+"."+name]}
		if key := f.Tag.Get("patchMergeKey"); key != "" {
			place.schema = &schema{shape: keyedList, elem: place.elem, key: key, goType: f.Type}
		} else if isSet(t, name) {
			place.schema = &schema{shape: set, elem: place.elem, goType: f.Type}
		}
		place.absentIsZero = f.Type.Kind() != reflect.Pointer && (strings.Contains(options, "omitempty") || f.Type.Kind() == reflect.Struct)
		place.alwaysSent = f.Type.Kind() != reflect.Pointer && !place.absentIsZero
		s.fields[name] = place
	}
}

// entered are the objects that are merged field by field, because each of their
// fields means the same whatever the others say.
func entered(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[corev1.Pod](), reflect.TypeFor[corev1.PodSpec](), reflect.TypeFor[corev1.PodSecurityContext](),
		reflect.TypeFor[corev1.Container](), reflect.TypeFor[corev1.SecurityContext](), reflect.TypeFor[corev1.Lifecycle](),
		reflect.TypeFor[corev1.ResourceRequirements]():
		return true
	}
	return t.Name() == "ObjectMeta"
}

// excludes says what in an object of the pod forbids a field of the fragment that
// would be fine by itself; such a field is left out. Inherited is the securityContext
// of the pod. A container that says that it runs as somebody else counts no less as
// root by that: another template may have said so.
func excludes(pod, whole *tree.Node, f *field, name string, value *tree.Node) bool {
	switch {
	case f.parent == reflect.TypeFor[corev1.SecurityContext]() && name == "allowPrivilegeEscalation" && value.Kind() == tree.False:
		if pod.Get("privileged").Kind() == tree.True {
			return true
		}
		added := pod.At("capabilities", "add").Items()
		for i := range added {
			if added[i].IsText("SYS_ADMIN") || added[i].IsText("CAP_SYS_ADMIN") {
				return true
			}
		}
	case f.parent == reflect.TypeFor[corev1.SecurityContext]() && name == "runAsNonRoot" && value.Kind() == tree.True:
		own, all := pod.Get("runAsUser"), whole.At("spec", "securityContext", "runAsUser")
		return own != nil && isZero(own) || all != nil && isZero(all)
	case f.parent == reflect.TypeFor[corev1.PodSpec]() && name == "shareProcessNamespace" && value.Kind() == tree.True:
		return pod.Get("hostPID").Kind() == tree.True
	}
	return false
}

// droppable says whether the API server may have dropped a field of the fragment:
// all of it, or all that an object has.
func (f *field) droppable(fragment *tree.Node) bool {
	if f.gated {
		return true
	}
	members := fragment.Members()
	for i := range members {
		if !f.at(members[i].Name()).droppable(&members[i]) {
			return false
		}
	}
	return len(members) > 0
}

// isSet are the lists without a key whose order means nothing.
func isSet(parent reflect.Type, name string) bool {
	switch parent {
	case reflect.TypeFor[corev1.PodSpec]():
		return name == "tolerations"
	case reflect.TypeFor[corev1.PodSecurityContext]():
		return name == "supplementalGroups"
	}
	return false
}

// at is the place below s with that name; unknown names are units, which can
// only happen for a fragment of a newer API than this build's. It is asked so often that a
// map, which reads all of a name, is felt.
func (s *schema) at(name string) *field {
	if s.shape == mapping {
		return s.each
	}
	for i, all := slot(name), s.slots; len(all) > 0; i++ {
		f := all[i&(len(all)-1)]
		if f == nil {
			break
		}
		if f.name == name {
			return f
		}
	}
	return unknown
}

// unknown is a place of which nothing is known.
var unknown = &field{schema: &schema{}}

// contains says whether the pod has all that the fragment has, and the same:
// what is there besides (defaults, say) does not matter.
func (s *schema) contains(pod, fragment *tree.Node) bool {
	switch {
	case fragment.Kind() == tree.Object:
		if pod.Kind() != tree.Object {
			return false
		}
		members := fragment.Members()
		for i := range members {
			if name := members[i].Name(); !s.at(name).holds(pod.Get(name), &members[i]) {
				return false
			}
		}
		return true
	case fragment.Kind() == tree.Array:
		return pod.Kind() == tree.Array && s.containsItems(pod.Items(), fragment.Items())
	}
	return s.equalScalars(pod, fragment)
}

// holds is contains for a place that may be absent.
func (f *field) holds(pod, fragment *tree.Node) bool {
	if fragment.Kind() == tree.Null {
		return true
	}
	if pod == nil {
		return f.absentIsZero && isZero(fragment) || f.droppable(fragment)
	}
	return f.contains(pod, fragment)
}

func (s *schema) containsItems(pod, fragment []tree.Node) bool {
	elem := s.elem
	if elem == nil {
		elem = &schema{}
	}
	if s.shape != keyedList && s.shape != set && len(pod) != len(fragment) {
		return false
	}
	for i := range fragment {
		switch s.shape {
		case keyedList:
			if found := s.find(pod, &fragment[i]); found < 0 || !elem.contains(&pod[found], &fragment[i]) {
				return false
			}
		case set:
			if !elem.among(pod, &fragment[i]) {
				return false
			}
		default:
			if !elem.contains(&pod[i], &fragment[i]) {
				return false
			}
		}
	}
	return true
}

// among says whether an equal item is there already.
func (s *schema) among(pod []tree.Node, fragment *tree.Node) bool {
	for i := range pod {
		if s.contains(&pod[i], fragment) && s.contains(fragment, &pod[i]) {
			return true
		}
	}
	return false
}

// find is the index of the pod's item that has the fragment item's key, or -1.
func (s *schema) find(pod []tree.Node, fragment *tree.Node) int {
	key, text := s.textKey(fragment)
	for i := range pod {
		if text && s.key != "mountPath" { // which is compared as it is
			if pod[i].Get(s.key).IsText(key) {
				return i
			}
			continue
		}
		if other, ok := s.textKey(&pod[i]); text && ok && other == key || !text && s.sameKey(&pod[i], fragment) {
			return i
		}
	}
	return -1
}

// textKey is an item's key where a text is all there is to it.
func (s *schema) textKey(item *tree.Node) (key string, ok bool) {
	switch n := item.Get(s.key); {
	case n.Kind() != tree.String || s.key == "containerPort":
		return "", false
	case s.key == "mountPath":
		return cleanPath(n.Text()), true // the same place in the container
	default:
		return n.Text(), true
	}
}

// cleanPath is [path.Clean], which nearly every path passes unchanged.
func cleanPath(p string) string {
	for i := range len(p) {
		if p[i] == '/' && (i+1 == len(p) || p[i+1] == '/' || p[i+1] == '.') || p[i] == '.' && i == 0 {
			return path.Clean(p)
		}
	}
	if p == "" {
		return path.Clean(p)
	}
	return p
}

func (s *schema) sameKey(a, b *tree.Node) bool {
	if s.key == "containerPort" {
		ka, kb := a.Get(s.key), b.Get(s.key)
		return ka != nil && kb != nil && sameNumber(ka, kb) && protocol(a) == protocol(b) // +listMapKey=protocol beside the tag's key
	}
	ka, okA := s.textKey(a)
	kb, okB := s.textKey(b)
	return okA && okB && ka == kb
}

func protocol(port *tree.Node) string {
	if p := port.Get("protocol").Text(); p != "" {
		return p
	}
	return string(corev1.ProtocolTCP)
}

func isZero(n *tree.Node) bool {
	switch n.Kind() {
	case tree.String:
		return n.IsText("")
	case tree.False, tree.Null:
		return true
	case tree.Number:
		return n.String() == "0"
	case tree.Array:
		return len(n.Items()) == 0
	case tree.Object:
		return len(n.Members()) == 0
	}
	return false
}

func (s *schema) equalScalars(a, b *tree.Node) bool {
	switch {
	case s.quantity && a.Kind() != 0:
		if a.Kind() == tree.String && a.SameText(b) && a.Text() != "" {
			return true
		}
		qa, errA := templates.ParseQuantity(scalarText(a))
		qb, errB := templates.ParseQuantity(scalarText(b))
		qa.RoundUp(resource.Milli) // as the API server does
		qb.RoundUp(resource.Milli)
		return errA == nil && errB == nil && qa.Cmp(qb) == 0
	case a.Kind() != b.Kind():
		return false
	case a.Kind() == tree.String:
		return a.SameText(b)
	case a.Kind() == tree.Number:
		return sameNumber(a, b)
	}
	return true
}

func scalarText(n *tree.Node) string {
	if n.Kind() == tree.String {
		return n.Text()
	}
	return n.String()
}

func sameNumber(a, b *tree.Node) bool {
	if a.String() == b.String() {
		return true
	}
	fa, errA := strconv.ParseFloat(a.String(), 64)
	fb, errB := strconv.ParseFloat(b.String(), 64)
	// Above 2^53 different integers are the same float: only the text tells.
	return errA == nil && errB == nil && fa == fb && fa < 1<<53 && fa > -1<<53
}
