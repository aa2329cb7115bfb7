// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// object has the common data of a policy and its bindings.
type object struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	policy string // its name
	scope  *admissionregistrationv1.MatchResources
}

// policyObjects returns a policy and its bindings.
func (b *builder) policyObjects(prefix, kind, description string, policy, binding func(object) runtime.Object) []runtime.Object {
	own := func(kind, suffix, description string, scope *admissionregistrationv1.MatchResources) object {
		return object{
			metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: kind},
			metav1.ObjectMeta{
				Name:   prefix + b.t.Name + suffix,
				Labels: map[string]string{"app.kubernetes.io/name": "pillion", "app.kubernetes.io/managed-by": "pillion-policy"},
				Annotations: map[string]string{
					templates.Domain + "/template": b.t.Name,
					templates.Domain + "/revision": b.t.Revision,
					"kubernetes.io/description":    strings.TrimSpace(description),
				},
			},
			prefix + b.t.Name, scope,
		}
	}
	scope := func(operator metav1.LabelSelectorOperator, namespaces []string, pods map[string]string) *admissionregistrationv1.MatchResources {
		return &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: inject.LabelInject, Operator: operator, Values: namespaces},
				{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: b.excluded},
			}},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: pods},
			MatchPolicy:    new(admissionregistrationv1.Equivalent),
		}
	}
	return []runtime.Object{ // like the two entries of the webhook configurations, the bindings never both match
		policy(own(kind, "", description, b.matchConstraints())),
		binding(own(kind+"Binding", "-namespace", "For the pods of namespaces that opted in.",
			scope(metav1.LabelSelectorOpIn, []string{inject.Enabled}, nil))),
		binding(own(kind+"Binding", "-pod", "For pods that opted in themselves, in namespaces without the label.",
			scope(metav1.LabelSelectorOpDoesNotExist, nil, map[string]string{inject.LabelInject: inject.Enabled}))),
	}
}

// matchConstraints returns the template's selectors for pods.
func (b *builder) matchConstraints() *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
				Scope: new(admissionregistrationv1.NamespacedScope),
			},
		}}},
		NamespaceSelector: cmp.Or(b.t.Spec.Match.NamespaceSelector, &metav1.LabelSelector{}),
		ObjectSelector:    cmp.Or(b.t.Spec.Match.PodSelector, &metav1.LabelSelector{}),
		MatchPolicy:       new(admissionregistrationv1.Equivalent),
	}
}
