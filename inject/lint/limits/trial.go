// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Trial is the effect of a template on sample pods, or on a user's pod.
type Trial struct {
	Template string `json:"template"`
	Revision string `json:"revision"`
	// On is the user's object, for example Deployment/web, or "" for sample pods.
	On string `json:"pod,omitempty"`
	// Sample lists the values of the sample pod that only serve to meet the template's
	// condition.
	Sample []string `json:"sample,omitempty"`
	// PodSecurity is the strictest level that the pod conforms to with the template. Without it,
	// the pod conforms to restricted, unless Without is another level. It is "" if the template
	// could not be tried.
	PodSecurity psa.Level `json:"podSecurity,omitempty"`
	Without     psa.Level `json:"podSecurityWithout,omitempty"`
	// Why is the reason why the pod does not conform to the next level, or why the template
	// could not be tried.
	Why string `json:"why,omitempty"`
	// Worst is the weakest level that values of the parameters allow. It is PodSecurity if there are none that weaken it, apart from
	// what the pod itself violates.
	Worst psa.Level `json:"podSecurityWorst,omitempty"`
	// Allows are the violations that values of the parameters allow, and that the pod does not have without them.
	Allows []Allowed `json:"allows,omitempty"`
	// Choices are the images, commands and paths of the host that values of the parameters can choose freely: a sentence each.
	Choices []string `json:"choices,omitempty"`
	// ByValue are other changes that values of the parameters lead to: a sentence each.
	ByValue []string `json:"byValue,omitempty"`
	// Cut means that there were more values than lint tries.
	Cut bool `json:"cut,omitempty"`
	// Unmet are the parts of the condition that could not be met.
	Unmet []string `json:"unmet,omitempty"`
	// Fails are the ways in which the template fails for other pods that it selects, so that these
	// get no sidecar.
	Fails []string `json:"fails,omitempty"`
	// Place is the template's file and line.
	Place string `json:"-"`
	// Insists means that such pods are denied, or that the pod is the user's.
	Insists bool `json:"-"`
	// QoS are the changes of quality of service classes, from old to new.
	QoS map[corev1.PodQOSClass]corev1.PodQOSClass `json:"qos,omitempty"`
	// QoSWhy are the reasons, by the old class.
	QoSWhy map[corev1.PodQOSClass]string `json:"qosWhy,omitempty"`
	// Requests are the resources that the template adds to a pod's requests.
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// Effects are what the template changes for the rest of a pod: a sentence each. The quality of service class is in QoS, and
	// labels are in Hints.
	Effects []string `json:"effects,omitempty"`
	// Hints are sentences about probable mistakes.
	Hints []string `json:"hints,omitempty"`
	// Needs are the parameters without a default. A pod that sets none of them, directly or by
	// its namespace, does not get the template, or is denied (Denied).
	Needs  []string `json:"needs,omitempty"`
	Denied bool     `json:"denied,omitempty"`
	// Conflicts is the conflict with other templates, in a pod that requests all of them.
	Conflicts string `json:"conflicts,omitempty"`
	// Tried are the values of parameters without a default that lint chose ("param=value").
	Tried []string `json:"tried,omitempty"`
	// Pod is the injected sample pod as JSON.
	Pod []byte `json:"-"`

	added   psa.Level          // that the template's additions conform to, without the pod's own
	from    *sample.Situation  // the pod on which values of parameters were tried
	samples []sample.Situation // that get the template
}

