// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"unicode/utf8"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/templates"
)

// maxExpression is the maximum length of an expression, the default of CEL's parser.
const maxExpression = 100_000

// mutatingObjects returns the policy that injects the template, with its bindings. The policy has only one
// mutation, so that the pod gets everything or nothing. The API server evaluates each mutation on
// the result of the previous one, and continues if one fails.
func (m *mutation) mutatingObjects() []runtime.Object {
	conditions := append(m.matchConditions(), admissionregistrationv1.MatchCondition{
		Name:       "not-customized",
		Expression: fmt.Sprintf(`%s[?%q].orValue("") != "true"`, podAnnotations, m.t.Annotation(templates.AnnotationCustomize)),
	})
	m.declareConditions()
	expression := m.patchExpression()
	for _, v := range append(m.variables, admissionregistrationv1.Variable{Expression: expression}) {
		if utf8.RuneCountInString(v.Expression) > maxExpression {
			m.addProblem("spec", "the template adds so much that the expression for it is longer than the API server accepts (%d characters)", maxExpression)
		}
	}
	description := fmt.Sprintf("Injects Pillion's template %s. The policy changes no pod with the annotation %s, and no pod that conflicts with the template. %s",
		m.t.Name, m.t.Annotation(templates.AnnotationCustomize), m.t.Spec.Description)
	return m.policyObjects("pillion-inject-", "MutatingAdmissionPolicy", description, func(own object) runtime.Object {
		return &admissionregistrationv1.MutatingAdmissionPolicy{
			TypeMeta: own.TypeMeta, ObjectMeta: own.ObjectMeta,
			Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				FailurePolicy:      new(admissionregistrationv1.Ignore),
				ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
				MatchConstraints:   own.scope,
				MatchConditions:    conditions,
				Variables:          m.variables,
				Mutations: []admissionregistrationv1.Mutation{{
					PatchType: admissionregistrationv1.PatchTypeJSONPatch,
					JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression},
				}},
			},
		}
	}, func(own object) runtime.Object {
		return &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			TypeMeta: own.TypeMeta, ObjectMeta: own.ObjectMeta,
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: own.policy, MatchResources: own.scope},
		}
	})
}

// patchExpression returns the patch in CEL. Additions to app containers come before insertions, which
// shift their indexes.
func (m *mutation) patchExpression() string {
	var patches []string
	for _, list := range containerLists() {
		if apps := m.appAdditions(list); len(apps) > 0 {
			patches = append(patches, fmt.Sprintf("variables.%s.transformList(i, %s, %s, %s).flatten()", list, appVariable, m.isApp(m.each[0].where), patchOperations(apps)))
		}
	}
	return "!variables.fit ? [] :\n" + strings.Join(append(patches, patchOperations(m.podAdditions())), " +\n")
}

func patchOperations(additions []addition) string {
	all := make([]string, len(additions))
	for i := range additions {
		all[i] = additions[i].operationExpression()
	}
	return "[\n" + strings.Join(all, ",\n") + "\n]"
}
