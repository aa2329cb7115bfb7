// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// AsStored returns approximately what an API server would store if it got this pod: the pod with the defaults, and without
// fields that the API server drops if a feature gate is off. It is for predictions; only the API server knows what it stores. It
// returns an error if the pod is not JSON.
func AsStored(podJSON []byte) ([]byte, error) {
	pod, err := jsontree.Parse(podJSON)
	if err != nil {
		return nil, fmt.Errorf("the pod is not JSON: %w", err)
	}
	kept := storedSchema().foreseenPart(pod, Server{OnHost: pod.At("spec", "hostNetwork").Kind() == jsontree.True}, true)
	return kept.AppendTo(nil), nil
}

var (
	containerPort = reflect.TypeFor[corev1.ContainerPort]()
	podType       = reflect.TypeFor[corev1.Pod]()
	podSpecType   = reflect.TypeFor[corev1.PodSpec]()
	lifecycle     = reflect.TypeFor[corev1.Lifecycle]()
)

var storedSchema = sync.OnceValue(Pod)

// isStored reports whether an API server stores a value, or omits it because it is zero. It does not consider feature gates.
func (f *Field) isStored(value *jsontree.Node) bool {
	switch {
	case value.Kind() == jsontree.Null:
		return f.AlwaysSent
	case value.Kind() == jsontree.Object && f.Shape != mapping:
		return true // a struct
	}
	return !f.AbsentIsZero || !IsZero(value)
}

// fillIn adds the defaults of the object's own fields.
func (s *Schema) fillIn(object *jsontree.Node) {
	for _, value := range s.defaultFillings() {
		if object.Get(value.Name()) != nil || s.GoType == VolumeType() && len(object.Members()) > 1 {
			continue // a volume of another kind is no emptyDir
		}
		object.Set(value.Name(), value.Clone())
	}
}

// defaultFillings returns the defaults of the object's own fields, sorted by name. A field whose type is a struct, and no pointer to
// one, has an empty object as its default, unless the type encodes itself, as a time does. The results are kept, because every item
// of every list of a pod needs them.
func (s *Schema) defaultFillings() []jsontree.Node {
	if known, ok := fillings.Load(s); ok {
		return known.([]jsontree.Node)
	}
	var all []jsontree.Node
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		f := s.fields[name]
		value, ok := Default(f.Parent.Name() + "." + name)
		switch {
		case ok:
		case f.AbsentIsZero && f.fields != nil && !f.ownEncoding && s.GoType != podType:
			value, ok = "{}", true
		case f.AlwaysSent:
			value, ok = zeroOf(f.GoType)
		}
		if !ok || f.Gated {
			continue
		}
		if v, err := jsontree.Parse([]byte(value)); err == nil {
			all = append(all, jsontree.Field(name, v.Clone())) // it is parsed completely, because others read it at the same time
		}
	}
	fillings.Store(s, all)
	return all
}

// zeroOf returns the JSON of a zero value that is always sent, for example of the seconds of a SleepAction.
func zeroOf(t reflect.Type) (value string, ok bool) {
	switch t.Kind() {
	case reflect.String:
		return `""`, true
	case reflect.Bool:
		return "false", true
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "0", true
	}
	return "", false
}

var fillings sync.Map // []jsontree.Node by *Schema

// podDefaults are the defaults of a PodSpec's own fields.
func podDefaults() []jsontree.Node {
	return []jsontree.Node{
		jsontree.Field("dnsPolicy", jsontree.Text(string(corev1.DNSClusterFirst))),
		jsontree.Field("enableServiceLinks", jsontree.Bool(corev1.DefaultEnableServiceLinks)),
		jsontree.Field("restartPolicy", jsontree.Text(string(corev1.RestartPolicyAlways))),
		jsontree.Field("schedulerName", jsontree.Text(corev1.DefaultSchedulerName)),
		jsontree.Field("securityContext", jsontree.Members()),
		jsontree.Field("terminationGracePeriodSeconds", jsontree.Int(corev1.DefaultTerminationGracePeriodSeconds)),
	}
}

// fillInRequests adds the requests that a container gets because it has limits.
func fillInRequests(resources *jsontree.Node) {
	limits, requests := resources.Get("limits").Members(), resources.Get("requests")
	all := jsontree.Members(slices.Clone(requests.Members())...)
	for i := range limits {
		if requests.Get(limits[i].Name()) == nil {
			all.Set(limits[i].Name(), limits[i])
		}
	}
	switch {
	case len(all.Members()) == len(requests.Members()):
	case requests == nil:
		resources.Set("requests", all)
	default:
		*requests = jsontree.Field("requests", all)
	}
}

