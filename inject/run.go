// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
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
	onHost      bool // its network is the node's
	input       templates.Input

	leftOut    map[string]string // template to why
	candidates []*candidate
	flipped    []*loaded // left out by what a template's addition may change
	added      bool
	shown      int            // how many containers expressions saw at first
	at, beside schema.Pointer // both of the pod, with room to go further
	scratch    *Scratch
	lookups
}

// lookups are what was found out about the pod, once for all templates.
type lookups struct {
	users   [2][]appContainer // see userContainers
	tokens  [2]*tree.Node     // see tokenMount
	keys    map[*tree.Node]*keys
	here    []bool           // see has
	marks   map[*loaded]bool // see marked
	ports   nodePorts        // see portsTaken
	volumes map[string]bool  // see isTokenVolume
	// ours is what ofTemplates returns, if it is known.
	ours      []templates.Runs
	oursKnown bool
	claims    map[string]bool // of Request.Claims
}

// forget is for when something was added to the pod.
func (l *lookups) forget() {
	l.users, l.ports, l.volumes, l.oursKnown = [2][]appContainer{}, nil, nil, false
}

// candidate is one template for this pod.
type candidate struct {
	*run
	t        *loaded
	decision *Decision
	input    templates.Input // its own, for what its expressions may cost
	values   templates.Values
	fragment tree.Node // what is to be there, as a partial Pod
	apps     []appContainer
}

func (i *Injector) newRun(req *Request, pod *tree.Node) *run {
	req.Scratch.log.Keep()
	req.Scratch.log.Nodes = &req.Scratch.Arena
	r := &req.Scratch.run
	*r = run{
		candidates: r.candidates[:0], scratch: req.Scratch,
		at: slices.Grow(r.at[:0], 8), beside: slices.Grow(r.beside[:0], 8), lookups: lookups{here: r.here[:0], ours: r.ours[:0]},
		Injector: i, req: req, pod: pod,
		labels:      pod.At("metadata", "labels"),
		annotations: pod.At("metadata", "annotations"),
		os:          podOS(pod),
		onHost:      pod.At("spec", "hostNetwork").Kind() == tree.True,
		input: templates.Input{
			Namespace: req.Namespace, Nodes: &req.Scratch.Arena, Done: req.Done,
			Request: templates.RequestInfo{Operation: req.Operation, Username: req.Username, DryRun: req.DryRun},
		},
	}
	for _, claim := range req.Claims {
		if r.claims == nil {
			r.claims = make(map[string]bool, len(req.Claims))
		}
		r.claims[claim] = true
	}
	r.input.Pod, r.shown = r.view()
	r.requested = parseRequested(r.annotation(AnnotationTemplates))
	return r
}

// nodes is memory for what is made to be added.
func (r *run) nodes() *tree.Arena { return r.input.Nodes }

func (r *run) optIn() *tree.Node { return r.labels.Get(LabelInject) }

func (r *run) annotation(key string) *tree.Node { return r.annotations.Get(key) }

func (r *run) annotationText(key string) (string, bool) {
	n := r.annotation(key)
	return n.Text(), n != nil
}

// decide decides about every template in order. All are rendered before any is
// planned: which containers are the user's own depends on what all of them bring.
func (r *run) decide(decisions []Decision) {
	for i, t := range r.templates {
		if r.req.gone() {
			return
		}
		d, c := &decisions[i], &r.scratch.candidates[len(r.candidates)]
		*d = Decision{Template: t.Name, Revision: t.Revision, Mode: t.Spec.Validate.Mode, audit: t.audit}
		*c = candidate{run: r, t: t, input: r.input, decision: d}
		d.Code, d.Message = c.render()
		if r.req.Detail {
			_, d.Requested = r.requested.says(t.Name)
		}
		switch d.Code {
		case "":
			r.candidates = append(r.candidates, c)
		case CodePodNotMatched, CodeConditionFalse, CodeInvalidParameter, CodeRenderFailed:
			r.flipped = append(r.flipped, t)
		}
	}
	for _, c := range r.candidates {
		if r.req.gone() {
			return
		}
		if r.added {
			c.input.Pod, _ = r.view()
		}
		c.plan()
	}
}

// render applies the rules and renders the fragment; a code other than "" says
// why there is none.
func (c *candidate) render() (Code, string) {
	if why := c.leftOut[c.t.Name]; why != "" {
		return CodeRenderFailed, why
	}
	for i := range c.rules {
		rule := &c.rules[i]
		if applies, message := rule.applies(c); applies {
			return rule.code, message
		}
		if c.req.Detail {
			c.pass(rule.code, rule.passes(c))
		}
	}
	if why := c.tooMany(); why != "" {
		return CodeRenderFailed, why
	}
	var invalid error
	if c.setsParams() {
		c.values, invalid = c.t.Values(c.annotationText, &c.req.Namespace)
	} else {
		c.values, invalid = c.t.Values(nil, &c.req.Namespace)
	}
	c.decision.Params = c.values
	ok, err := c.t.Condition(&c.input, c.values)
	if err == nil && !ok {
		return CodeConditionFalse, "its condition does not hold: " + c.t.Spec.Match.Condition
	}
	if err == nil && c.req.Detail {
		c.pass(CodeConditionFalse, whyCondition(c))
	}
	if invalid != nil {
		c.decision.Obstacles = c.invalid(invalid)
		return CodeInvalidParameter, invalid.Error()
	}
	c.pass(CodeInvalidParameter, "every parameter has a value that is allowed")
	if err == nil {
		c.fragment, err = c.t.Render(&c.input, c.values)
	}
	if err != nil {
		return CodeRenderFailed, err.Error()
	}
	c.prepare()
	return "", ""
}

