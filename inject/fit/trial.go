// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// Trial is what a template does to sample pods.
type Trial struct {
	Template string `json:"template"`
	// PodSecurity is the strictest level that the template keeps to by itself, in a
	// pod that keeps to restricted; "" where it could not be tried.
	PodSecurity psa.Level `json:"podSecurity,omitempty"`
	// Why is what keeps it from the next level, or from being tried.
	Why string `json:"why,omitempty"`
	// QoS are the quality of service classes that the template changes, from and to.
	QoS map[corev1.PodQOSClass]corev1.PodQOSClass `json:"qos,omitempty"`
	// Requests are what a pod requests more with the template in it.
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// Hints are what is probably not meant so, one sentence each.
	Hints []string `json:"hints,omitempty"`
	// Needs are the parameters without a default: a pod or namespace that sets none
	// of them does not get the template, or is refused (Denied).
	Needs  []string `json:"needs,omitempty"`
	Denied bool     `json:"denied,omitempty"`
	// Conflicts are with other templates, in a pod that asks for all of them.
	Conflicts string `json:"conflicts,omitempty"`
	// Pod is the sample pod with the template in it, as JSON.
	Pod []byte `json:"-"`
}

// Try tries each template of a set alone, and all of them together. Values are
// for parameters without a default ("template.param"); others get a sample.
func (e *Evaluator) Try(set *templates.Set, values map[string]string) []Trial {
	trials := make([]Trial, len(set.Templates))
	for i, t := range set.Templates {
		alone := withoutSelectors(t)
		trials[i] = e.try(alone, annotationsFor(values, alone))
	}
	var all []*templates.Template
	for _, t := range set.Templates {
		all = append(all, withoutSelectors(t))
	}
	together := run(sample(corev1.ResourceRequirements{}), annotationsFor(values, all...), all...)
	for i := range together.Decisions {
		if d := &together.Decisions[i]; d.Code == inject.CodeConflict {
			trials[i].Conflicts = d.Message
		}
	}
	return trials
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
		return fmt.Errorf("no template has the parameter %s; write TEMPLATE.PARAM=VALUE", key)
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

func (e *Evaluator) try(t *templates.Template, params annotations) Trial {
	trial := Trial{Template: t.Name}
	if len(t.Spec.LabelDomains) > 0 {
		trial.Hints = append(trial.Hints, fmt.Sprintf("labelDomains lets it set labels of %s: if the selector of a ReplicaSet, a Job or another owner has one of them, "+
			"that owner does not find the pods that it makes, and makes more without end; labels with the prefix %s/ need no domain", strings.Join(t.Spec.LabelDomains, ", "), t.Name+"."+templates.Domain))
	}
	for i := range t.Spec.Params {
		if p := &t.Spec.Params[i]; p.Default == nil {
			trial.Needs, trial.Denied = append(trial.Needs, p.Name), t.Spec.Validate.Mode == templates.Deny
		}
	}
	if len(params.missing) > 0 {
		trial.Why = fmt.Sprintf("%s has no default, and no sample fits; say --set %s=VALUE", params.missing[0], params.missing[0])
		return trial
	}
	for class, resources := range samples() {
		r := run(sample(resources), params, t)
		if d := &r.Decisions[0]; d.Code != inject.CodeInjected {
			trial.Why = fmt.Sprintf("a plain pod would not get it (%s): %s", d.Code, d.Sentence())
			if strings.Contains(d.Message, "no such key") {
				trial.Why += "; for what not every pod has, write [?'key'].orValue('')"
			}
			return trial
		}
		if after := QoS(r.pod); after != class {
			if trial.QoS == nil {
				trial.QoS = map[corev1.PodQOSClass]corev1.PodQOSClass{}
			}
			trial.QoS[class] = after
		}
		if class == corev1.PodQOSBestEffort {
			trial.PodSecurity, trial.Why = e.Level(r.pod)
			trial.Pod, _ = json.Marshal(r.pod)
			trial.Requests = total(r.pod, requestsOf)
			trial.Hints = append(trial.Hints, r.hints(t)...)
		}
	}
	trial.Hints = append(trial.Hints, without(t, params)...)
	return trial
}

// without are pods that are unusual in what templates depend on, and go without this
// one.
func without(t *templates.Template, params annotations) []string {
	var all []string
	for _, odd := range []struct {
		what   string
		change func(*corev1.PodSpec)
	}{
		{"terminationGracePeriodSeconds: 1", func(s *corev1.PodSpec) { s.TerminationGracePeriodSeconds = new(int64(1)) }},
		{"restartPolicy: Never", func(s *corev1.PodSpec) { s.RestartPolicy = corev1.RestartPolicyNever }},
		{"hostUsers: false", func(s *corev1.PodSpec) { s.HostUsers = new(false) }},
	} {
		pod := sample(corev1.ResourceRequirements{})
		odd.change(&pod.Spec)
		if d := run(pod, params, t).Decisions[0]; d.Code == inject.CodeConflict || d.Code == inject.CodeRenderFailed {
			all = append(all, fmt.Sprintf("a pod with %s goes without it: %s", odd.what, d.Sentence()))
		}
	}
	return all
}

// hints are what is probably not meant so.
func (r *result) hints(t *templates.Template) []string {
	var all []string
	if t.Spec.Required && t.Spec.Validate.Mode == templates.Warn {
		all = append(all, "it is required, and validate.mode: Warn lets pods through without it; leave mode out to have them refused")
	}
	all = append(all, waysAround(t)...)
	for _, c := range r.pod.Spec.InitContainers {
		if slices.Contains(t.Containers, c.Name) && c.RestartPolicy == nil && (len(c.Ports) > 0 || t.Protects("restartPolicy")) {
			all = append(all, fmt.Sprintf("the pod's containers wait until the init container %s ends; a sidecar has restartPolicy: Always", c.Name))
		}
	}
	stored, err := inject.AsStored(r.final.Object)
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
			all = append(all, fmt.Sprintf("%s is protected and computed from what templates add, so no pod is right: it is %s, and then must be %s",
				inject.Where(f.Path), f.Found, f.Expected))
		case f.Mode == templates.Deny:
			all = append(all, "no pod is right once it is injected: "+f.String())
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
		all = append(all, fmt.Sprintf("a pod may bring a container of its own named %s that runs something else, for not all of its fields are protected; set validate.protect: [all]", t.Containers[0]))
	case len(t.Unprotected) > 0:
		all = append(all, fmt.Sprintf("a pod may bring a container of its own named %s with other %s, which are computed from the pod and so not protected by default; "+
			"if no webhook changes what they are computed from, set validate.protect: [all]", t.Containers[0], strings.Join(t.Unprotected, " and ")))
	}
	if t.Spec.Required && !t.Spec.Match.HostNetwork {
		all = append(all, "a pod with hostNetwork: true goes without it; set match.hostNetwork: true, or have Pod Security (baseline) deny such pods")
	}
	return all
}

