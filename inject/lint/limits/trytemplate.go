// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Subject returns a user's pod, which belongs to an owner, as a Subject, if it can be parsed.
func (e *Evaluator) Subject(on string, pod []byte, owner workloads.Owner, namespace request.Namespace) (Subject, error) {
	if isAbsurd(pod) {
		return Subject{}, errors.New("the pod has a quantity that cannot be read")
	}
	err := json.Unmarshal(pod, &corev1.Pod{})
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("%s must be a %s, not a %s", wrong.Field, wrong.Type, wrong.Value)
	}
	return Subject{On: on, Situation: sample.Situation{Pod: pod, Owner: sample.Owner(owner), Namespace: namespace}}, err
}

// Try tries each template of a set alone, and all of them together, on the pods, or on samples
// if there are none. Values are those of parameters ("template.param"). Without a value, a
// parameter that the pod must set gets a sample value.
func (e *Evaluator) Try(set *templates.Set, values map[string]string, pods ...Subject) []Trial {
	trials := e.tryIn("", set.For(""), values, pods)
	for _, namespace := range set.Namespaces() {
		trials = append(trials, e.tryIn(namespace, set.For(namespace), values, pods)...)
	}
	return trials
}

// TryNew tries a new template on samples, alone and with each of those in use.
func (e *Evaluator) TryNew(t *templates.Template, inUse *templates.Set) Trial {
	trial := e.tryTemplate(withoutSelectors(t), t, nil, samplePods()...)
	if trial.PodSecurity != "" && slices.ContainsFunc(t.Spec.Params, func(p v1alpha1.Param) bool { return sample.IsSettable(&p) }) { // in a request, no search
		trial.recordAllowed(e, withoutSelectors(t), trial.samples[0], direct)
	}
	with, _ := templates.Join(templates.NewSet([]*templates.Template{t}), inUse)
	trial.Hints = append(append(trial.Hints, overlapHints(t, with)...), hiddenHints(t, with)...)
	for _, other := range inUse.Templates {
		if other.Name == t.Name || trial.Conflicts != "" {
			continue
		}
		pair := []*templates.Template{withoutSelectors(other), withoutSelectors(t)}
		if !isBefore(other, t) {
			slices.Reverse(pair)
		}
		for _, why := range conflictsTogether(pair, nil, samplePods()[0]) {
			trial.Conflicts = why
		}
	}
	return trial
}

// isBefore reports whether a template is applied before another one.
func isBefore(a, b *templates.Template) bool {
	set, _ := templates.Join(templates.NewSet([]*templates.Template{b, a}))
	return set.Templates[0] == a
}

// tryIn tries the templates of a namespace, together with those of the cluster.
func (e *Evaluator) tryIn(namespace string, set *templates.Set, values map[string]string, pods []Subject) []Trial {
	var trials []Trial
	var all []*templates.Template
	for _, t := range set.Templates {
		all = append(all, withoutSelectors(t))
	}
	for i, t := range all {
		if set.Templates[i].Namespace != namespace {
			continue
		}
		if len(pods) == 0 {
			trial := e.tryTemplate(t, set.Templates[i], values, samplePods()...)
			if trial.PodSecurity != "" {
				trial.recordAllowed(e, t, trial.samples[0], searching)
				trial.tryValues(t)
			}
			trial.Hints = append(trial.Hints, overlapHints(set.Templates[i], set)...)
			trial.Hints = append(trial.Hints, hiddenHints(set.Templates[i], set)...)
			trials = append(trials, trial)
		}
		for _, pod := range pods {
			trials = append(trials, e.tryTemplate(t, set.Templates[i], values, pod))
		}
	}
	if len(pods) == 0 {
		pods = samplePods()[:1]
	}
	for _, pod := range pods {
		for i, why := range conflictsTogether(all, values, pod) {
			of := slices.IndexFunc(trials, func(t Trial) bool { return t.Template == set.Templates[i].ID() && t.On == pod.On })
			if of >= 0 {
				trials[of].Conflicts = why
			}
		}
	}
	return trials
}

// conflictsTogether returns the conflicts of templates, by index, in a pod that requests all of them. It
// changes a sample pod so that as many of their conditions as it can are true together.
func conflictsTogether(all []*templates.Template, values map[string]string, pod Subject) map[int]string {
	s, _ := requestTemplates(pod, values, all...)
	r := injectInto(s.Situation, all...)
	if pod.On == "" {
		var chosen []int
		for i, t := range all {
			more, _, ok := sample.Meet(t, s.Situation, fixedParams(values), func(s sample.Situation) bool {
				r := r.injectAgain(s)
				return !slices.ContainsFunc(append(chosen, i), func(i int) bool { return r.Decisions[i].Code == inject.CodeConditionFalse })
			})
			if ok {
				s.Situation, chosen = more, append(chosen, i)
			}
		}
		r = r.injectAgain(s.Situation)
	}
	conflicts := map[int]string{}
	for i := range r.Decisions {
		if d := &r.Decisions[i]; d.Code == inject.CodeConflict {
			conflicts[i] = d.Message
		}
	}
	return conflicts
}

