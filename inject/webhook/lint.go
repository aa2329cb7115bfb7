// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook/authentication"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// PathLint is the path of the webhook that checks template objects.
const PathLint = "/lint"

const decidedDenied = "denied"

// lint denies a template with a mistake, and returns everything else that pillion lint finds as warnings. It allows
// every update that leaves the spec unchanged: a controller that removes a finalizer cannot fix the template.
var lint = &endpoint{
	path:      PathLint,
	name:      "lint",
	caller:    authentication.Validating,
	levels:    podLevel,
	queue:     ofTemplates,
	decisions: okOutcomes(decidedDenied, decidedWarned, decidedSilent),
	about:     (*admissionRequest).changesTemplate,
	answer: func(h *Handler, e *exchange, r *http.Request) (answer, *rejection) {
		request := e.request
		if request.Operation == admissionv1.Delete {
			return linted{warnings: describePods(request.OldObject, "they keep it until they are created again or a rollout updates them")}, goneRejection(r)
		}
		if old := request.OldObject.Get("spec"); old != nil && old.String() == request.Object.Get("spec").String() {
			return linted{}, goneRejection(r)
		}
		all := describePods(request.OldObject, "they keep what they have until they are created again or a rollout updates them")
		text := request.templateJSON()
		if excess := h.exceededLimit(request, text); excess != "" {
			return linted{request: request, problems: problem.Problems{{Path: "spec", Message: excess}}}, goneRejection(r)
		}
		t, problems := templates.ParseObject("", text)
		if len(problems) > 0 {
			return linted{request: request, problems: problems}, goneRejection(r)
		}
		injector := h.injector(e)
		if by := takenBy(t, injector.Set()); by != "" {
			all = append(all, fmt.Sprintf("%s takes precedence, so this one is not used; use another name", by))
		}
		if namespaces := h.replacedIn(t); len(namespaces) > 0 {
			all = append(all, fmt.Sprintf("the %s of this name is no longer used in %s; use another name to keep it", v1alpha1.NamespacedKind, firstNames(namespaces, "namespaces")))
		}
		if why, passing := injector.All().Misreplaced(t); passing {
			all = append(all, fmt.Sprintf("spec.replaces: %s; until then, no pod gets this template", why))
		} else if why != "" {
			return linted{request: request, problems: problem.Problems{{Path: "spec.replaces", Message: why}}}, goneRejection(r)
		}
		if takenBy(t, injector.Set()) == "" {
			all = append(h.recentDenials(r, t), all...)
		}
		if h.Fit == nil {
			return linted{warnings: all}, goneRejection(r)
		}
		trial := h.Fit.TryNew(t, injector.Set())
		for _, misfit := range trial.Problems() {
			problems = append(problems, problem.Problem{Path: "spec", Message: misfit})
		}
		return linted{request: request, problems: problems, warnings: append(all, trial.Warnings()...)}, goneRejection(r)
	},
}

// exceededLimit returns the limit that a template exceeds, or "".
func (h *Handler) exceededLimit(r *admissionRequest, text []byte) string {
	if h.Admits == nil {
		return ""
	}
	of := r.Object.Get("metadata")
	return h.Admits(cmp.Or(of.Get("namespace").Text(), r.Namespace), templateName(of), text)
}

// takenBy returns words for the template that is used instead of a template of the same name: one of the cluster, or
// one of a file. It returns "" if there is none.
func takenBy(t *templates.Template, in *templates.Set) string {
	for _, other := range in.OfCluster().Templates {
		switch {
		case other.Name != t.Name:
		case other.File != strings.ToLower(v1alpha1.ClusterKind)+"/"+t.Name: // see kube.TemplateID
			return "the template of this name in the file " + other.File
		case t.Namespace != "":
			return fmt.Sprintf("the %s of this name", v1alpha1.ClusterKind)
		}
	}
	return ""
}

// recentDenials returns warnings about recent pods that a template would deny if they were created again.
func (h *Handler) recentDenials(r *http.Request, t *templates.Template) []string {
	trial := &trial{use: h.Use, namespace: h.Namespaces.Namespace}
	h.recent.tryTemplate(r.Context(), t, trial)
	if len(trial.denied) == 0 {
		return nil
	}
	return []string{
		fmt.Sprintf("%d of %d pods that were created lately would be denied if they were created again: %s", len(trial.denied), trial.tried, firstNames(trial.denied, "others")),
		"the reason for the last one: " + trial.why,
	}
}

// maxNames is how many namespaces or owners of pods a warning names.
const maxNames = 5

