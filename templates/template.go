// SPDX-License-Identifier: Apache-2.0

// Package templates implements the template format: what a SidecarTemplate may contain, how it is
// checked and compiled, and what it renders to for one pod.
//
// Loading a template ([Parse], [Load]) finds everything that is wrong with it, and reports each
// [Problem] with file, line and path. A request can fail only because of the pod: a parameter has
// an invalid value, or an expression fails on this pod.
//
// Rendering is a pure function of the template and an [Input]. It uses no clock, randomness,
// environment, network or map iteration order.
package templates

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The identity of documents.
const (
	APIVersion = "pillion.dev/v1alpha1"
	Kind       = "SidecarTemplate"
	TestKind   = "SidecarTemplateTest" // tests of templates, see package suite
)

// Domain is the suffix of templates' annotations and the prefix of Pillion's own.
const Domain = "pillion.dev"

// Template is a checked and compiled SidecarTemplate. It is immutable and safe for concurrent use.
type Template struct {
	Name     string
	Revision string // first 12 hex digits of the SHA-256 of the canonical form
	File     string // the file that it was read from
	Spec     Spec

	NamespaceSelector labels.Selector // nil matches every namespace
	PodSelector       labels.Selector // nil matches every pod

	// Containers are the names of the template's containers, init containers first. The computed part
	// of a name, which only containers with ${forEach} have, is *.
	Containers []string

	generates bool // whether a name in Containers has a computed part

	// Computed are the fields of its containers that expressions compute from the pod.
	Computed []string
	// Unprotected are the fields of its containers that ProtectAll omits. These are the computed
	// fields, if ProtectAll is the default here: another webhook may change the part of the pod
	// that they are computed from.
	Unprotected []string

	line      int // line of its name
	condition *program
	conjuncts func() []conjunct // of the condition
	pod       *part
	forEach   []forEach
	variables []*variable
	order     map[string][]string           // the names of containers, by list
	ends      [len(containerLists)]*program // of the placement, if they are computed
	params    map[string]*param
	ordered   []*param // params in the order of declaration
	preset    Values   // the defaults, if no parameter needs a value
	reads     reads

	asksIfSet    bool
	readsRequest bool
	readsGated   bool
	readsAccount bool            // see ReadsServiceAccount
	accountSets  bool            // whether the ServiceAccount may set a parameter
	uses         map[string]bool // parameters that expressions read
}

type forEach struct {
	where          *program
	named          []namedContainers // in where
	differs        bool              // where may differ between containers
	initContainers bool
	add            *part
}

// namedContainers are the names in one comparison of a where with the name of a container.
type namedContainers struct {
	params []string // that the names are computed from
	names  cel.Program
}

// document is the YAML document.
type document struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
}

type metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Spec is the content of a template.
type Spec struct {
	Description         string        `json:"description,omitempty"`
	Default             bool          `json:"default,omitempty"`
	Required            bool          `json:"required,omitempty"`
	Order               int           `json:"order,omitempty"`
	Match               Match         `json:"match"`
	Params              []Param       `json:"params,omitempty"`
	Variables           []Variable    `json:"variables,omitempty"`
	Pod                 podFragment   `json:"pod"`
	ForEachContainer    []ForEach     `json:"forEachContainer,omitempty"`
	LabelDomains        []string      `json:"labelDomains,omitempty"` // domains of other labels that it may set
	Placement           Placement     `json:"placement"`
	ServiceAccountToken TokenMode     `json:"serviceAccountToken,omitempty"`
	Validate            ValidateRules `json:"validate"`
}

// Variable is a named expression.
type Variable struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

// Match selects the pods of a template. An empty field matches every pod, unless it has a default.
type Match struct {
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	Condition         string                `json:"condition,omitempty"` // CEL, bool
	OS                corev1.OSName         `json:"os,omitempty"`        // default linux
	HostNetwork       bool                  `json:"hostNetwork,omitempty"`
}

// ForEach is added to every app container for which Where (CEL, bool) is true.
type ForEach struct {
	Where          string            `json:"where,omitempty"`
	InitContainers bool              `json:"initContainers,omitempty"`
	Add            containerFragment `json:"add"`
}