// CheckValues returns an error for values of unknown parameters, and for values that are not
// allowed.
func CheckValues(set *templates.Set, values map[string]string) error {
	var known []string
	for _, t := range set.Templates {
		for _, name := range t.ParamNames() {
			known = append(known, t.Name+"."+name)
			if value, ok := values[t.Name+"."+name]; ok {
				if err := t.Takes(name, value); err != nil {
					return fmt.Errorf("%s.%s %w", t.Name, name, err)
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if slices.Contains(known, key) {
			continue
		}
		if closest := problem.Closest(key, known); closest != "" {
			return fmt.Errorf("no template has the parameter %s; did you mean %s?", key, closest)
		}
		return fmt.Errorf("no template has the parameter %s; use TEMPLATE.PARAM=VALUE", key)
	}
	return nil
}

// withoutSelectors returns a copy of the template that selects any pod.
func withoutSelectors(t *templates.Template) *templates.Template {
	free := *t
	free.Namespace, free.NamespaceSelector, free.PodSelector = "", nil, nil
	free.Spec.Match.NamespaceSelector, free.Spec.Match.PodSelector = nil, nil
	free.Spec.Match.OS = v1alpha1.Linux
	free.Spec.Share = 0 // all
	return &free
}

// mistakeHints returns sentences about probable mistakes.
func (r *result) mistakeHints(t *templates.Template) []string {
	var all []string
	if t.Spec.Required && t.Spec.Validate.Mode == v1alpha1.Warn {
		all = append(all, "it is required, but validate.mode: Warn accepts pods without it; remove mode to deny them")
	}
	all = append(all, waysAround(t)...)
	if first, second := invertedContainers(t, r.pod.Spec.InitContainers); first != "" {
		all = append(all, fmt.Sprintf("the init container %s starts after %s, but the template has it before", first, second))
	}
	for _, c := range r.pod.Spec.InitContainers {
		if t.Brings(c.Name) && c.RestartPolicy == nil && (len(c.Ports) > 0 || t.Protects("restartPolicy")) {
			all = append(all, fmt.Sprintf("the pod's containers wait until the init container %s ends; a sidecar has restartPolicy: Always", c.Name))
		}
	}
	stored, err := schema.AsStored(r.final.Object)
	if err != nil {
		panic("limits: " + err.Error())
	}
	final := r.final
	final.Object = stored
	verdict, err := inject.NewJudge(r.injector, nil, true).Judge(final)
	if err != nil {
		panic("limits: " + err.Error())
	}
	for i := range verdict.Judged {
		switch f := &verdict.Judged[i]; {
		case f.Code == inject.CodeAltered && f.Expected != "":
			all = append(all, fmt.Sprintf("%s is protected and computed from what templates add, so no pod is valid: the value is %s, but must then be %s",
				schema.Where(f.Path), f.Found, f.Expected))
		case f.Mode == v1alpha1.Deny:
			all = append(all, "no injected pod is valid: "+f.String())
		}
	}
	return all
}

// invertedContainers returns two init containers of a template that are in a pod in another order, or "".
func invertedContainers(t *templates.Template, initContainers []corev1.Container) (first, second string) {
	last := -1
	for _, c := range initContainers {
		switch rank := t.Rank("initContainers", c.Name); {
		case 0 <= rank && rank < last:
			return c.Name, second
		case rank > last:
			last, second = rank, c.Name
		}
	}
	return "", ""
}

// waysAround returns the ways in which a pod can avoid a template that insists.
func waysAround(t *templates.Template) []string {
	var all []string
	brings := len(t.Containers) > 0
	switch rules := t.Spec.Validate; {
	case !brings || rules.Mode != v1alpha1.Deny && !t.Spec.Required:
	case !slices.Contains(rules.Protect, templates.ProtectAll):
		all = append(all, fmt.Sprintf("a pod can have its own container named %s that runs something else, because not all fields are protected; set validate.protect: [all]", t.Containers[0]))
	case len(t.Unprotected) > 0:
		all = append(all, fmt.Sprintf("a pod can have its own container named %s with other %s, which are computed from the pod and so not protected by default; "+
			"if no webhook changes their source, set validate.protect: [all]", t.Containers[0], strings.Join(t.Unprotected, " and ")))
	}
	if brings && t.Spec.Required && slices.Contains(t.Spec.Validate.Protect, templates.ProtectAll) && (t.LeavesOpen("env") || t.LeavesOpen("volumeMounts")) {
		all = append(all, fmt.Sprintf("a pod can have its own container named %s with further variables and mounts, which other webhooks may add; if none does, set validate.protect: [all, env, volumeMounts]", t.Containers[0]))
	}
	if t.Spec.Required && !t.Spec.Match.HostNetwork {
		all = append(all, "a pod with hostNetwork: true does not get it; set match.hostNetwork: true, or have Pod Security (baseline) deny such pods")
	}
	return all
}