// firstNames returns the first names of a list, and the number of the others.
func firstNames(names []string, what string) string {
	if more := len(names) - maxNames; more > 0 {
		return fmt.Sprintf("%s and %d more %s", strings.Join(names[:maxNames], ", "), more, what)
	}
	return strings.Join(names, ", ")
}

// replacedIn returns the namespaces whose template of the same name a template of the cluster takes out of use.
func (h *Handler) replacedIn(t *templates.Template) (namespaces []string) {
	if h.All == nil {
		return nil
	}
	for _, other := range h.All().Templates {
		if t.Namespace == "" && other.Namespace != "" && other.Name == t.Name {
			namespaces = append(namespaces, other.Namespace)
		}
	}
	return namespaces
}

// changesTemplate reports whether the request creates, changes or deletes a template.
func (r *admissionRequest) changesTemplate() bool {
	return r.SubResource == "" && r.Resource.Group == v1alpha1.Group &&
		(r.Resource.Resource == v1alpha1.ClusterResource || r.Resource.Resource == v1alpha1.NamespacedResource) &&
		(r.Operation == admissionv1.Create || r.Operation == admissionv1.Update || r.Operation == admissionv1.Delete)
}

// templateName returns the name of a template, given its metadata. If the API server will generate the name later, it returns a name
// of that form.
func templateName(metadata *jsontree.Node) string {
	return cmp.Or(metadata.Get("name").Text(), metadata.Get("generateName").Text()+"00000")
}

// templateJSON returns the template in the request, with name and namespace as its only metadata.
func (r *admissionRequest) templateJSON() []byte {
	of := r.Object.Get("metadata")
	name := templateName(of)
	b := jsontree.AppendQuoted([]byte(`{"apiVersion":`), r.Object.Get("apiVersion").Text())
	b = jsontree.AppendQuoted(append(b, `,"kind":`...), r.Object.Get("kind").Text())
	b = jsontree.AppendQuoted(append(b, `,"metadata":{"name":`...), name)
	if namespace := cmp.Or(of.Get("namespace").Text(), r.Namespace); namespace != "" {
		b = jsontree.AppendQuoted(append(b, `,"namespace":`...), namespace)
	}
	b = append(b, '}')
	if spec := r.Object.Get("spec"); spec != nil {
		b = spec.AppendTo(append(b, `,"spec":`...))
	}
	return append(b, '}')
}

// describePods returns how many pods have a template, by its status, or nothing if none has.
func describePods(object *jsontree.Node, what string) []string {
	pods := object.Get("status").Get("pods")
	current, outdated := pods.Get("current").String(), pods.Get("outdated").String()
	if current+outdated == "" || current+outdated == "00" {
		return nil
	}
	former := ""
	if outdated != "0" {
		former = fmt.Sprintf(", and %s with former content", outdated)
	}
	return []string{fmt.Sprintf("pods that have this template: %s%s; %s", current, former, what)}
}

// linted is the answer about a template.
type linted struct {
	request  *admissionRequest
	problems problem.Problems
	warnings []string
}

func (l linted) decision() string {
	switch {
	case len(l.problems) > 0:
		return decidedDenied
	case len(l.warnings) > 0:
		return decidedWarned
	}
	return decidedSilent
}

// maxCauses limits the problems that a denial contains.
const maxCauses = 50

// fillResponse denies the template with one cause for each problem. For the reason Invalid, kubectl prints each cause in a line.
func (l linted) fillResponse(_ *exchange, response *admissionv1.AdmissionResponse, notes []inject.Note) []inject.Note {
	if len(l.problems) == 0 {
		response.Warnings = clipWarnings(l.warnings, "")
		return notes
	}
	response.Allowed = false
	var causes []metav1.StatusCause
	var sentences []string
	for i := range l.problems[:min(len(l.problems), maxCauses)] {
		p := &l.problems[i]
		message := clipLine(p.Message, maxSentence)
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: clipLine(cmp.Or(p.Path, "spec"), maxName), Message: message})
		sentences = append(sentences, clipLine(strings.TrimPrefix(p.Path+": "+message, ": "), maxSentence))
	}
	if more := len(l.problems) - len(causes); more > 0 {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Message: fmt.Sprintf("and %d more problems", more)})
	}
	response.Result = &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: clipLine(strings.Join(sentences, "; "), maxSentence),
		Details: &metav1.StatusDetails{Name: l.request.Name, Group: l.request.Kind.Group, Kind: l.request.Kind.Kind, Causes: causes},
	}
	return notes
}

func (l linted) pod() *inject.Identity        { return &inject.Identity{} }
func (l linted) decisions() []inject.Decision { return nil }
func (l linted) findings() []inject.Finding   { return nil }
