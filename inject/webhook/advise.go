// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/webhook/authentication"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// PathAdvise is the path of the webhook that warns the authors of workloads.
const PathAdvise = "/advise"

const decidedSilent = "silent"

// fitSize and fitItems bound the pods that are compared with the namespace's limits, in bytes and in commas. They bound memory: as a
// Go value of the API, an item of two bytes takes up to 2 KB, and twice as much while a list grows.
const fitSize, fitItems = 1 << 20, 10_000

// advise warns the author of a workload about what will be wrong with its pods. The author does not see the warnings about the
// pods themselves: a controller creates the pods, and drops them. It also warns the author of a namespace whose labels look as if
// they opted in, and do not. The endpoint never denies, and reports nothing about objects that it does not understand.
//
// It is not known yet which user will create the pods, and whether in a dry run. So
// expressions see neither the user nor the dry run, as on the command line.
var advise = &endpoint{
	path:      PathAdvise,
	name:      "advise",
	caller:    authentication.Advising,
	levels:    podLevel,
	queue:     large, // API types take many times the memory of the body
	decisions: okOutcomes(decidedWarned, decidedSilent),
	findings:  []inject.Code{inject.CodeUnknownParameter},
	general:   append([]inject.Code{inject.CodeMisplaced}, unknown...),
	about:     func(r *admissionRequest) bool { return r.isNamespace() || r.podAt() != nil },
	answer: func(h *Handler, e *exchange, r *http.Request) (answer, *rejection) {
		if e.request.isNamespace() {
			return h.adviseOnNamespace(e), goneRejection(r)
		}
		return h.adviseOnWorkload(e, r)
	},
}

// adviseOnNamespace returns what is wrong with the labels and annotations of a namespace, or nil.
func (h *Handler) adviseOnNamespace(e *exchange) answer {
	metadata := e.request.Object.Get("metadata")
	if !e.request.newMetadata([]string{"metadata"}) || len(metadata.Get("labels").Members())+len(metadata.Get("annotations").Members()) > maxNamespaceKeys {
		return nil
	}
	ns := request.Namespace{
		Name: metadata.Get("name").Text(), Known: true,
		Labels: textsOf(metadata.Get("labels")), Annotations: textsOf(metadata.Get("annotations")),
	}
	var findings []inject.Finding
	for _, sentence := range h.injector(e).For(ns.Name).NamespaceWarnings(ns) {
		findings = append(findings, inject.Finding{Code: inject.CodeMisplaced, Message: sentence, Mode: v1alpha1.Warn})
	}
	return adviceAbout(findings)
}

// maxNamespaceKeys is far more than the labels and annotations of a real namespace.
const maxNamespaceKeys = 1000

// textsOf returns the members of an object that are strings.
func textsOf(object *jsontree.Node) map[string]string {
	texts := map[string]string{}
	members := object.Members()
	for i := range members {
		texts[members[i].Name()] = members[i].Text()
	}
	return texts
}

// adviseOnWorkload returns what will be wrong with the pods of a workload, or nil.
func (h *Handler) adviseOnWorkload(e *exchange, r *http.Request) (answer, *rejection) {
	path := e.request.podAt()
	injector, request := h.injector(e), e.request
	var misplaced []inject.Finding
	pod := request.newTemplate(path)
	if pod != nil || request.newMetadata(path) {
		misplaced = injector.Misplaced(request.apiVersion(), request.Kind.Kind, request.Object)
	}
	if pod == nil {
		return adviceAbout(misplaced), goneRejection(r)
	}
	namespace, err := h.Namespaces.Namespace(e.request.Namespace)
	if err != nil { // parameters that depend on its annotations would appear invalid
		return nil, goneRejection(r)
	}
	// Without known labels, no warning is better than a false one.
	if _, labelled := namespace.Labels[inject.LabelInject]; !labelled && inject.SeemsToOptIn(request.Object, path) {
		return adviceAbout(append(misplaced, injector.OwnKeyMistakes(&namespace, pod)...)), goneRejection(r)
	}
	about := inject.Request{
		Operation: string(admissionv1.Create), Namespace: namespace, Pod: pod, Claims: workloads.Claims(e.request.Object), Owner: workloads.OwnerOf(request.Kind.Kind, request.Object),
		OptedIn: true,
		Done:    r.Context().Done(),
	}
	result, err := injector.Inject(about)
	if err != nil || goneRejection(r) != nil {
		return nil, goneRejection(r)
	}
	result.Findings = append(misplaced, result.Findings...)
	misfits, effects := h.foreseeEffects(&namespace, request.Kind.Kind, pod, result)
	return advice{injected{result}, append(result.Warnings(), misfits...), effects}, goneRejection(r)
}