// setsParams says whether the pod may set parameters of the template.
func (c *candidate) setsParams() bool {
	members, prefix := c.annotations.Members(), c.t.prefix
	for i := range members {
		if name := members[i].Name(); strings.HasPrefix(name, prefix) && name != c.t.injected {
			return true
		}
	}
	return false
}

// pass notes that a rule does not apply.
func (c *candidate) pass(code Code, why string) {
	if c.req.Detail {
		c.decision.Passed = append(c.decision.Passed, Step{code, why})
	}
}

func whyCondition(c *candidate) string {
	if c.t.Spec.Match.Condition == "" {
		return "the template has no condition"
	}
	return "its condition holds: " + c.t.Spec.Match.Condition
}

// invalid is the place of a parameter's value that is not allowed, if it is in the pod.
func (c *candidate) invalid(err error) []Obstacle {
	v, ok := errors.AsType[*templates.InvalidValueError](err)
	if !ok || v.Source == templates.FromNamespace {
		return nil
	}
	return []Obstacle{{newPlace(annotationPath(v.Key), c.annotation(v.Key), nil), v.Error()}}
}

func annotationPath(key string) string { return "/metadata/annotations/" + tree.Escape(key) }

// maxFindings bounds what is said about a pod's annotations: nobody reads more,
// and looking for the closest name takes time.
const maxFindings = 16

// names are the mistakes in the annotations of a pod and its namespace.
type names struct {
	*Injector
	all []Finding
}

func (n *names) add(f Finding) {
	if len(n.all) < maxFindings {
		n.all = append(n.all, f)
	}
}

// findings are the names in the pod's annotations that nothing answers to.
func (r *run) findings() []Finding {
	for _, ofPod := range []func(*run) (bool, string){mirrorPod, excludedNamespace, notOptedIn} {
		if applies, _ := ofPod(r); applies {
			return nil // not ours to comment on
		}
	}
	n := &names{Injector: r.Injector}
	r.ownKeys(n)
	for _, name := range r.requested.sorted() {
		if len(n.all) == maxFindings {
			break
		}
		if n.byName[name] == nil {
			n.add(Finding{
				Code: CodeUnknownTemplate, Path: annotationPath(AnnotationTemplates), Found: quoted(r.annotation(AnnotationTemplates)),
				Message: fmt.Sprintf("the annotation %s names the unknown template %q%s", AnnotationTemplates, name, didYouMean(name, n.names)),
				unknown: name,
			})
		}
	}
	members := r.annotations.Members()
	for _, known := range []bool{true, false} { // those of templates that there are first
		for i := range members {
			if f, ok := n.unknown("", members[i].Name(), known); ok {
				f.Path, f.Found = annotationPath(members[i].Name()), quoted(&members[i])
				n.add(f)
			}
		}
	}
	for _, key := range r.namespaceKeys() {
		for _, known := range []bool{true, false} {
			if f, ok := n.unknown("namespace's ", key, known); ok {
				n.add(f)
			}
		}
	}
	return n.all
}

// namespaceKeys are the keys of the namespace's annotations that look like a template's.
func (r *run) namespaceKeys() []string {
	var keys []string
	for key := range r.req.Namespace.Annotations {
		if _, _, ok := templates.SplitAnnotation(key); ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func quoted(n *tree.Node) string {
	if n == nil {
		return ""
	}
	return n.String()
}

// ownKeys finds keys and values of Pillion's own that mean nothing.
func (r *run) ownKeys(n *names) {
	for _, place := range []struct {
		what, path string
		n          *tree.Node
		known      string
	}{
		{"label", "/metadata/labels/", r.labels, LabelInject},
		{"annotation", "/metadata/annotations/", r.annotations, AnnotationTemplates},
	} {
		members := place.n.Members()
		for i := range members {
			key := members[i].Name()
			if strings.HasPrefix(key, templates.Domain+"/") && key != place.known && (key != AnnotationUninject || place.n != r.annotations) {
				n.add(Finding{
					Code: CodeUnknownParameter, Path: place.path + tree.Escape(key), Found: quoted(&members[i]),
					Message: fmt.Sprintf("the %s %s means nothing; did you mean %s?", place.what, key, place.known),
				})
			}
		}
	}
	if label := r.optIn(); label != nil && !label.IsText(Enabled) && !label.IsText(Disabled) {
		n.add(Finding{
			Code: CodeUnknownParameter, Path: "/metadata/labels/" + tree.Escape(LabelInject), Found: quoted(label),
			Message: fmt.Sprintf("the label %s: %s means nothing; it must be %s or %s", LabelInject, label, Enabled, Disabled),
		})
	}
}

// unknown says what is wrong with an annotation that looks like one of a
// template's, of a template that is known or of one that is not.
func (n *names) unknown(whose, key string, known bool) (Finding, bool) {
	template, name, ok := templates.SplitAnnotation(key)
	t := n.byName[template]
	if !ok || len(n.all) == maxFindings || (t != nil) != known || name == templates.AnnotationInjected {
		return Finding{}, false // what was injected once may be gone since
	}
	if t == nil {
		return Finding{Code: CodeUnknownTemplate, unknown: template, Message: fmt.Sprintf("the %sannotation %s is for the unknown template %q%s",
			whose, key, template, didYouMean(template, n.names))}, true
	}
	all := t.settable
	if slices.Contains(all, name) {
		return Finding{}, false
	}
	return Finding{Code: CodeUnknownParameter, Template: template, Message: fmt.Sprintf("the %sannotation %s sets no parameter%s",
		whose, key, didYouMean(name, all))}, true
}

func didYouMean(name string, candidates []string) string {
	if c := templates.Closest(name, candidates); c != "" {
		return fmt.Sprintf("; did you mean %q?", c)
	}
	return ""
}