// fixedParams returns the parameters that keep their values.
func fixedParams(values map[string]string) []string { return slices.Collect(maps.Keys(values)) }

// tryTemplate tries a template on pods with different resources. The report is about the first pod, but
// has the quality of service classes of all of them.
// Whole is the template with its selectors.
func (e *Evaluator) tryTemplate(t, whole *templates.Template, values map[string]string, pods ...Subject) Trial {
	trial := newTrial(whole, pods[0])
	for i, pod := range pods {
		asked, missing := requestTemplates(pod, values, t)
		if len(missing) > 0 {
			trial.Why = fmt.Sprintf("%s has no default, and no sample fits; use --set %s=VALUE", missing[0], missing[0])
			return trial
		}
		tried, ok := meetCondition(t, asked, fixedParams(values))
		if !ok && pod.On == "" && len(asked.sampled) > 0 {
			asked = chooseAgain(tried, pod, values, t)
			tried, ok = meetCondition(t, asked, fixedParams(values))
		}
		r := injectInto(tried.Situation, t)
		if i == 0 && pod.On == "" {
			trial.tryOthers(t, whole, tried.Situation)
			trial.Insists = t.Spec.Required || t.Spec.Validate.Mode == v1alpha1.Deny
		}
		if !ok && i == 0 {
			trial.notTried(t, tried, values, &r.Decisions[0])
			return trial
		}
		if !ok {
			if d := &r.Decisions[0]; d.Code == inject.CodeRenderFailed || d.Code == inject.CodeConflict {
				trial.addFailure("pods with "+resourcesOf(tried.Situation), d)
			}
			continue
		}
		if pod.On == "" {
			trial.samples = append(trial.samples, tried.Situation)
		}
		before := decodePod(tried.Pod)
		if class, after := QoS(before), QoS(r.pod); after != class {
			if trial.QoS == nil {
				trial.QoS, trial.QoSWhy = map[corev1.PodQOSClass]corev1.PodQOSClass{}, map[corev1.PodQOSClass]string{}
			}
			trial.QoS[class], trial.QoSWhy[class] = after, qosWhy(r.pod, class)
		}
		if pod.On != "" {
			trial.addEffects(newChange(before, r.pod, pod.Owner.Kind))
		} else {
			trial.addEffects(ofSample(before, r.pod, "Deployment"))
		}
		if i == 0 && pod.On == "" {
			for _, c := range r.otherChanges(tried.Situation) {
				trial.addEffects(c)
			}
		}
		if i == 0 {
			trial.Sample, trial.Tried = sample.Changes(asked.Situation, tried.Situation), asked.sampled
			e.measureEffect(&trial, t, r, before)
			trial.Hints = append(append(append(trial.Hints, misspelledHints(asked, tried, r.pod)...), oddPodHints(t, tried)...), withOptional(t, tried)...)
		}
	}
	return trial
}

// addEffects records what the template changes for the rest of a pod.
func (trial *Trial) addEffects(c change) {
	for i := range effects {
		if effects[i].inTrial {
			continue
		}
		for _, sentence := range effects[i].of(c) {
			if !slices.Contains(trial.Effects, sentence) {
				trial.Effects = append(trial.Effects, sentence)
			}
		}
	}
}

// newTrial returns what the template itself says, without a trial.
func newTrial(t *templates.Template, pod Subject) Trial {
	trial := Trial{Template: t.ID(), Revision: t.Revision, On: pod.On, Place: t.Place()}
	if len(t.Spec.LabelDomains) > 0 {
		trial.Hints = append(trial.Hints, fmt.Sprintf("labelDomains allows it to set labels of %s. If the selector of a ReplicaSet, a Job or another owner has one of them, "+
			"that owner no longer finds its pods, and creates more without end. Labels with the prefix %s/ need no domain", strings.Join(t.Spec.LabelDomains, ", "), t.Name+"."+templates.Domain))
	}
	for _, name := range t.UnusedVariables() {
		trial.Hints = append(trial.Hints, fmt.Sprintf("no expression reads the variable %s; remove it, or write variables.%s where it belongs", name, name))
	}
	isSet := pod.settingsOf(t)
	for i := range t.Spec.Params {
		if name := t.Spec.Params[i].Name; !t.Uses(name) {
			trial.Hints = append(trial.Hints, fmt.Sprintf("no expression reads the parameter %s, so setting it changes nothing; remove it, or write ${params.%s} where it belongs", name, name))
		}
		if p := &t.Spec.Params[i]; p.Needed() && !isSet(p) {
			trial.Needs, trial.Denied = append(trial.Needs, p.Name), t.Spec.Validate.Mode == v1alpha1.Deny
		}
	}
	return trial
}