// adviceAbout returns an answer that consists of findings, or nil if there are none.
func adviceAbout(findings []inject.Finding) answer {
	if len(findings) == 0 {
		return nil
	}
	result := &inject.Result{Findings: findings}
	return advice{injected{result}, result.Warnings(), nil}
}

// advice is the answer about the pods of a workload.
type advice struct {
	injected
	sentences []string // about what is wrong
	effects   []string // of the additions on the rest of the pod; the decision does not depend on them
}

func (a advice) decision() string {
	if len(a.sentences) > 0 {
		return decidedWarned
	}
	return decidedSilent
}

func (a advice) fillResponse(_ *exchange, response *admissionv1.AdmissionResponse, notes []inject.Note) []inject.Note {
	response.Warnings = clipWarnings(slices.Concat(a.sentences, a.effects), "")
	return notes
}

// foreseeEffects returns why the injected pod does not fit into the namespace although the original pod does (Pod Security, limits,
// quotas), and what the additions change for the rest of the pod. It returns nothing for pods that are far larger than real ones.
func (h *Handler) foreseeEffects(namespace *request.Namespace, kind string, node *jsontree.Node, result *inject.Result) (misfits, effects []string) {
	if h.Fit == nil || !result.Adds() {
		return nil, nil
	}
	text := node.String()
	if len(text) > fitSize || strings.Count(text, ",") > fitItems {
		return nil, nil
	}
	var ofNamespace limits.Limits
	if h.Limits != nil {
		ofNamespace = h.Limits.Limits(namespace.Name)
	}
	injected := result.InjectedJSON()
	for _, effect := range limits.EffectsOf([]byte(text), injected, kind) {
		effects = append(effects, "effect: "+effect)
	}
	return h.Fit.Misfits(namespace.Labels, ofNamespace, []byte(text), injected), effects
}

func (r *admissionRequest) apiVersion() string { return r.Kind.Group + "/" + r.Kind.Version }

// isNamespace reports whether the request creates or updates a namespace.
func (r *admissionRequest) isNamespace() bool {
	return r.SubResource == "" && r.Kind == kind{Version: "v1", Kind: "Namespace"} && (r.Operation == admissionv1.Create || r.Operation == admissionv1.Update)
}

// podAt returns the path of the pod template if the request creates or updates a workload, or else nil. It
// returns nil for a workload that a controller owns, for example a ReplicaSet: the author of the owner was warned already.
func (r *admissionRequest) podAt() []string {
	if r.SubResource != "" || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update || hasController(r.Object) {
		return nil
	}
	path, _ := workloads.PodIn(r.apiVersion(), r.Kind.Kind)
	return path
}

// newMetadata reports whether the request changes labels or annotations in the metadata of a workload, or of the Jobs that a CronJob
// creates. Path is that of the pod template, whose own metadata does not count.
func (r *admissionRequest) newMetadata(path []string) bool {
	for depth := range path {
		at, old := r.Object.At(path[:depth]...).Get("metadata"), r.OldObject.At(path[:depth]...).Get("metadata")
		for _, field := range []string{"labels", "annotations"} {
			if at.Get(field).String() != old.Get(field).String() {
				return true
			}
		}
	}
	return false
}

// newTemplate returns the workload's pod template, or nil if an update does not change it.
func (r *admissionRequest) newTemplate(path []string) *jsontree.Node {
	template := r.Object.At(path...)
	if r.Operation == admissionv1.Update && template.String() == r.OldObject.At(path...).String() {
		return nil // the API server writes equal objects alike
	}
	return template
}

func hasController(object *jsontree.Node) bool {
	return slices.ContainsFunc(object.At("metadata", "ownerReferences").Items(), func(owner jsontree.Node) bool {
		return owner.Get("controller").Kind() == jsontree.True
	})
}
