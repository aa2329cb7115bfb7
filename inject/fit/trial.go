// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
)

// Trial is what a template does to sample pods, or to a pod of the user's.
type Trial struct {
	Template string `json:"template"`
	// On is the user's object that it was tried on, such as Deployment/web; "" for sample pods.
	On string `json:"pod,omitempty"`
	// Sample is what the sample pod has for the template's condition alone.
	Sample []string `json:"sample,omitempty"`
	// PodSecurity is the strictest level that the pod keeps to with the template in it: the
	// template's own, because the pod keeps to restricted without it, unless Without is another
	// level. It is "" if the template could not be tried.
	PodSecurity psa.Level `json:"podSecurity,omitempty"`
	Without     psa.Level `json:"podSecurityWithout,omitempty"`
	// Why is what keeps it from the next level, or from being tried.
	Why string `json:"why,omitempty"`
	// Unmet are the parts of the condition that kept it from being tried.
	Unmet []string `json:"unmet,omitempty"`
	// Fails is how the template fails for pods that it is meant for, which then go without it.
	Fails string `json:"fails,omitempty"`
	// Insists: such pods are denied, or it is a pod of the user's.
	Insists bool `json:"-"`
	// QoS are the quality of service classes that the template changes, from and to.
	QoS map[corev1.PodQOSClass]corev1.PodQOSClass `json:"qos,omitempty"`
	// Requests are what a pod requests more with the template in it.
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// Hints are what is probably not meant so, one sentence each.
	Hints []string `json:"hints,omitempty"`
	// Needs are the parameters without a default: a pod or namespace that sets none
	// of them does not get the template, or is rejected (Denied).
	Needs  []string `json:"needs,omitempty"`
	Denied bool     `json:"denied,omitempty"`
	// Conflicts are with other templates, in a pod that asks for all of them.
	Conflicts string `json:"conflicts,omitempty"`
	// Pod is the sample pod with the template in it, as JSON.
	Pod []byte `json:"-"`
}

// CheckValues finds values for parameters that no template has, or that are not
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
		if closest := templates.Closest(key, known); closest != "" {
			return fmt.Errorf("no template has the parameter %s; did you mean %s?", key, closest)
		}
		return fmt.Errorf("no template has the parameter %s; use TEMPLATE.PARAM=VALUE", key)
	}
	return nil
}

// withoutSelectors is a template that takes any pod.
func withoutSelectors(t *templates.Template) *templates.Template {
	free := *t
	free.NamespaceSelector, free.PodSelector = nil, nil
	free.Spec.Match.NamespaceSelector, free.Spec.Match.PodSelector = nil, nil
	free.Spec.Match.OS = corev1.Linux
	return &free
}

// hints are what is probably not meant so.
func (r *result) hints(t *templates.Template) []string {
	var all []string
	if t.Spec.Required && t.Spec.Validate.Mode == templates.Warn {
		all = append(all, "it is required, but validate.mode: Warn accepts pods without it; remove mode to deny them")
	}
	all = append(all, waysAround(t)...)
	for _, c := range r.pod.Spec.InitContainers {
		if slices.Contains(t.Containers, c.Name) && c.RestartPolicy == nil && (len(c.Ports) > 0 || t.Protects("restartPolicy")) {
			all = append(all, fmt.Sprintf("the pod's containers wait until the init container %s ends; a sidecar has restartPolicy: Always", c.Name))
		}
	}
	stored, err := schema.AsStored(r.final.Object)
	if err != nil {
		panic("fit: " + err.Error())
	}
	final := r.final
	final.Object = stored
	verdict, err := inject.NewJudge(r.injector, nil, true).Judge(final)
	if err != nil {
		panic("fit: " + err.Error())
	}
	for i := range verdict.Judged {
		switch f := &verdict.Judged[i]; {
		case f.Code == inject.CodeAltered && f.Expected != "":
			all = append(all, fmt.Sprintf("%s is protected and computed from what templates add, so no pod is valid: the value is %s, but must then be %s",
				schema.Where(f.Path), f.Found, f.Expected))
		case f.Mode == templates.Deny:
			all = append(all, "no injected pod is valid: "+f.String())
		}
	}
	return all
}

// waysAround are the ways in which a pod can go without a template that insists.
func waysAround(t *templates.Template) []string {
	var all []string
	brings := len(t.Containers) > 0
	switch rules := t.Spec.Validate; {
	case !brings || rules.Mode != templates.Deny && !t.Spec.Required:
	case !slices.Contains(rules.Protect, templates.ProtectAll):
		all = append(all, fmt.Sprintf("a pod can have its own container named %s that runs something else, because not all fields are protected; set validate.protect: [all]", t.Containers[0]))
	case len(t.Unprotected) > 0:
		all = append(all, fmt.Sprintf("a pod can have its own container named %s with other %s, which are computed from the pod and so not protected by default; "+
			"if no webhook changes their source, set validate.protect: [all]", t.Containers[0], strings.Join(t.Unprotected, " and ")))
	}
	if t.Spec.Required && !t.Spec.Match.HostNetwork {
		all = append(all, "a pod with hostNetwork: true goes without it; set match.hostNetwork: true, or have Pod Security (baseline) deny such pods")
	}
	return all
}