// Server is what an API server does to a part of a pod.
type Server struct {
	// File: the pod comes from a file, so all of it gets the defaults. A pod that an API server sends has them already, and only
	// additions get them.
	File bool
	// OnHost: the pod uses the node's network, so that its ports get a hostPort.
	OnHost bool
	// DropsGated: not only additions lose the fields that the API server drops if a feature gate is off, but all of the pod.
	DropsGated bool
}

// HasGatedField reports whether the type of an object has a field that the API server drops if a feature gate is off. If the object
// has no other field, the API server drops the object, too (dropDisabledFields in pkg/api/pod/util.go of Kubernetes).
func (s *Schema) HasGatedField() bool {
	for _, f := range s.fields {
		if f.Gated {
			return true
		}
	}
	return false
}

// HasGated reports whether a value contains a field that the API server drops if a feature gate is off.
func (s *Schema) HasGated(n *jsontree.Node) bool {
	switch {
	case n.Kind() == jsontree.Array && s.Elem != nil:
		items := n.Items()
		for i := range items {
			if s.Elem.HasGated(&items[i]) {
				return true
			}
		}
	case n.Kind() == jsontree.Object && s.fields != nil:
		members := n.Members()
		for i := range members {
			if f := s.At(members[i].Name()); f.Gated || f.HasGated(&members[i]) {
				return true
			}
		}
	}
	return false
}

// Foreseen returns a part of a pod in which all additions have the form in which the API server will store them.
func (s *Schema) Foreseen(n *jsontree.Node, by Server) jsontree.Node {
	return s.foreseenPart(n, by, false)
}

// foreseenPart implements [Schema.Foreseen]. If stored is true, everything counts as added.
func (s *Schema) foreseenPart(n *jsontree.Node, by Server, stored bool) jsontree.Node {
	stored = stored || n.IsNew()
	file := by.File
	switch {
	case !file && !stored && n.AddedSize() == 0 && (!by.DropsGated || !s.HasGated(n)):
		return *n
	case n.Kind() == jsontree.Array && s.Elem != nil:
		items := n.Items()
		list := jsontree.Items(make([]jsontree.Node, 0, len(items))...)
		for i := range items {
			list.Append(s.Elem.foreseenPart(&items[i], by, stored))
		}
		return list
	case n.Kind() == jsontree.Object && s.Shape == mapping && s.Elem.Quantity:
		return s.encodedQuantities(n, file || stored)
	case n.Kind() != jsontree.Object:
		return s.encodedScalar(n)
	case s.fields == nil:
		return *n
	}
	object := jsontree.Members(make([]jsontree.Node, 0, len(n.Members())+len(s.defaultFillings()))...)
	for i := range n.Members() {
		m := &n.Members()[i]
		f := s.At(m.Name())
		if f.Gated && (stored || by.DropsGated) || (stored || file) && !f.isStored(m) {
			continue
		}
		value := f.foreseenPart(m, by, stored)
		if f.GoType == lifecycle && len(value.Members()) == 0 && len(m.Members()) > 0 {
			continue // without its only field, stopSignal, it is dropped
		}
		object.Set(m.Name(), value)
	}
	if stored || file {
		s.fillIn(&object)
	}
	switch {
	case s.GoType == ContainerType():
		fillInRequests(object.Get("resources"))
		if (stored || file) && object.Get("imagePullPolicy") == nil {
			object.Set("imagePullPolicy", jsontree.Text(pullPolicy(object.Get("image").Text())))
		}
	case s.GoType == podSpecType && (stored || file):
		if grace := object.Get("terminationGracePeriodSeconds"); grace.Kind() == jsontree.Number && strings.HasPrefix(grace.String(), "-") {
			*grace = jsontree.Field("terminationGracePeriodSeconds", jsontree.Int(1)) // SetDefaults_Pod
		}
		for _, m := range podDefaults() {
			if object.Get(m.Name()) == nil {
				object.Set(m.Name(), m)
			}
		}
	case s.GoType == containerPort && by.OnHost && object.Get("hostPort") == nil && object.Get("containerPort") != nil:
		object.Set("hostPort", *object.Get("containerPort"))
	}
	return object
}
