// SPDX-License-Identifier: Apache-2.0

// Package templates is the template format: what a SidecarTemplate may say, how
// it is checked and compiled, and what it renders to for one pod.
//
// Everything that can be wrong with a template is found when it is loaded
// ([Parse], [Load]) and told as a [Problem] with file, line and path. What is
// left for a request is what only the pod can tell: a parameter's value, and an
// expression that fails on this pod.
//
// Rendering is a pure function of the template and an [Input]: no clock, no
// randomness, no environment, no network, no order of map iteration.
package templates

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The identity of a template document.
const (
	APIVersion = "pillion.dev/v1alpha1"
	Kind       = "SidecarTemplate"
)

// Domain is the suffix of a template's annotations and the prefix of Pillion's own.
const Domain = "pillion.dev"

// Template is a checked and compiled SidecarTemplate. It is immutable and may
// be shared.
type Template struct {
	Name     string
	Revision string // first 12 hex digits of the SHA-256 of the canonical form
	File     string // where it was read
	Spec     Spec

	NamespaceSelector labels.Selector // nil: every namespace
	PodSelector       labels.Selector // nil: every pod

	// Containers are the names of the containers that it brings, init containers
	// first. They are the same for every pod.
	Containers []string

	// Computed are the fields of its containers that are computed from the pod.
	Computed []string
	// Unprotected are the fields of its containers that ProtectAll leaves out: those that
	// are computed, if it is the default here. Another webhook may change what they are
	// computed from.
	Unprotected []string

	line      int // of its name
	condition *program
	pod       *part
	forEach   []forEach
	params    map[string]*param
	ordered   []*param // the same, as they are declared
	preset    Values   // the defaults, if every parameter has one
	reads     reads

	readsRequest bool
}

type forEach struct {
	where          *program
	initContainers bool
	add            *part
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

// Spec is what a template says.
type Spec struct {
	Description         string        `json:"description,omitempty"`
	Default             bool          `json:"default,omitempty"`
	Required            bool          `json:"required,omitempty"`
	Order               int           `json:"order,omitempty"`
	Match               Match         `json:"match"`
	Params              []Param       `json:"params,omitempty"`
	Pod                 podFragment   `json:"pod"`
	ForEachContainer    []ForEach     `json:"forEachContainer,omitempty"`
	LabelDomains        []string      `json:"labelDomains,omitempty"` // whose labels it may set, beside its own
	Placement           Placement     `json:"placement"`
	ServiceAccountToken TokenMode     `json:"serviceAccountToken,omitempty"`
	Validate            ValidateRules `json:"validate"`
}

// Match says which pods a template is for; what is not said matches.
type Match struct {
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	Condition         string                `json:"condition,omitempty"` // CEL, bool
	OS                corev1.OSName         `json:"os,omitempty"`        // default linux
	HostNetwork       bool                  `json:"hostNetwork,omitempty"`
}

// ForEach is added to every app container for which Where (CEL, bool) holds.
type ForEach struct {
	Where          string            `json:"where,omitempty"`
	InitContainers bool              `json:"initContainers,omitempty"`
	Add            containerFragment `json:"add"`
}

// Placement says where new containers go.
type Placement struct {
	// First by default for native sidecars, Last for other init containers.
	InitContainers Place `json:"initContainers,omitempty"`
	// Last by default.
	Containers Place `json:"containers,omitempty"`
}

// Place is First or Last.
type Place string

// The places in a list of containers.
const (
	First Place = "First"
	Last  Place = "Last"
)

// TokenMode says what stands in an injected container where the ServiceAccount
// admission plugin would mount the pod's API token.
type TokenMode string

// Inherit mounts the token as the plugin would; None mounts an empty volume
// there, so that no credential reaches the sidecar.
const (
	Inherit TokenMode = "Inherit"
	None    TokenMode = "None"
)

// ValidateRules say what the validating webhook does about a final pod.
type ValidateRules struct {
	Mode    ValidateMode `json:"mode,omitempty"`
	Protect []string     `json:"protect,omitempty"`
}

// ProtectAll in Protect stands for all fields of a container but its resources, which
// LimitRanges and autoscalers set. It is the default of a required template.
const ProtectAll = "all"

// ResourcesField is the field that ProtectAll leaves out.
const ResourcesField = "resources"

// Protects reports whether a field of the template's containers must be as the template says.
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

// podFragment and containerFragment mark the places where Kubernetes' own
// syntax with expressions stands; they are compiled, not decoded.
type (
	podFragment       struct{}
	containerFragment struct{}
)

// Annotation is the annotation key of this template with that name.
func (t *Template) Annotation(name string) string { return t.Name + "." + Domain + "/" + name }

// The names in a template's annotations that are not parameters.
const (
	AnnotationInjected  = "injected"
	AnnotationCustomize = "customize"
)

// SplitAnnotation takes <template>.pillion.dev/<name> apart; ok is false for
// any other key.
func SplitAnnotation(key string) (template, name string, ok bool) {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		return "", "", false
	}
	template, ok = strings.CutSuffix(prefix, "."+Domain)
	return template, name, ok && template != ""
}

// Reads are the parts of the pod, by their first two fields as in "spec.volumes",
// that what the template gives depends on, sorted; "*" is all of it. Of
// "spec.containers[]" only which containers there are counts, and of "metadata.labels[app]"
// that label.
func (t *Template) Reads() []string { return slices.Sorted(maps.Keys(t.reads)) }

// ReadsRequest says whether what the template gives depends on who makes a pod, or
// on a dry run: then it cannot be told again of a pod that exists.
func (t *Template) ReadsRequest() bool { return t.readsRequest }
