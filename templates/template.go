// SPDX-License-Identifier: Apache-2.0

// Package templates has the templates of sidecars: it parses and checks their documents, keeps them in a [Set] in the order in which
// they are applied, renders them for one pod, and follows their files.
//
// Loading a template ([Parse], [Load]) finds everything that is wrong with it, and reports each [problem.Problem] with file, line and
// path. A request can fail only because of the pod: a parameter has an invalid value, or an expression fails on this pod.
//
// Rendering is a pure function of the template and a [cel.Input]. It uses no clock, randomness, environment, network or map iteration
// order. The packages below have what a template is made of: parameters, expressions and the rules of Kubernetes.
package templates

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// The identity of documents.
const (
	APIVersion = v1alpha1.Group + "/" + v1alpha1.Version
	TestKind   = "SidecarTemplateTest" // tests of templates, see package suite
)

// Domain is the suffix of templates' annotations and the prefix of Pillion's own.
const Domain = v1alpha1.Group

// Template is a checked and compiled template of either kind. It is immutable and safe for concurrent use.
type Template struct {
	Name      string
	Namespace string // of its pods; empty for a ClusterSidecarTemplate
	Revision  string // first 12 hex digits of the SHA-256 of the spec's canonical form
	File      string // the file or the object that it was read from
	Memory    int    // an estimate of the memory that it takes, in bytes; 0 if there is none
	Spec      v1alpha1.Spec

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

	line int // line of its name; 0 if it is an object
	// replacesLine is the line of spec.replaces.
	replacesLine int
	condition    *cel.Expression
	pod          *fragment.Node
	forEach      []forEach
	variables    []*cel.Variable
	order        map[string][]string                           // the names of containers, by list
	ends         [len(fragment.ContainerLists)]*cel.Expression // of the placement, if they are computed
	params       *params.Set
	reads        *cel.Dependencies

	asksIfSet bool
}

type forEach struct {
	where          *cel.Expression
	named          []namedContainers // in where
	looksUp        []namedContainers // in add
	differs        bool              // where may differ between containers
	initContainers bool
	add            *fragment.Node
}

// namedContainers are the names in one comparison with the name of a container.
type namedContainers struct {
	params []string // that the names are computed from
	names  *cel.Evaluation
	meant  []string // other names that the expression has a meaning for, for example "*"
}

// document is the YAML document.
type document struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Metadata   metadata      `json:"metadata"`
	Spec       v1alpha1.Spec `json:"spec"`

	Status json.RawMessage `json:"status,omitempty"` // not read
}

// metadata is that of a file, which may be the output of kubectl get.
type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`

	// The API server sets these fields, and Pillion does not read them.
	UID               json.RawMessage `json:"uid,omitempty"`
	ResourceVersion   json.RawMessage `json:"resourceVersion,omitempty"`
	Generation        json.RawMessage `json:"generation,omitempty"`
	CreationTimestamp json.RawMessage `json:"creationTimestamp,omitempty"`
	DeletionTimestamp json.RawMessage `json:"deletionTimestamp,omitempty"`
	ManagedFields     json.RawMessage `json:"managedFields,omitempty"`
	OwnerReferences   json.RawMessage `json:"ownerReferences,omitempty"`
	Finalizers        json.RawMessage `json:"finalizers,omitempty"`
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

// IsOpen reports whether a field of a container is one to which other webhooks often add for all containers: a list, or
// settings without a value that only take rights away or decide where its last message is from.
func IsOpen(field string) bool {
	switch field {
	case "env", "envFrom", "ports", "volumeDevices", "volumeMounts", "securityContext", "terminationMessagePolicy":
		return true
	}
	return false
}

// LeavesOpen reports whether other webhooks may add to a field of the template's containers although the template
// protects it. A template that names the field in Protect does not allow this.
func (t *Template) LeavesOpen(field string) bool {
	return IsOpen(field) && !slices.Contains(t.Spec.Validate.Protect, field)
}

func (t *Template) inAll(field string) bool {
	return field != ResourcesField && !slices.Contains(t.Unprotected, field)
}

// ID returns NAME, or NAMESPACE/NAME if the template is for the pods of one namespace.
func (t *Template) ID() string {
	if t.Namespace == "" {
		return t.Name
	}
	return t.Namespace + "/" + t.Name
}

// Annotation returns this template's annotation key with that name.
func (t *Template) Annotation(name string) string { return t.Name + "." + Domain + "/" + name }

// Setting returns the annotation key with that name with which users set something of this template. If it
// replaces another template, it is the key of that one.
func (t *Template) Setting(name string) string {
	return cmp.Or(t.Spec.Replaces, t.Name) + "." + Domain + "/" + name
}

// The names in a template's annotations that are not parameters.
const (
	AnnotationInjected  = "injected"
	AnnotationCustomize = "customize"
	// AnnotationInstead names a template that would replace this one, but could not be injected. No parameter
	// has a name with a hyphen.
	AnnotationInstead = "instead-of"
	// AnnotationBefore has the revision that a pod had before a rollout changed it in place to the one in AnnotationInjected.
	AnnotationBefore = AnnotationInjected + "-before"
)

// IsRecord reports whether Pillion writes the annotation of a template with that name.
func IsRecord(name string) bool {
	return name == AnnotationInjected || name == AnnotationInstead || name == AnnotationBefore
}

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
func (t *Template) Reads() []string { return t.reads.Parts() }

// ReadsContainers reports whether an expression reads the pod's lists of containers.
func (t *Template) ReadsContainers() bool {
	return slices.ContainsFunc(t.Reads(), func(part string) bool {
		return part == "*" || strings.HasPrefix(part, "spec.containers") || strings.HasPrefix(part, "spec.initContainers")
	})
}

// ReadsRequest reports whether the template's result depends on the user who creates a pod, or on a
// dry run. Such a result cannot be computed again for an existing pod.
func (t *Template) ReadsRequest() bool { return t.reads.ReadsRequest() }

// ReadsGated reports whether an expression reads an object that may contain gated fields, other than
// field by field. The pod for such an expression must have no gated fields, see [values.Gated].
func (t *Template) ReadsGated() bool { return t.reads.ReadsGated() }

// ReadsPodName reports whether an expression reads the name of the pod.
func (t *Template) ReadsPodName() bool { return t.reads.ReadsPodName() }

// Uses reports whether an expression reads a parameter.
func (t *Template) Uses(param string) bool { return t.reads.ReadsParam(param) }

// ReadsServiceAccount reports whether the template's result depends on the labels or annotations of
// the pod's ServiceAccount.
func (t *Template) ReadsServiceAccount() bool { return t.reads.ReadsServiceAccount() }

// NamesServiceAccount reports whether the template's result depends on the pod's ServiceAccount, if
// only on its name.
func (t *Template) NamesServiceAccount() bool { return t.reads.NamesServiceAccount() }

// Place returns the template's file and line, or its object.
func (t *Template) Place() string {
	if t.line == 0 {
		return t.File
	}
	return fmt.Sprintf("%s:%d", t.File, t.line)
}
