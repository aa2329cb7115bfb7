// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/rogpeppe/go-internal/txtar"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// objectTypes are the types Object... and JSONPatch of the API server's mutations. Their values are
// maps here.
type objectTypes struct{ types.Provider }

func isObjectType(name string) bool {
	return name == "JSONPatch" || name == "Object" || strings.HasPrefix(name, "Object.")
}

// FindStructType implements types.Provider.
func (p objectTypes) FindStructType(name string) (*types.Type, bool) {
	if isObjectType(name) {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldType implements types.Provider.
func (p objectTypes) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if isObjectType(name) {
		return &types.FieldType{Type: types.DynType}, true
	}
	return p.Provider.FindStructFieldType(name, field)
}

// NewValue implements types.Provider.
func (p objectTypes) NewValue(name string, fields map[string]ref.Val) ref.Val {
	if !isObjectType(name) {
		return p.Provider.NewValue(name, fields)
	}
	values := map[string]any{}
	for k, v := range fields {
		values[k] = v
	}
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, values)
}

// plain returns a value in the form that encoding/json accepts.
func plain(t testing.TB, v ref.Val) any {
	t.Helper()
	switch v := v.(type) {
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			list = append(list, plain(t, it.Next()))
		}
		return list
	case traits.Mapper:
		m := map[string]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			m[key.Value().(string)] = plain(t, v.Get(key))
		}
		return m
	}
	return v.Value()
}

// mutations evaluates policies as the API server would: in any order, and twice.
type mutations struct {
	*evaluator
	ns       request.Namespace
	policies []*admissionregistrationv1.MutatingAdmissionPolicy
	bindings []*admissionregistrationv1.MutatingAdmissionPolicyBinding
}

func (m *mutations) admit(t testing.TB, pod []byte) []byte {
	t.Helper()
	for range 2 {
		for _, p := range m.policies {
			if m.matches(t, p, pod) {
				pod = m.mutate(t, p, pod)
			}
		}
	}
	return pod
}

func (m *mutations) matches(t testing.TB, p *admissionregistrationv1.MutatingAdmissionPolicy, pod []byte) bool {
	t.Helper()
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(pod, &object); err != nil {
		t.Fatal(err)
	}
	ns := labels.Merge(labels.Set{corev1.LabelMetadataName: m.ns.Name}, m.ns.Labels)
	selected := func(r *admissionregistrationv1.MatchResources) bool {
		for _, s := range []struct {
			selector *metav1.LabelSelector
			labels   labels.Set
		}{{r.NamespaceSelector, ns}, {r.ObjectSelector, object.Labels}} {
			selector, err := metav1.LabelSelectorAsSelector(s.selector)
			if err != nil {
				t.Fatal(err)
			}
			if !selector.Matches(s.labels) {
				return false
			}
		}
		return true
	}
	return selected(p.Spec.MatchConstraints) && slices.ContainsFunc(m.bindings, func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) bool {
		return b.Spec.PolicyName == p.Name && selected(b.Spec.MatchResources)
	})
}

func (m *mutations) mutate(t testing.TB, p *admissionregistrationv1.MutatingAdmissionPolicy, pod []byte) []byte {
	t.Helper()
	w := newWorld(t, m.evaluator, string(pod), m.ns)
	for _, c := range p.Spec.MatchConditions {
		if ok, err := w.eval(t, c.Expression); err != nil || ok != types.True {
			return pod
		}
	}
	w.declare(t, p.Spec.Variables)
	ops, err := w.eval(t, p.Spec.Mutations[0].JSONPatch.Expression)
	if err != nil {
		return pod
	}
	text, err := json.Marshal(plain(t, ops))
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := patch.Apply(pod)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return encoded(t, patched)
}

