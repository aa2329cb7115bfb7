// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/pillion-dev/pillion/inject/report/explain"
)

// Mutator is another webhook or policy that may change pods when they are created.
type Mutator struct {
	Kind string `json:"kind"` // MutatingAdmissionPolicy or MutatingWebhookConfiguration
	Name string `json:"name"`
	// Webhook is the entry of a webhook configuration.
	Webhook string `json:"webhook,omitempty"`
	// Runs is before or after Pillion. The API server runs policies first, then webhooks sorted
	// by the names of their configurations.
	Runs               string `json:"runs"`
	ReinvocationPolicy string `json:"reinvocationPolicy"`
	// Namespaces is the number of inspected namespaces that its selectors match.
	Namespaces int `json:"namespaces"`
	// Effect describes the effect of that order.
	Effect string `json:"effect"`
}

// Title returns the name for users.
func (m *Mutator) Title() string { return webhookTitle(m.Name, m.Webhook) }

func webhookTitle(name, webhook string) string {
	if webhook != "" {
		return fmt.Sprintf("webhook %s of %s", webhook, name)
	}
	return "policy " + name
}

// The kinds of mutators.
const (
	policyKind  = "MutatingAdmissionPolicy"
	webhookKind = "MutatingWebhookConfiguration"
)

// Mutation has the installed webhooks and policies that change objects.
type Mutation struct {
	Own      string // the name of Pillion's own configuration
	Webhooks []admissionregistrationv1.MutatingWebhookConfiguration
	Policies []admissionregistrationv1.MutatingAdmissionPolicy
	Bindings []admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// Mutators returns the webhooks and policies that may change pods when they are created in
// namespaces with these labels, in the order in which they run. It omits Pillion's own.
func (m *Mutation) Mutators(namespaces []map[string]string) []Mutator {
	bound := map[string][]*admissionregistrationv1.MatchResources{}
	for i := range m.Bindings {
		b := &m.Bindings[i].Spec
		bound[b.PolicyName] = append(bound[b.PolicyName], b.MatchResources)
	}
	var all []Mutator
	for i := range m.Policies {
		p := &m.Policies[i]
		if n, ok := countReached(p.Spec.MatchConstraints, bound[p.Name], namespaces); ok && !isOwnPolicy(p.Labels) {
			all = append(all, Mutator{Kind: policyKind, Name: p.Name, Runs: "before", ReinvocationPolicy: string(p.Spec.ReinvocationPolicy), Namespaces: n})
		}
	}
	for i := range m.Webhooks {
		c, runs := &m.Webhooks[i], "before"
		if c.Name > m.Own {
			runs = "after"
		}
		for k := range c.Webhooks {
			if w := &c.Webhooks[k]; c.Name != m.Own && slices.ContainsFunc(w.Rules, explain.CreatesPods) {
				again := string(ptr.Deref(w.ReinvocationPolicy, ""))
				all = append(all, Mutator{Kind: webhookKind, Name: c.Name, Webhook: w.Name, Runs: runs, ReinvocationPolicy: again, Namespaces: countMatching(namespaces, w.NamespaceSelector)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Mutator) int { // policies first
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	again := m.reinvokesPillion()
	for i := range all {
		all[i].ReinvocationPolicy = cmp.Or(all[i].ReinvocationPolicy, string(admissionregistrationv1.NeverReinvocationPolicy))
		all[i].Effect = all[i].orderEffect(again)
	}
	return all
}

// reinvokesPillion reports whether the API server calls Pillion again after another webhook changed a pod.
func (m *Mutation) reinvokesPillion() bool {
	for i := range m.Webhooks {
		c := &m.Webhooks[i]
		if c.Name == m.Own {
			return !slices.ContainsFunc(c.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
				return w.ReinvocationPolicy == nil || *w.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy
			})
		}
	}
	return false
}

// OwnPolicyLabel is the label of policies that pillion policy wrote.
const OwnPolicyLabel = "app.kubernetes.io/managed-by=pillion-policy"

// OwnPolicies returns the names of policies that pillion policy wrote.
func (m *Mutation) OwnPolicies() []string {
	var names []string
	for i := range m.Policies {
		if isOwnPolicy(m.Policies[i].Labels) {
			names = append(names, m.Policies[i].Name)
		}
	}
	return names
}

func isOwnPolicy(labels map[string]string) bool {
	key, value, _ := strings.Cut(OwnPolicyLabel, "=")
	return labels[key] == value
}

// countReached returns how many of the namespaces a policy and its binding select. The result ok
// reports whether the policy matches creations of pods and has a binding.
func countReached(match *admissionregistrationv1.MatchResources, bound []*admissionregistrationv1.MatchResources, namespaces []map[string]string) (n int, ok bool) {
	if len(bound) == 0 || match == nil || !resourceRules(match.ResourceRules) || resourceRules(match.ExcludeResourceRules) {
		return 0, false
	}
	for _, set := range namespaces {
		if selectorMatches(match.NamespaceSelector, set) && slices.ContainsFunc(bound, func(b *admissionregistrationv1.MatchResources) bool {
			return b == nil || selectorMatches(b.NamespaceSelector, set)
		}) {
			n++
		}
	}
	return n, true
}

func resourceRules(all []admissionregistrationv1.NamedRuleWithOperations) bool {
	return slices.ContainsFunc(all, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return len(r.ResourceNames) == 0 && explain.CreatesPods(r.RuleWithOperations)
	})
}

func countMatching(namespaces []map[string]string, selector *metav1.LabelSelector) int {
	n := 0
	for _, set := range namespaces {
		if selectorMatches(selector, set) {
			n++
		}
	}
	return n
}

// selectorMatches reports whether the selector matches the labels. No selector matches everything.
func selectorMatches(selector *metav1.LabelSelector, set map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(set))
}

// LastWord returns the titles of the webhooks and policies that may change pods of a namespace
// with these labels after the last call of Pillion.
func (m *Mutation) LastWord(namespace map[string]string) []string {
	var titles []string
	again := m.reinvokesPillion()
	for _, one := range m.Mutators([]map[string]string{namespace}) {
		after, invoked := one.Runs == "after", one.ReinvocationPolicy == string(admissionregistrationv1.IfNeededReinvocationPolicy)
		if one.Namespaces > 0 && (after && invoked || !again && (after || invoked)) {
			titles = append(titles, "the "+one.Title())
		}
	}
	return titles
}

// Changes reports whether other webhooks or policies may change new pods of a namespace with these
// labels.
func (m *Mutation) Changes(namespace map[string]string) bool {
	return slices.ContainsFunc(m.Mutators([]map[string]string{namespace}), func(one Mutator) bool { return one.Namespaces > 0 })
}

// orderEffect describes the effect of the order on sidecars. The API server calls a webhook with a
// reinvocationPolicy of IfNeeded once more if another one changed the pod after it.
func (m *Mutator) orderEffect(pillionAgain bool) string {
	again := m.ReinvocationPolicy == string(admissionregistrationv1.IfNeededReinvocationPolicy)
	switch {
	case m.Runs == "before" && !again:
		return "Pillion sees its changes; it does not see the sidecars"
	case m.Runs == "before" && pillionAgain:
		return "it is called again after the sidecars are added; if it changes the pod then, Pillion is called again too"
	case m.Runs == "before":
		return "it is called again after the sidecars are added; Pillion does not repair its changes then"
	case !pillionAgain:
		return "it sees the sidecars; Pillion does not repair its changes"
	case again:
		return "it sees the sidecars; Pillion is called again after its first call, but not after its second"
	}
	return "it sees the sidecars; Pillion is called again if it changes the pod"
}
