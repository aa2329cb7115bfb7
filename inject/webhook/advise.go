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
	pod := e.request.newTemplate()
	if pod == nil {
		return
	}
	namespace, err := h.Namespaces.Namespace(e.request.Namespace)
	if err != nil {
		return // without its annotations parameters would be wrong that are not
	}
	result, err := h.Injector().Inject(inject.Request{
		Operation: string(admissionv1.Create), OptedIn: true, Namespace: namespace, Pod: pod, Claims: inject.Claims(e.request.Object),
		Done: r.Context().Done(),
	})
	if err != nil || gone(r) != nil {
		return
	}
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

// newTemplate is the pod template of a workload that is created, or that gets
// another one; else nil. What a controller owns was told to who wrote its owner.
func (r *request) newTemplate() *tree.Node {
	if r.SubResource != "" || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return nil
	}
	path, ok := inject.PodIn(r.Kind.Group+"/"+r.Kind.Version, r.Kind.Kind)
	if !ok || path == nil || owned(r.Object) {
		return nil
	}
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
