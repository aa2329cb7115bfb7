// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// run is one look at one pod: decide, render, plan.
type run struct {
	*Injector
	req         *Request
	pod         *tree.Node
	labels      *tree.Node
	annotations *tree.Node
	requested   requested
	os          string
	input       templates.Input

	leftOut    map[string]string // template to why
	candidates []*candidate
	flipped    []*templates.Template // left out by what a template's addition may change
	added      bool
}

// candidate is one template for this pod.
type candidate struct {
	*run
	t        *templates.Template
	decision Decision
	input    templates.Input // its own, for what its expressions may cost
	values   templates.Values
	fragment tree.Node // what is to be there, as a partial Pod
	apps     []appContainer
}

func (i *Injector) newRun(req *Request, pod *tree.Node) *run {
	r := &run{
		Injector: i, req: req, pod: pod,
		labels:      pod.At("metadata", "labels"),
		annotations: pod.At("metadata", "annotations"),
		os:          podOS(pod),
		input: templates.Input{
			Pod: pod, Namespace: req.Namespace,
			Request: templates.RequestInfo{Operation: req.Operation, Username: req.Username, DryRun: req.DryRun},
		},
	}
	r.requested = parseRequested(r.annotation(AnnotationTemplates))
	return r
}

func (r *run) label(key string) *tree.Node      { return r.labels.Get(key) }
func (r *run) annotation(key string) *tree.Node { return r.annotations.Get(key) }

func (r *run) annotationText(key string) (string, bool) {
	n := r.annotation(key)
	return n.Text(), n != nil
}

// decide decides about every template in order. All are rendered before any is
// planned: which containers are the user's own depends on what all of them bring.
func (r *run) decide() []Decision {
	rules := rules()
	candidates := make([]candidate, len(r.set.Templates))
	for i, t := range r.set.Templates {
		c := &candidates[i]
		*c = candidate{run: r, t: t, input: r.input, decision: Decision{Template: t.Name, Revision: t.Revision}}
		c.decision.Code, c.decision.Message = c.render(rules)
		switch c.decision.Code {
		case "":
			r.candidates = append(r.candidates, c)
		case CodePodNotMatched, CodeConditionFalse, CodeInvalidParameter, CodeRenderFailed:
			r.flipped = append(r.flipped, t)
		}
	}
	for _, c := range r.candidates {
		c.plan()
	}
	decisions := make([]Decision, len(candidates))
	for i := range candidates {
		decisions[i] = candidates[i].decision
	}
	return decisions
}

// render applies the rules and renders the fragment; a code other than "" says
// why there is none.
func (c *candidate) render(rules []rule) (Code, string) {
	if why := c.leftOut[c.t.Name]; why != "" {
		return CodeRenderFailed, why
	}
	for _, rule := range rules {
		if code, message := rule(c); code != "" {
			return code, message
		}
	}
	var invalid, err error
	c.values, invalid = c.t.Values(c.annotationText, &c.req.Namespace)
	c.decision.Params = c.values
	ok, err := c.t.Condition(&c.input, c.values)
	switch {
	case err == nil && !ok:
		return CodeConditionFalse, fmt.Sprintf("its condition does not hold: %s", c.t.Spec.Match.Condition)
	case invalid != nil:
		return CodeInvalidParameter, invalid.Error()
	case err != nil:
		return CodeRenderFailed, err.Error()
	}
	if c.fragment, err = c.t.Render(&c.input, c.values); err != nil {
		return CodeRenderFailed, err.Error()
	}
	c.prepare()
	return "", ""
}

// maxFindings bounds what is said about a pod's annotations: nobody reads more,
// and looking for the closest name takes time.
const maxFindings = 16

// findings are the names in the pod's annotations that nothing answers to.
func (r *run) findings() []Finding {
	c := &candidate{run: r}
	for _, rule := range []rule{mirrorPod, excludedNamespace, notOptedIn} {
		if code, _ := rule(c); code != "" {
			return nil // not ours to comment on
		}
	}
	byName := map[string]*templates.Template{}
	for _, t := range r.set.Templates {
		byName[t.Name] = t
	}
	known := slices.Sorted(maps.Keys(byName))
	all := r.ownKeys()
	for _, name := range slices.Sorted(maps.Keys(r.requested.names)) {
		if byName[name] == nil && len(all) < maxFindings {
			all = append(all, Finding{CodeUnknownTemplate, name, fmt.Sprintf("the annotation %s names the template %q, which does not exist%s",
				AnnotationTemplates, name, didYouMean(name, known))})
		}
	}
	members := r.annotations.Members()
	for i := range members {
		if f, ok := unknownAnnotation("", members[i].Name(), byName, known); ok && len(all) < maxFindings {
			all = append(all, f)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.req.Namespace.Annotations)) {
		if f, ok := unknownAnnotation("namespace's ", key, byName, known); ok && len(all) < maxFindings {
			all = append(all, f)
		}
	}
	return all
}

// ownKeys finds keys and values of Pillion's own that mean nothing.
func (r *run) ownKeys() []Finding {
	var all []Finding
	for _, place := range []struct {
		what  string
		n     *tree.Node
		known string
	}{{"label", r.labels, LabelInject}, {"annotation", r.annotations, AnnotationTemplates}} {
		members := place.n.Members()
		for i := range members {
			key := members[i].Name()
			if strings.HasPrefix(key, templates.Domain+"/") && key != place.known && len(all) < maxFindings {
				all = append(all, Finding{CodeUnknownParameter, key, fmt.Sprintf("the %s %s means nothing; there is only %s", place.what, key, place.known)})
			}
		}
	}
	if label := r.label(LabelInject); label != nil && !label.IsText(Enabled) && !label.IsText(Disabled) {
		all = append(all, Finding{CodeUnknownParameter, LabelInject, fmt.Sprintf("the label %s: %s means nothing; it must be %s or %s", LabelInject, label, Enabled, Disabled)})
	}
	return all
}

func unknownAnnotation(whose, key string, byName map[string]*templates.Template, known []string) (Finding, bool) {
	template, name, ok := templates.SplitAnnotation(key)
	if !ok || name == templates.AnnotationInjected {
		return Finding{}, false // what was injected once may be gone since
	}
	t := byName[template]
	if t == nil {
		return Finding{CodeUnknownTemplate, key, fmt.Sprintf("the %sannotation %s is for the template %q, which does not exist%s",
			whose, key, template, didYouMean(template, known))}, true
	}
	names := append(t.ParamNames(), templates.AnnotationCustomize)
	if slices.Contains(names, name) {
		return Finding{}, false
	}
	return Finding{CodeUnknownParameter, key, fmt.Sprintf("the %sannotation %s sets a parameter that the template %s does not have%s",
		whose, key, template, didYouMean(name, names))}, true
}

func didYouMean(name string, candidates []string) string {
	if c := templates.Closest(name, candidates); c != "" {
		return fmt.Sprintf("; did you mean %q?", c)
	}
	return ""
}