// TokenMode defines the mount in an injected container at the path where the ServiceAccount
// admission plugin would mount the pod's API token.
type TokenMode string

// Inherit mounts the token as the plugin would. None mounts an empty volume there, so that the
// sidecar gets no credential.
const (
	Inherit TokenMode = "Inherit"
	None    TokenMode = "None"
)

// ValidateRules define what the validating webhook does about a final pod.
type ValidateRules struct {
	Mode    ValidateMode `json:"mode,omitempty"`
	Protect []string     `json:"protect,omitempty"`
}

// ProtectAll in Protect means all fields of a container except its resources, which LimitRanges and
// autoscalers set. It is the default of a required template.
const ProtectAll = "all"

// ResourcesField is the field that ProtectAll omits.
const ResourcesField = "resources"

// Protects reports whether a field of the template's containers must keep the template's value.
func (t *Template) Protects(field string) bool {
	return slices.Contains(t.Spec.Validate.Protect, field) ||
		slices.Contains(t.Spec.Validate.Protect, ProtectAll) && t.inAll(field)
}

func (t *Template) inAll(field string) bool {
	return field != ResourcesField && !slices.Contains(t.Unprotected, field)
}

// ValidateMode is Deny (the default of a required template) or Warn.
type ValidateMode string

// The modes of validation.
const (
	Deny ValidateMode = "Deny"
	Warn ValidateMode = "Warn"
)

// podFragment and containerFragment mark the places that contain Kubernetes' own syntax with
// expressions. These are compiled, not decoded.
type (
	podFragment       struct{}
	containerFragment struct{}
)

// Annotation returns this template's annotation key with that name.
func (t *Template) Annotation(name string) string { return t.Name + "." + Domain + "/" + name }

// The names in a template's annotations that are not parameters.
const (
	AnnotationInjected  = "injected"
	AnnotationCustomize = "customize"
)

// SplitAnnotation splits <template>.pillion.dev/<name>. It returns false for any other key.
func SplitAnnotation(key string) (template, name string, ok bool) {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		return "", "", false
	}
	template, ok = strings.CutSuffix(prefix, "."+Domain)
	return template, name, ok && template != ""
}

// Reads returns the parts of the pod that the template's result depends on, sorted. A part is named
// by its first two fields, for example "spec.volumes"; "*" is the whole pod. "spec.containers[]" is
// only the set of containers, "metadata.labels[app]" only that label, and "metadata.annotations[a/b*]"
// only the annotations with that prefix.
func (t *Template) Reads() []string { return slices.Sorted(maps.Keys(t.reads)) }

// ReadsContainers reports whether an expression reads the pod's lists of containers.
func (t *Template) ReadsContainers() bool {
	return slices.ContainsFunc(t.Reads(), func(part string) bool {
		return part == "*" || strings.HasPrefix(part, "spec.containers") || strings.HasPrefix(part, "spec.initContainers")
	})
}

// ReadsRequest reports whether the template's result depends on the user who creates a pod, or on a
// dry run. Such a result cannot be computed again for an existing pod.
func (t *Template) ReadsRequest() bool { return t.readsRequest }

// ReadsGated reports whether an expression reads an object that may contain gated fields, other than
// field by field. The pod for such an expression must have no gated fields, see [Gated].
func (t *Template) ReadsGated() bool { return t.readsGated }

// ReadsPodName reports whether an expression reads the name of the pod.
func (t *Template) ReadsPodName() bool { return t.reads[podName] }

// Uses reports whether an expression reads a parameter.
func (t *Template) Uses(param string) bool { return t.uses[param] }

// ReadsServiceAccount reports whether the template's result depends on the labels or annotations of
// the pod's ServiceAccount.
func (t *Template) ReadsServiceAccount() bool { return t.readsAccount }

// NamesServiceAccount reports whether the template's result depends on the pod's ServiceAccount, if
// only on its name.
func (t *Template) NamesServiceAccount() bool { return t.readsAccount || t.reads[accountName] }

// Place returns the template's file and line.
func (t *Template) Place() string { return fmt.Sprintf("%s:%d", t.File, t.line) }
