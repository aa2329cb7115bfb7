// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/fit"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

const (
	webhookAdvise = "advise"
	// fitSize and fitItems bound the pods whose fit is looked at, in bytes and in commas: in API types an item of
	// two bytes takes up to 2 KB, and twice as much while a list grows.
	fitSize, fitItems = 1 << 20, 10_000
)

// Limits tells the LimitRanges and quotas of a namespace. It is asked in the way
// of a request and must answer from memory; what it does not know it leaves out.
type Limits interface {
	Limits(namespace string) fit.Limits
}

// advise tells who writes a workload what will be wrong with its pods: they are
// made by a controller, which drops the warnings that it gets. It never denies,
// and of what it does not understand it says nothing.
//
// Who creates the pods, and whether as a dry run, is not known yet, so expressions
// see neither, as in the command line.
func (h *Handler) advise(e *exchange, r *http.Request) {
	path := e.request.podAt()
	if path == nil {
		return
	}
	injector, request := h.Injector(), e.request
	var misplaced []inject.Finding
	pod := request.newTemplate(path)
	if pod != nil || request.newMetadata(path) {
		misplaced = injector.Misplaced(request.apiVersion(), request.Kind.Kind, request.Object)
	}
	if pod == nil {
		if len(misplaced) > 0 {
			e.result = &inject.Result{Findings: misplaced}
			e.advice = e.result.Warnings()
		}
		return
	}
	namespace, err := h.Namespaces.Namespace(e.request.Namespace)
	if err != nil {
		return // without its annotations parameters would be wrong that are not
	}
	result, err := injector.Inject(inject.Request{
		Operation: string(admissionv1.Create), Namespace: namespace, Pod: pod, Claims: inject.Claims(e.request.Object),
		OptedIn: !inject.MisplacedOptIn(request.apiVersion(), request.Kind.Kind, request.Object), // by which it may have been called
		Done:    r.Context().Done(),
	})
	if err != nil || gone(r) != nil {
		return
	}
	result.Findings = append(misplaced, result.Findings...)
	e.result = result
	e.advice = append(result.Warnings(), h.misfits(&namespace, pod, result)...)
}

// misfits says what the namespace has against the injected pod alone. Of a pod far larger than any that
// runs it says nothing.
func (h *Handler) misfits(namespace *templates.Namespace, node *tree.Node, result *inject.Result) []string {
	if h.Fit == nil || !result.Adds() {
		return nil
	}
	text := node.String()
	if len(text) > fitSize || strings.Count(text, ",") > fitItems {
		return nil
	}
	pod := []byte(text)
	injected, err := inject.Apply(pod, result.Ops())
	if err != nil {
		return nil
	}
	var limits fit.Limits
	if h.Limits != nil {
		limits = h.Limits.Limits(namespace.Name)
	}
	return h.Fit.Misfits(namespace.Labels, limits, pod, injected)
}

func (r *request) apiVersion() string { return r.Kind.Group + "/" + r.Kind.Version }

// podAt is where a workload that is created or changed has its pod template; else nil.
// What a controller owns was told to who wrote its owner.
func (r *request) podAt() []string {
	if r.SubResource != "" || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update || owned(r.Object) {
		return nil
	}
	path, _ := inject.PodIn(r.apiVersion(), r.Kind.Kind)
	return path
}

// newMetadata reports whether labels or annotations of a workload change, or those of the
// Jobs that it makes.
func (r *request) newMetadata(path []string) bool {
	for depth := range path {
		at, old := r.Object.At(path[:depth]...).Get("metadata"), r.OldObject.At(path[:depth]...).Get("metadata")
		for _, place := range []string{"labels", "annotations"} {
			if at.Get(place).String() != old.Get(place).String() {
				return true
			}
		}
	}
	return false
}

// newTemplate is the pod template of a workload that is created, or that gets
// another one; else nil.
func (r *request) newTemplate(path []string) *tree.Node {
	template := r.Object.At(path...)
	if r.Operation == admissionv1.Update && template.String() == r.OldObject.At(path...).String() {
		return nil // the API server writes equal objects alike
	}
	return template
}

func owned(object *tree.Node) bool {
	return slices.ContainsFunc(object.At("metadata", "ownerReferences").Items(), func(owner tree.Node) bool {
		return owner.Get("controller").Kind() == tree.True
	})
}
