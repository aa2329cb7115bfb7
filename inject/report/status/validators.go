// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/pillion-dev/pillion/inject/report/explain"
)

// Validator is another webhook or policy that validates new pods.
type Validator struct {
	Kind string `json:"kind"` // ValidatingAdmissionPolicy or ValidatingWebhookConfiguration
	Name string `json:"name"`
	// Webhook is the entry of a webhook configuration.
	Webhook string `json:"webhook,omitempty"`
	// FailurePolicy is what the API server does with a pod that the validator cannot check: Fail or Ignore.
	FailurePolicy string `json:"failurePolicy"`
	// Namespaces is the number of inspected namespaces that its selectors match.
	Namespaces int `json:"namespaces"`
}

// Validation has the installed webhooks and policies that validate objects.
type Validation struct {
	Own      string // the name of Pillion's own configuration
	Webhooks []admissionregistrationv1.ValidatingWebhookConfiguration
	Policies []admissionregistrationv1.ValidatingAdmissionPolicy
	Bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// Validators returns the webhooks and policies that validate new pods, sorted by kind and name. It
// omits Pillion's own. The order has no effect.
func (v *Validation) Validators(namespaces []map[string]string) []Validator {
	bound := map[string][]*admissionregistrationv1.MatchResources{}
	for i := range v.Bindings {
		b := &v.Bindings[i].Spec
		bound[b.PolicyName] = append(bound[b.PolicyName], b.MatchResources)
	}
	all := []Validator{}
	for i := range v.Policies {
		p := &v.Policies[i]
		if n, ok := countReached(p.Spec.MatchConstraints, bound[p.Name], namespaces); ok && !isOwnPolicy(p.Labels) {
			all = append(all, Validator{"ValidatingAdmissionPolicy", p.Name, "", explain.FailurePolicy(p.Spec.FailurePolicy), n})
		}
	}
	for i := range v.Webhooks {
		c := &v.Webhooks[i]
		for k := range c.Webhooks {
			if w := &c.Webhooks[k]; c.Name != v.Own && slices.ContainsFunc(w.Rules, explain.CreatesPods) {
				all = append(all, Validator{"ValidatingWebhookConfiguration", c.Name, w.Name, explain.FailurePolicy(w.FailurePolicy), countMatching(namespaces, w.NamespaceSelector)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Validator) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return all
}

// Loop is a webhook that is called for Pillion's pods, while Pillion is called for the pods of
// that webhook's namespace. If neither runs, neither can start.
type Loop struct{ Webhook, Namespace, system string }

// String returns a warning.
func (l *Loop) String() string {
	return fmt.Sprintf("The %s and Pillion are called for each other's pods: if neither answers, neither can start. "+
		"Exclude the namespace %s from Pillion, or %s from the other one.", l.Webhook, l.Namespace, l.system)
}

// Loops returns the loops in which both webhooks have failurePolicy Fail. System is the namespace of
// Pillion's pods. The function labels returns the labels of a namespace, and whether they are
// known.
func Loops(m *Mutation, v *Validation, system string, labels func(namespace string) (map[string]string, bool)) (loops []Loop) {
	var entries []explain.Entry
	for i := range m.Webhooks {
		entries = append(entries, explain.MutatingEntries(&m.Webhooks[i])...)
	}
	for i := range v.Webhooks {
		entries = append(entries, explain.ValidatingEntries(&v.Webhooks[i])...)
	}
	failsClosed := func(e *explain.Entry, namespace map[string]string) bool {
		w := e.Match(namespace, []byte(`{"metadata":{},"spec":{}}`))
		return w.Called && w.FailurePolicy == string(admissionregistrationv1.Fail)
	}
	here, known := labels(system)
	for i := range entries {
		e := &entries[i]
		if !known || e.Configuration == m.Own || e.Service == nil || !failsClosed(e, here) {
			continue
		}
		there, ok := labels(e.Service.Namespace)
		if ok && slices.ContainsFunc(entries, func(own explain.Entry) bool { return own.Configuration == m.Own && failsClosed(&own, there) }) {
			loops = append(loops, Loop{webhookTitle(e.Configuration, e.Name), e.Service.Namespace, system})
		}
	}
	return loops
}