// samples are resources by the class that they make a pod.
func samples() map[corev1.PodQOSClass]corev1.ResourceRequirements {
	some := corev1.ResourceList{corev1.ResourceCPU: quantity("100m"), corev1.ResourceMemory: quantity("64Mi")}
	return map[corev1.PodQOSClass]corev1.ResourceRequirements{
		corev1.PodQOSBestEffort: {},
		corev1.PodQOSBurstable:  {Requests: some},
		corev1.PodQOSGuaranteed: {Requests: some, Limits: some},
	}
}

// sample is a pod that keeps to every Pod Security level by its container alone,
// so that it lends a template nothing.
func sample(resources corev1.ResourceRequirements) *corev1.Pod {
	return &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: "registry.example/app:1", Resources: resources,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(bool),
				RunAsNonRoot:             new(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		}}},
	}
}

// result is a pod with templates in it.
type result struct {
	*inject.Result

	injector *inject.Injector
	final    inject.Request // with the pod, as JSON
	pod      *corev1.Pod
}

// run injects templates into a pod that asks for all of them.
func run(pod *corev1.Pod, params annotations, all ...*templates.Template) *result {
	var names []string
	for _, t := range all {
		names = append(names, t.Name)
	}
	pod.Annotations = map[string]string{inject.AnnotationTemplates: strings.Join(names, ",")}
	maps.Copy(pod.Annotations, params.pod)
	text, err := json.Marshal(pod)
	if err != nil {
		panic("fit: a sample pod is no JSON: " + err.Error())
	}
	r := &result{injector: inject.New(templates.NewSet(all)), pod: &corev1.Pod{}}
	r.final = inject.Request{Operation: "CREATE", OptedIn: true, Namespace: templates.Namespace{Name: "sample", Annotations: params.namespace}, Object: text}
	if r.Result, err = r.injector.Inject(r.final); err != nil {
		panic("fit: " + err.Error())
	}
	if r.final.Object, err = inject.Apply(text, r.Ops()); err != nil {
		panic("fit: " + err.Error())
	}
	if err := json.Unmarshal(r.final.Object, r.pod); err != nil {
		panic("fit: what was injected does not decode: " + err.Error())
	}
	return r
}

// annotations set the parameters of sample pods.
type annotations struct {
	pod, namespace map[string]string
	missing        []string // parameters that no sample fits
}

// annotationsFor sets the values that are given, and samples for parameters that
// have no default.
func annotationsFor(values map[string]string, all ...*templates.Template) annotations {
	a := annotations{pod: map[string]string{}, namespace: map[string]string{}}
	for _, t := range all {
		for i := range t.Spec.Params {
			p := &t.Spec.Params[i]
			value, given := values[t.Name+"."+p.Name]
			if !given && p.Default != nil {
				continue
			}
			if !given {
				if value = sampleValue(t, p); value == "" {
					a.missing = append(a.missing, t.Name+"."+p.Name)
					continue
				}
			}
			if p.OverridableBy == nil || slices.Contains(p.OverridableBy, templates.ByPod) {
				a.pod[t.Annotation(p.Name)] = value
			} else {
				a.namespace[t.Annotation(p.Name)] = value
			}
		}
	}
	return a
}

// sampleValue is the first of some values that a parameter takes, or "".
func sampleValue(t *templates.Template, p *templates.Param) string {
	var candidates []string
	for _, choice := range p.Enum {
		candidates = append(candidates, string(choice))
	}
	if p.Minimum != nil {
		candidates = append(candidates, string(*p.Minimum))
	}
	candidates = append(candidates, "sample", "example.com", "https://example.com", "https://example.com:8443/path", "1", "true", "1s", "/sample")
	i := slices.IndexFunc(candidates, func(value string) bool { return t.Takes(p.Name, value) == nil })
	if i < 0 {
		return ""
	}
	return candidates[i]
}
