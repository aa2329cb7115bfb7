// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/fit"
	"github.com/pillion-dev/pillion/templates"
)

const webhookAdvise = "advise"

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
func (h *Handler) advise(e *exchange) {
	pod := e.request.newTemplate()
	if pod == nil {
		return
	}
	namespace, err := h.Namespaces.Namespace(e.request.Namespace)
	if err != nil {
		return // without its annotations parameters would be wrong that are not
	}
	result, err := h.Injector().Inject(inject.Request{
		Operation: string(admissionv1.Create), OptedIn: true, Namespace: namespace, Object: pod,
	})
	if err != nil {
		return
	}
	e.result = result
	e.advice = append(result.Warnings(), h.misfits(&namespace, pod, result)...)
}

// misfits says what the namespace has against the injected pod alone.
func (h *Handler) misfits(namespace *templates.Namespace, pod []byte, result *inject.Result) []string {
	if h.Fit == nil || len(result.Ops) == 0 {
		return nil
	}
	injected, err := inject.Apply(pod, result.Ops)
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
func (r *request) newTemplate() jsontext.Value {
	if r.SubResource != "" || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return nil
	}
	path, ok := inject.PodIn(r.Kind.Group+"/"+r.Kind.Version, r.Kind.Kind)
	if !ok || path == nil || owned(r.Object) {
		return nil
	}
	template := at(r.Object, path)
	if r.Operation == admissionv1.Update && bytes.Equal(template, at(r.OldObject, path)) {
		return nil // the API server writes equal objects alike
	}
	return template
}

func owned(object jsontext.Value) bool {
	var o struct {
		Metadata struct {
			OwnerReferences []struct {
				Controller bool `json:"controller"`
			} `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if json.Unmarshal(object, &o, jsontext.AllowDuplicateNames(true)) != nil {
		return true // or whatever it is
	}
	for _, owner := range o.Metadata.OwnerReferences {
		if owner.Controller {
			return true
		}
	}
	return false
}

// at is the value at a path of names, or nil.
func at(value jsontext.Value, path []string) jsontext.Value {
	for _, name := range path {
		var members map[string]jsontext.Value
		if json.Unmarshal(value, &members, jsontext.AllowDuplicateNames(true)) != nil {
			return nil
		}
		value = members[name]
	}
	return value
}