// encoded returns a pod as the API server writes it.
func encoded(t testing.TB, pod []byte) []byte {
	t.Helper()
	var typed corev1.Pod
	d := json.NewDecoder(bytes.NewReader(pod))
	d.DisallowUnknownFields()
	if err := d.Decode(&typed); err != nil {
		t.Fatalf("%v in %s", err, pod)
	}
	text, err := json.Marshal(&typed)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// engineCase is one of the engine's own cases, or a combination: the templates of one and the pod
// of another.
type engineCase struct {
	name string
	set  *templates.Set
	ns   request.Namespace
	pod  []byte // nil if the API server would reject it
}

func engineCases(t *testing.T) []engineCase {
	t.Helper()
	files, err := filepath.Glob("../testdata/cases/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	var cases []engineCase
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := engineCase{name: strings.TrimSuffix(filepath.Base(file), ".txtar"), ns: request.Namespace{
			Name: "shop", Known: true, Labels: map[string]string{inject.LabelInject: inject.Enabled},
		}}
		var all []*templates.Template
		for _, f := range archive.Files {
			switch {
			case strings.HasSuffix(f.Name, ".template.yaml"):
				all = append(all, parse(t, string(f.Data)))
			case strings.HasPrefix(f.Name, "pod."):
				c.pod = acceptable(t, f.Data)
			case f.Name == "namespace.yaml":
				c.ns.Labels = nil
				if err := yaml.Unmarshal(f.Data, &c.ns); err != nil {
					t.Fatal(err)
				}
			}
		}
		slices.SortStableFunc(all, func(a, b *templates.Template) int { return a.Spec.Order - b.Spec.Order })
		c.set = templates.NewSet(all)
		cases = append(cases, c)
	}
	return cases
}

// acceptable returns a pod as the API server sends it, or nil if the API server would reject it.
func acceptable(t *testing.T, text []byte) []byte {
	t.Helper()
	var typed corev1.Pod
	if err := yaml.Unmarshal(text, &typed); err != nil || len(typed.Spec.Containers) == 0 {
		return nil
	}
	for i := range typed.Spec.Volumes {
		if source := &typed.Spec.Volumes[i].VolumeSource; *source == (corev1.VolumeSource{}) {
			source.EmptyDir = &corev1.EmptyDirVolumeSource{} // the default
		}
	}
	pod, err := json.Marshal(&typed)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// injected returns the pod after injection by the engine.
func injected(t *testing.T, set *templates.Set, ns request.Namespace, pod []byte) []byte {
	t.Helper()
	result, err := inject.New(set).Inject(inject.Request{Operation: "CREATE", Username: "jane", Namespace: ns, Object: pod})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(result.Ops())
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil || len(patch) == 0 {
		return pod
	}
	if pod, err = patch.Apply(pod); err != nil {
		t.Fatal(err)
	}
	return encoded(t, pod)
}

// newMutations returns the policies of a set. It returns nil if one is rejected or may see what
// others add.
func newMutations(t *testing.T, env *cel.Env, set *templates.Set) *mutations {
	t.Helper()
	objects, err := Mutating(set, Options{})
	if err != nil || len(Notes(set, Options{})) > 0 {
		return nil
	}
	m := &mutations{evaluator: &evaluator{env, map[string]cel.Program{}}}
	for _, o := range objects {
		switch o := o.(type) {
		case *admissionregistrationv1.MutatingAdmissionPolicy:
			m.policies = append(m.policies, o)
		case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
			m.bindings = append(m.bindings, o)
		}
	}
	return m
}

// pairEvery is the interval at which pairs of templates and pods are compared. Comparing all takes
// a minute under the race detector.
const pairEvery = 5

// TestEngine checks that policies do what the engine does, in any order. It uses the templates of
// each of the engine's own cases with its pod and the pods of others. If a pod brings a template's
// container, that stays unchanged.
func TestEngine(t *testing.T) {
	t.Parallel()
	cases, env := engineCases(t), environment(t).env
	expressed := 0
	for i, templatesOf := range cases {
		m := newMutations(t, env, templatesOf.set)
		if m == nil {
			continue
		}
		expressed++
		t.Run(templatesOf.name, func(t *testing.T) {
			t.Parallel()
			required := slices.ContainsFunc(templatesOf.set.Templates, func(t *templates.Template) bool { return t.Spec.Required })
			for j, podOf := range cases {
				if podOf.pod == nil || i != j && (i+j)%pairEvery != 0 {
					continue
				}
				m.ns = podOf.ns
				want := sortedVolumes(t, injected(t, templatesOf.set, m.ns, podOf.pod))
				got := m.admit(t, podOf.pod)
				slices.Reverse(m.policies)
				for _, other := range [][]byte{m.admit(t, podOf.pod), m.admit(t, got)} {
					if !bytes.Equal(sortedVolumes(t, other), sortedVolumes(t, got)) {
						t.Errorf("the pod of %s is another in another order, or a second time\n%s\n%s", podOf.name, got, other)
					}
				}
				brought := ownContainers(t, templatesOf.set, podOf.pod)
				if len(brought) == 0 && !bytes.Equal(sortedVolumes(t, got), want) {
					t.Errorf("the pod of %s\nwith the engine %s\nwith policies   %s\nbefore          %s", podOf.name, want, got, podOf.pod)
				}
				after := ownContainers(t, templatesOf.set, got)
				if slices.ContainsFunc(brought, func(c string) bool { return !slices.Contains(after, c) }) && !required {
					t.Errorf("the pod of %s brought %s, and has %s", podOf.name, brought, after)
				}
			}
		})
	}
	// The rest has constructs that no policy can express, such as loops and templates that replace others.
	if expressed < 120 {
		t.Errorf("only %d of %d cases can be expressed", expressed, len(cases))
	}
}

// ownContainers returns the containers with names of templates' containers, as JSON, and the
// annotations that mark them.
func ownContainers(t *testing.T, set *templates.Set, pod []byte) []string {
	t.Helper()
	var typed corev1.Pod
	if err := json.Unmarshal(pod, &typed); err != nil {
		t.Fatal(err)
	}
	var own []string
	for _, tmpl := range set.Templates {
		if key := tmpl.Annotation(templates.AnnotationCustomize); typed.Annotations[key] == "true" {
			own = append(own, key)
		}
		for _, c := range slices.Concat(typed.Spec.InitContainers, typed.Spec.Containers) {
			if slices.Contains(tmpl.Containers, c.Name) {
				text, err := json.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				own = append(own, string(text))
			}
		}
	}
	return own
}

// sortedVolumes sorts the volumes, because policies add them in another order than the engine.
func sortedVolumes(t *testing.T, pod []byte) []byte {
	t.Helper()
	var typed corev1.Pod
	if err := json.Unmarshal(pod, &typed); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(typed.Spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	text, err := json.Marshal(&typed)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
