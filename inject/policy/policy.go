// SPDX-License-Identifier: Apache-2.0

// Package policy says what templates say as admission policies of Kubernetes, which
// the API server evaluates itself: [Validating] checks the final pod, [Mutating]
// injects. Neither needs a server in the path.
//
// A template that cannot be expressed is refused with the reason, never
// approximated. Where a policy cannot tell as exactly as the engine whether a pod
// is fit for injection, it leaves the pod alone.
package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// Options say for which templates, and where.
type Options struct {
	// Templates are the names of those to express; none is all. The others still
	// count: which containers are a template's depends on all of them.
	Templates []string
	// Excluded are namespaces that are left alone, besides the system's.
	Excluded []string
}

func (o *Options) wants(t *templates.Template) bool {
	return len(o.Templates) == 0 || slices.Contains(o.Templates, t.Name)
}

// Problem is why a template cannot be expressed.
type Problem struct {
	Template string `json:"template"`
	Path     string `json:"path"`
	Message  string `json:"message"`
}

// Problems are all that there are, and an error.
type Problems []Problem //nolint:errname // a list of what is wrong, and only then an error

// Error gives one problem a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = fmt.Sprintf("template %s: %s: %s", p[i].Template, p[i].Path, p[i].Message)
	}
	return strings.Join(lines, "\n")
}

// Validating gives a ValidatingAdmissionPolicy with its bindings for each required
// template; the others are left out. The error is [Problems].
func Validating(set *templates.Set, o Options) ([]runtime.Object, error) {
	return each(set, &o, func(b *builder) []runtime.Object {
		if !b.t.Spec.Required {
			return nil
		}
		return b.validating()
	})
}

// Mutating gives a MutatingAdmissionPolicy with its bindings for each template.
// The error is [Problems].
func Mutating(set *templates.Set, o Options) ([]runtime.Object, error) {
	return each(set, &o, func(b *builder) []runtime.Object { return b.mutating() })
}

func each(set *templates.Set, o *Options, express func(*builder) []runtime.Object) ([]runtime.Object, error) {
	var all []runtime.Object
	var problems Problems
	for _, t := range set.Templates {
		if !o.wants(t) {
			continue
		}
		b := &builder{set: set, t: t, excluded: append(inject.SystemNamespaces(), o.Excluded...)}
		all = append(all, express(b)...)
		problems = append(problems, b.problems...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return all, nil
}

// builder puts the policy of one template together.
type builder struct {
	set       *templates.Set
	t         *templates.Template
	excluded  []string
	problems  Problems
	variables []admissionregistrationv1.Variable
	condition string // where matchConditions cannot say it

	conditionParams []string // that the condition reads
}

func (b *builder) problem(path, format string, args ...any) {
	p := Problem{b.t.Name, path, fmt.Sprintf(format, args...)}
	if !slices.Contains(b.problems, p) {
		b.problems = append(b.problems, p)
	}
}

// rewrite gives an expression anew; where that cannot be, there is a problem.
func (b *builder) rewrite(path string, e *templates.Expression) rewritten {
	r, err := rewrite(e)
	if err != nil {
		b.problem(path, "%v", err)
		return rewritten{text: "false", typ: e.Type()}
	}
	return r
}

// variable declares variables.<name>.
func (b *builder) variable(name, expression string) {
	b.variables = append(b.variables, admissionregistrationv1.Variable{Name: name, Expression: expression})
}

// metadata is that of all objects of one template.
func (b *builder) metadata(name, description string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{"app.kubernetes.io/name": "pillion", "app.kubernetes.io/managed-by": "pillion-policy"},
		Annotations: map[string]string{
			templates.Domain + "/template": b.t.Name,
			templates.Domain + "/revision": b.t.Revision,
			"kubernetes.io/description":    description,
		},
	}
}

// constraints are the pods that the policy is for, as the template's selectors say.
func (b *builder) constraints() *admissionregistrationv1.MatchResources {
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

// optIn is one of the two ways in which a pod is looked at. They are the two
// entries of the webhook configurations, and never both match.
type optIn struct {
	suffix     string
	namespaces metav1.LabelSelectorRequirement
	pods       *metav1.LabelSelector
}

func optIns() []optIn {
	return []optIn{
		{
			suffix:     "-namespace",
			namespaces: metav1.LabelSelectorRequirement{Key: inject.LabelInject, Operator: metav1.LabelSelectorOpIn, Values: []string{inject.Enabled}},
			pods:       &metav1.LabelSelector{},
		},
		{
			suffix:     "-pod",
			namespaces: metav1.LabelSelectorRequirement{Key: inject.LabelInject, Operator: metav1.LabelSelectorOpDoesNotExist},
			pods:       &metav1.LabelSelector{MatchLabels: map[string]string{inject.LabelInject: inject.Enabled}},
		},
	}
}

// scope is that of a binding.
func (b *builder) scope(o optIn) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			o.namespaces,
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: b.excluded},
		}},
		ObjectSelector: o.pods,
		MatchPolicy:    new(admissionregistrationv1.Equivalent),
	}
}

func (o optIn) description() string {
	if o.pods.MatchLabels == nil {
		return "For the pods of namespaces that opted in."
	}
	return "For pods that opted in by themselves, where the namespace says nothing."
}