// meetCondition returns a pod that gets the template: a sample that meets its condition and has the volumes
// that it mounts, or the user's pod unchanged. If there is none, it returns the best candidate and false.
func meetCondition(t *templates.Template, pod Subject, fixed []string) (met Subject, ok bool) {
	const most = 16 // volumes
	for range most {
		var d *inject.Decision
		if met, d, ok = meetConditionOnce(t, pod, fixed); ok || pod.On != "" || !lacksVolume(d) {
			break
		}
		pod.Situation = withVolume(met.Situation, d.Obstacles[0].Template)
	}
	return met, ok
}

func meetConditionOnce(t *templates.Template, pod Subject, fixed []string) (Subject, *inject.Decision, bool) {
	r := injectInto(pod.Situation, t)
	if pod.On != "" {
		return pod, &r.Decisions[0], getsTemplate(&r.Decisions[0])
	}
	met := pod
	var ok bool
	met.Situation, _, ok = sample.Meet(t, pod.Situation, fixed, func(s sample.Situation) bool {
		d := &r.injectAgain(s).Decisions[0]
		if first := &r.Decisions[0]; first.Code == inject.CodeConditionFalse && d.Code != inject.CodeConditionFalse || lacksVolume(d) && !lacksVolume(first) {
			r.Decisions[0], pod.Situation = *d, s // use the first one that meets the condition
		}
		return getsTemplate(d)
	})
	if ok {
		return met, nil, true
	}
	return pod, &r.Decisions[0], false
}

func getsTemplate(d *inject.Decision) bool {
	return d.Code.Succeeded()
}

// notTried sets why the template was not tried.
func (trial *Trial) notTried(t *templates.Template, pod Subject, values map[string]string, d *inject.Decision) {
	what := "a sample pod"
	if pod.On != "" {
		what = "it"
	}
	if pod.On != "" && d.Code == inject.CodeRenderFailed {
		trial.Insists = true
		trial.addFailure("this pod", d)
		trial.Why = d.Sentence()
		return
	}
	if d.Code == inject.CodeConditionFalse || strings.HasPrefix(d.Message, "spec.match.condition") {
		if trial.Unmet = sample.FalseParts(t, pod.Situation); pod.On == "" {
			_, trial.Unmet, _ = sample.Meet(t, pod.Situation, fixedParams(values), func(sample.Situation) bool { return true })
		}
	}
	switch {
	case pod.On == "" && len(trial.Unmet) == 0 && len(trial.Fails) == 0 && d.Code.Failed():
		trial.addFailure("every sample pod", d)
		fallthrough
	case len(trial.Unmet) == 0:
		trial.Why = fmt.Sprintf("%s would not get it (%s): %s", what, d.Code, d.Sentence())
	case pod.On != "":
		trial.Why = "it does not meet this part of the condition: " + strings.Join(trial.Unmet, ", nor this: ")
	default:
		trial.Why = "lint found no sample pod that meets this part of the condition: " + strings.Join(trial.Unmet, ", nor this: ")
	}
}

// oddPodHints returns pods with unusual values that the template depends on, and that do not get
// it for that reason.
func oddPodHints(t *templates.Template, pod Subject) []string {
	var all []string
	for _, odd := range []struct {
		what   string
		change func(*corev1.PodSpec)
	}{
		{"terminationGracePeriodSeconds: 1", func(s *corev1.PodSpec) { s.TerminationGracePeriodSeconds = new(int64(1)) }},
		{"restartPolicy: Never", func(s *corev1.PodSpec) { s.RestartPolicy = corev1.RestartPolicyNever }},
		{"hostUsers: false", func(s *corev1.PodSpec) { s.HostUsers = new(false) }},
		{"its own init container", func(s *corev1.PodSpec) {
			own := *plainPod(corev1.ResourceRequirements{}).Spec.Containers[0].DeepCopy()
			own.Name = "setup"
			s.InitContainers = append(s.InitContainers, own)
		}},
	} {
		changed := decodePod(pod.Pod)
		odd.change(&changed.Spec)
		s := pod.Situation
		s.Pod = encodePod(changed)
		if d := injectInto(s, t).Decisions[0]; d.Code == inject.CodeConflict || d.Code == inject.CodeRenderFailed {
			all = append(all, fmt.Sprintf("a pod with %s does not get it: %s", odd.what, d.Sentence()))
		}
	}
	return all
}
