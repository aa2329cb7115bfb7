// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// addFailure records that the template fails for some pods. One cause is recorded once.
func (trial *Trial) addFailure(who string, d *inject.Decision) {
	same := func(known string) bool { return strings.HasSuffix(known, becauseOf(d)) }
	if !slices.ContainsFunc(trial.Fails, same) {
		trial.Fails = append(trial.Fails, "it fails for "+who+becauseOf(d))
	}
}

func becauseOf(d *inject.Decision) string { return fmt.Sprintf(" (%s): %s", d.Code, d.Message) }

// tryOthers records how a template fails for pods that are like the sample, but have other labels
// or annotations, or none. The sample meets the condition, so it has every value that the condition
// reads; other pods may lack some. Whole is the template with its selectors.
func (trial *Trial) tryOthers(t, whole *templates.Template, from sample.Situation) {
	pod, sampled := decodePod(from.Pod), from
	account := accountOf(from)
	try := func() *inject.Decision {
		s := from
		s.Pod, s.Namespace.ServiceAccounts = encodePod(pod), request.SameServiceAccount(account)
		return &injectInto(s, t).Decisions[0]
	}
	if try().Code == inject.CodeRenderFailed {
		return // the report contains it already
	}
	from.Namespace.Known = true
	from.Namespace.Labels, from.Namespace.Annotations = maps.Clone(from.Namespace.Labels), maps.Clone(from.Namespace.Annotations)
	type source struct {
		who      string
		at       *map[string]string
		selector labels.Selector
	}
	sources := []source{
		{"pods without the label", &pod.Labels, whole.PodSelector},
		{"pods without the annotation", &pod.Annotations, nil},
		{"pods in namespaces without the label", &from.Namespace.Labels, whole.NamespaceSelector},
		{"pods in namespaces without the annotation", &from.Namespace.Annotations, nil},
	}
	if account.Known && t.ReadsServiceAccount() {
		sources = append(sources, source{"pods whose ServiceAccount has no label", &account.Labels, nil},
			source{"pods whose ServiceAccount has no annotation", &account.Annotations, nil})
	}
	for _, source := range sources {
		for key, value := range requiredLabels(*source.at, source.selector) {
			if *source.at == nil {
				*source.at = map[string]string{}
			}
			(*source.at)[key] = value
		}
	}
	for _, source := range sources {
		had := *source.at
		for _, other := range otherLabels(had, source.selector) {
			*source.at = other
			if d := try(); d.Code == inject.CodeRenderFailed {
				trial.addFailure(source.who+" "+missingKey(d.Message), d)
			}
		}
		*source.at = had
	}
	if d := &injectInto(barePod(sampled), t).Decisions[0]; d.Code == inject.CodeRenderFailed && !lacksVolume(d) || contradictsItself(d) {
		trial.addFailure("pods whose containers have only a name and an image", d)
	}
}

// contradictsItself reports whether a template conflicts with itself: with what another entry of it adds.
func contradictsItself(d *inject.Decision) bool {
	return d.Code == inject.CodeConflict && strings.Contains(d.Message, "; fix the template")
}

// requiredLabels returns the labels that a selector requires, and Pillion's own labels, which the
// sample requires.
func requiredLabels(had map[string]string, selector labels.Selector) map[string]string {
	all := map[string]string{}
	for key, value := range had {
		if _, _, ofTemplate := templates.SplitAnnotation(key); ofTemplate || strings.HasPrefix(key, templates.Domain+"/") {
			all[key] = value
		}
	}
	if selector == nil {
		return all
	}
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		value, there := had[r.Key()]
		switch values := r.Values().List(); {
		case there && r.Matches(labels.Set(had)):
			all[r.Key()] = value
		case r.Matches(labels.Set{}):
		case len(values) > 0:
			all[r.Key()] = values[0]
		default:
			all[r.Key()] = "sample"
		}
	}
	return all
}

// otherLabels returns other labels that a selector matches: only the required ones, and all but
// one.
func otherLabels(had map[string]string, selector labels.Selector) []map[string]string {
	need := requiredLabels(had, selector)
	all := []map[string]string{need, maps.Clone(need)}
	all[1]["other"] = "sample"
	for _, key := range slices.Sorted(maps.Keys(had)) {
		if _, ok := need[key]; !ok {
			fewer := maps.Clone(had)
			delete(fewer, key)
			all = append(all, fewer)
		}
	}
	return slices.DeleteFunc(all, func(m map[string]string) bool { return selector != nil && !selector.Matches(labels.Set(m)) })
}

const noSuchKey = "no such key: "

// missingKey returns the key that an expression did not find.
func missingKey(message string) string {
	_, key, ok := strings.Cut(message, noSuchKey)
	if key, _, _ = strings.Cut(key, "; "); !ok {
		return "that the sample has"
	}
	return key
}
