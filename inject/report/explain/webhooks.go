// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/pillion-dev/pillion/templates"
)

// The types of webhooks. Shadow is a validating webhook that only reports what would happen to
// the pod.
const (
	Mutating   = "mutating"
	Validating = "validating"
	Shadow     = "shadow"
)

// ofShadow is the suffix of the names of [Shadow] webhooks.
const ofShadow = ".shadow." + templates.Domain

// Webhook is one entry of a webhook configuration, and whether the API server calls it for the
// pod.
type Webhook struct {
	Configuration string `json:"configuration"`
	Name          string `json:"name"`
	Type          string `json:"type"` // mutating, validating or shadow
	Called        bool   `json:"called"`
	Reason        string `json:"reason"` // one sentence
	// FailurePolicy is what the API server does if the webhook does not answer: Fail or Ignore.
	FailurePolicy string `json:"failurePolicy"`
}

// Entry has the fields of a webhook configuration's entry that decide about a call.
type Entry struct {
	Webhook // without Called and Reason

	Service           *admissionregistrationv1.ServiceReference // nil if the API server calls a URL
	rules             []admissionregistrationv1.RuleWithOperations
	namespaceSelector *metav1.LabelSelector
	objectSelector    *metav1.LabelSelector
	conditions        []condition
}

// condition is a matchCondition, compiled once for all pods.
type condition struct {
	name    string
	program cel.Program
	err     error
}

// MutatingEntries returns the webhooks of a configuration.
func MutatingEntries(c *admissionregistrationv1.MutatingWebhookConfiguration) []Entry {
	var all []Entry
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		webhook := Webhook{Configuration: c.Name, Name: w.Name, Type: Mutating, FailurePolicy: FailurePolicy(w.FailurePolicy)}
		all = append(all, Entry{webhook, w.ClientConfig.Service, w.Rules, w.NamespaceSelector, w.ObjectSelector, compileConditions(w.MatchConditions)})
	}
	return all
}

// ValidatingEntries returns the webhooks of a configuration. Those with the suffix of a shadow webhook have the type [Shadow].
func ValidatingEntries(c *admissionregistrationv1.ValidatingWebhookConfiguration) []Entry {
	var all []Entry
	for i := range c.Webhooks {
		w, typ := &c.Webhooks[i], Validating
		if strings.HasSuffix(w.Name, ofShadow) {
			typ = Shadow
		}
		webhook := Webhook{Configuration: c.Name, Name: w.Name, Type: typ, FailurePolicy: FailurePolicy(w.FailurePolicy)}
		all = append(all, Entry{webhook, w.ClientConfig.Service, w.Rules, w.NamespaceSelector, w.ObjectSelector, compileConditions(w.MatchConditions)})
	}
	return all
}

// FailurePolicy returns the value of a failurePolicy, or its default.
func FailurePolicy(p *admissionregistrationv1.FailurePolicyType) string {
	return string(ptr.Deref(p, admissionregistrationv1.Fail))
}

// isTypeCalled reports whether the API server calls any webhook of the type.
func isTypeCalled(all []Webhook, typ string) bool {
	return slices.ContainsFunc(all, func(w Webhook) bool { return w.Type == typ && w.Called })
}

// Match returns the webhook with Called and Reason: whether the API server calls it, and why, when the pod is created in a
// namespace with these labels. It checks in the same order as the API server: rules,
// selectors, matchConditions.
func (e *Entry) Match(namespace map[string]string, pod []byte) Webhook {
	w := e.Webhook
	w.Called, w.Reason = e.matchPod(namespace, pod)
	return w
}

func (e *Entry) matchPod(namespace map[string]string, pod []byte) (called bool, reason string) {
	if !slices.ContainsFunc(e.rules, CreatesPods) {
		return false, "its rules do not match the creation of pods"
	}
	var meta struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(pod, &meta); err != nil {
		return false, "the pod's metadata cannot be read: " + err.Error()
	}
	for _, s := range []struct {
		selector *metav1.LabelSelector
		labels   map[string]string
		what     string
	}{
		{e.namespaceSelector, namespace, "the namespace"},
		{e.objectSelector, meta.Metadata.Labels, "the pod"},
	} {
		selector, err := metav1.LabelSelectorAsSelector(s.selector)
		switch {
		case s.selector == nil: // it matches everything
		case err != nil:
			return false, fmt.Sprintf("its selector for %s is invalid: %v", s.what, err)
		}
		requirements, _ := selector.Requirements()
		for i := range requirements {
			if !requirements[i].Matches(labels.Set(s.labels)) {
				return false, fmt.Sprintf("the labels of %s do not match %s", s.what, &requirements[i])
			}
		}
	}
	if len(e.conditions) == 0 {
		return e.evaluateConditions(nil)
	}
	var object map[string]any
	if err := json.Unmarshal(pod, &object); err != nil {
		return false, "the pod is not JSON"
	}
	return e.evaluateConditions(object)
}

// CreatesPods reports whether a rule matches the creation of pods.
func CreatesPods(r admissionregistrationv1.RuleWithOperations) bool {
	has := func(list []string, names ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(names, s) })
	}
	operations := slices.ContainsFunc(r.Operations, func(o admissionregistrationv1.OperationType) bool {
		return o == admissionregistrationv1.Create || o == admissionregistrationv1.OperationAll
	})
	scope := r.Scope == nil || *r.Scope != admissionregistrationv1.ClusterScope
	return operations && scope && has(r.APIGroups, "", "*") && has(r.APIVersions, "v1", "*") && has(r.Resources, "pods", "*", "*/*")
}

// evaluateConditions evaluates the matchConditions. If one is false, the API server does not call the webhook. If none is false, but
// one cannot be evaluated, the failurePolicy decides.
func (e *Entry) evaluateConditions(object map[string]any) (called bool, reason string) {
	failed := ""
	for i := range e.conditions {
		c := &e.conditions[i]
		ok, err := c.evaluateFor(object)
		switch {
		case err != nil:
			failed = fmt.Sprintf("its matchCondition %s cannot be evaluated here: %v", c.name, err)
		case !ok:
			return false, fmt.Sprintf("its matchCondition %s is false", c.name)
		}
	}
	switch {
	case failed == "":
		return true, "its rules, selectors and conditions match"
	case e.FailurePolicy == string(admissionregistrationv1.Ignore):
		return false, failed
	}
	return true, failed
}

func compileConditions(all []admissionregistrationv1.MatchCondition) []condition {
	conditions := make([]condition, len(all))
	for i := range all {
		program, err := programOf(all[i].Expression)
		conditions[i] = condition{all[i].Name, program, err}
	}
	return conditions
}

func programOf(expression string) (cel.Program, error) {
	env, err := cel.NewEnv(cel.OptionalTypes(), ext.Strings(), ext.Sets(), ext.Lists(),
		cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType), cel.Variable("request", cel.DynType))
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	return env.Program(checked)
}

func (c *condition) evaluateFor(object map[string]any) (bool, error) {
	if c.err != nil {
		return false, c.err
	}
	request := map[string]any{"operation": "CREATE", "dryRun": false}
	out, _, err := c.program.Eval(map[string]any{"object": object, "oldObject": nil, "request": request})
	if err != nil {
		return false, err
	}
	ok, _ := out.Value().(bool)
	return ok, nil
}
