// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
	"github.com/pillion-dev/pillion/templates/validation"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// maxBroken limits the documents of a file that are no YAML, because each of them is a reason to read the rest again.
const maxBroken = 20

// Parse reads, checks and compiles the templates of one file, which is a YAML stream (JSON is
// YAML). Each problem has file, line and path. Parse does not return templates with problems.
// It goes on after a document that is no YAML, up to maxBroken times.
func Parse(file string, data []byte) (all []*Template, problems problem.Problems) {
	for range maxBroken {
		found, bad, rest := parseStream(file, data)
		all, problems = append(all, found...), append(problems, bad...)
		if data = rest; data == nil {
			break
		}
	}
	return all, slices.Compact(problems) // a document that is no YAML from its first line on can be read twice
}

// parseStream returns the templates in a stream up to a document that is no YAML. Rest is what follows that document, at the
// same lines, or nil.
func parseStream(file string, data []byte) (all []*Template, problems problem.Problems, rest []byte) {
	decoder, applied := yaml.NewDecoder(bytes.NewReader(data)), newKubectlReader(data)
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all, problems, nil
		}
		if err != nil {
			line, message := notYAML(data, err)
			return all, append(problems, problem.Problem{File: file, Line: line, Message: message}), documentAfter(data, line)
		}
		if noValue(&doc) {
			continue
		}
		t, found := parseOne(file, doc.Content[0], applied.nextDocument())
		slices.SortStableFunc(found, func(a, b problem.Problem) int { return cmp.Compare(a.Line, b.Line) })
		name := yamlnode.At(doc.Content[0], "metadata", "name").Value
		for i := range found {
			if validation.IsLabel(name) {
				found[i].Template = name
			}
		}
		problems = append(problems, found...)
		if t != nil {
			all = append(all, t)
		}
	}
}

// documentAfter returns the rest of a stream from the first document that begins in a line or later, after as many empty lines as
// the text before it has. It returns nil if there is none. In YAML, a line that begins with --- begins a document, even in a
// quoted string.
func documentAfter(stream []byte, line int) []byte {
	begin, at := 0, 0
	for text := range bytes.Lines(stream) {
		at++
		marker := bytes.TrimRight(text, " \t\r\n")
		if begins := bytes.Equal(marker, []byte("---")) || bytes.HasPrefix(text, []byte("--- ")); begins && at >= line && len(bytes.TrimSpace(stream[:begin])) > 0 {
			return append(bytes.Repeat([]byte("\n"), at-1), stream[begin:]...)
		}
		begin += len(text)
	}
	return nil
}

// maxExpressions limits the number of ${...} of a template. One takes up to 10 KB of memory.
const maxExpressions = 500

// maxPositions limits the positions of spec.placement in one list of containers. Each is looked for among the pod's containers.
const maxPositions = 8

// parseOne returns the template of one document. Applied is the same document as kubectl finds it.
func parseOne(file string, y *yaml.Node, applied []byte) (*Template, problem.Problems) {
	c := newParser(file)
	y, wrong := unfoldAliases(y)
	if wrong != nil {
		wrong.File = file
		return nil, problem.Problems{*wrong}
	}
	if n := fragment.CountExpressions(y); n > maxExpressions {
		c.ReportProblem(y, "", "has %d expressions, and at most %d are allowed", n, maxExpressions)
		return nil, c.Problems()
	}
	kind := c.checkIdentity(y, v1alpha1.ClusterKind, v1alpha1.NamespacedKind)
	if kind == "" {
		return nil, c.Problems() // its keys have no meaning here
	}
	shell := c.CheckNode(y, reflect.TypeFor[document](), "", "")
	var doc document
	if shell == nil {
		return nil, c.Problems()
	}
	if err := json.Unmarshal(shell.Static().AppendTo(nil), &doc); err != nil {
		c.ReportProblem(y, "", "%v", err) // a bug of the checker, which should have found it
		return nil, c.Problems()
	}
	t := &Template{
		Name: doc.Metadata.Name, Namespace: doc.Metadata.Namespace, File: file, line: yamlnode.At(y, "metadata", "name").Line,
		Spec: doc.Spec,
	}
	if !validation.IsLabel(t.Name) {
		c.ReportProblem(yamlnode.At(y, "metadata", "name"), "metadata.name", "must be a DNS label: at most 63 of a-z, 0-9 and -")
	}
	c.checkScope(y, t, kind)
	c.checkReplaces(y, t)
	c.checkRollout(y, t)
	c.checkSets(y)
	c.compileSelectors(y, t)
	c.checkProtectedFields(y, t)
	c.checkLabels(y, t)
	c.annotationDomains(y, t)
	c.LeaveOutReads("params", c.checkParams(y, t)...)
	c.compileExpressions(y, t)
	c.checkPlacement(y, t)
	if len(c.Problems()) > 0 {
		return nil, c.Problems()
	}
	t.setDefaults()
	t.renderPresets()
	whole, err := jsontree.FromYAML(y)
	if err != nil { // an unknown tag, or a number that JSON lacks
		line, message := jsontree.CutLine(err.Error())
		return nil, problem.Problems{{File: file, Line: line, Message: "not YAML: " + message}}
	}
	if !c.sameApplied(y, applied) {
		return nil, c.Problems()
	}
	t.Revision = hashCanonicalJSON(contentForPods(whole.Get("spec")))
	t.asksIfSet = c.AsksIfSet()
	t.reads = c.compiler.Dependencies()
	t.reads.NoteParams(t.Spec.Params, t.params)
	if t.Spec.Match.PodSelector != nil {
		t.reads.NoteLabels()
	}
	return t, nil
}

// checkScope checks that the namespace fits the kind.
func (c *parser) checkScope(y *yaml.Node, t *Template, kind string) {
	namespace, selector := yamlnode.At(y, "metadata", "namespace"), yamlnode.At(y, "spec", "match", "namespaceSelector")
	switch namespaced := kind == v1alpha1.NamespacedKind; {
	case !namespaced && t.Namespace != "":
		c.ReportProblem(namespace, "metadata.namespace", "a %s is for all namespaces; leave this out, or use the kind %s", kind, v1alpha1.NamespacedKind)
	case !namespaced:
	case t.Namespace == "":
		c.ReportProblem(yamlnode.At(y, "metadata"), "metadata.namespace", "is missing: a %s is for the pods of its own namespace; the kind %s is for all namespaces", kind, v1alpha1.ClusterKind)
	case !validation.IsLabel(t.Namespace):
		c.ReportProblem(namespace, "metadata.namespace", "must be a DNS label: at most 63 of a-z, 0-9 and -")
	case t.Spec.Match.NamespaceSelector != nil:
		c.ReportProblem(selector, "spec.match.namespaceSelector", "a %s is only for the pods of its own namespace; leave this out, or use the kind %s", kind, v1alpha1.ClusterKind)
	}
}

func (c *parser) compileSelectors(y *yaml.Node, t *Template) {
	match := &t.Spec.Match
	t.NamespaceSelector = c.compileSelector(yamlnode.At(y, "spec", "match", "namespaceSelector"), "spec.match.namespaceSelector", match.NamespaceSelector)
	t.PodSelector = c.compileSelector(yamlnode.At(y, "spec", "match", "podSelector"), "spec.match.podSelector", match.PodSelector)
}

// compileSelector compiles a label selector. It returns nil, which matches everything, if there is none.
func (c *parser) compileSelector(y *yaml.Node, path string, s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		c.ReportProblem(y, path, "%s", problem.TrimPattern(err.Error()))
	}
	return selector
}

// checkProtectedFields checks that containers have each protected field.
func (c *parser) checkProtectedFields(y *yaml.Node, t *Template) {
	list := yamlnode.Child(yamlnode.Child(yamlnode.Child(y, "spec"), "validate"), "protect")
	for i, path := range t.Spec.Validate.Protect {
		if path == ProtectAll {
			continue
		}
		typ := reflect.TypeFor[corev1.Container]()
		for name := range strings.SplitSeq(path, ".") {
			names, next := jsontree.FieldTypeOf(typ, name)
			if next == nil {
				c.ReportProblem(list.Content[i], fmt.Sprintf("spec.validate.protect[%d]", i), "a container has no field %q%s", path, problem.DidYouMean(name, names))
				break
			}
			typ = next
		}
	}
}

// compileExpressions compiles the condition and the fragments.
func (c *parser) compileExpressions(y *yaml.Node, t *Template) {
	var err error
	if c.compiler, err = cel.NewCompiler(t.Spec.Params); err != nil {
		c.ReportProblem(y, "", "%v", err)
		return
	}
	c.UseCompiler(c.compiler, t.Spec.Params, t.Spec.Match.OS)
	c.compileVariables(y, t)
	if source := t.Spec.Match.Condition; source != "" {
		condition := yamlnode.At(y, "spec", "match", "condition")
		if t.condition, err = c.compiler.CompileBool(c.compiler.PodScope(), source, condition.Line); err != nil {
			c.ReportProblem(condition, "spec.match.condition", "%v", err)
		}
	}
	c.computedEnds(y, t)
	spec := yamlnode.Child(y, "spec")
	pod, each := yamlnode.Child(spec, "pod"), yamlnode.Items(yamlnode.Child(spec, "forEachContainer"))
	if pod == nil && len(each) == 0 && !c.IsMisspelled("spec.pod") && !c.IsMisspelled("spec.forEachContainer") {
		c.ReportProblem(yamlnode.At(y, "spec"), "spec", "adds nothing: give it pod, forEachContainer or both")
	}
	t.pod = fragment.NewObject()
	if pod != nil {
		c.SetScope(c.compiler.PodScope())
		t.pod = c.CheckNode(pod, reflect.TypeFor[corev1.Pod](), "", "spec.pod")
		t.order = c.podRules(pod, "spec.pod")
		t.Containers = eachOnce(t.order["initContainers"], t.order["containers"])
		t.generates = slices.ContainsFunc(t.Containers, fragment.IsGenerated)
	}
	c.SetScope(c.compiler.ContainerScope())
	for i, item := range each {
		t.forEach = append(t.forEach, c.eachContainer(item, fmt.Sprintf("spec.forEachContainer[%d]", i), pod))
	}
}

func (c *parser) eachContainer(item *yaml.Node, path string, pod *yaml.Node) forEach {
	var f forEach
	var err error
	if where := yamlnode.Child(item, "where"); where != nil {
		if f.where, err = c.compiler.CompileBool(c.compiler.ContainerScope(), where.Value, where.Line); err != nil {
			c.ReportProblem(where, path+".where", "%v", err)
		} else {
			f.named, f.differs = namedIn(f.where), f.where.ReadsContainer()
		}
	}
	if init := yamlnode.Child(item, "initContainers"); init != nil {
		f.initContainers = init.Value == "true"
	}
	add := yamlnode.Child(item, "add")
	if f.initContainers {
		c.ForbidKeys(add, path+".add", "init containers cannot have this; leave out initContainers: true", "lifecycle")
	}
	if add == nil {
		c.ReportProblem(item, path+".add", "is missing")
		return f
	}
	f.add = c.CheckNode(add, reflect.TypeFor[corev1.Container](), "", path+".add")
	for _, p := range f.add.Expressions() {
		f.looksUp = append(f.looksUp, namedIn(p)...)
	}
	c.forEachRules(add, path+".add", pod)
	return f
}

// setDefaults sets the defaults, so that other code does not have to know them.
func (t *Template) setDefaults() {
	t.Computed = t.pod.ComputedFields()
	if t.Spec.Match.OS == "" {
		t.Spec.Match.OS = v1alpha1.Linux
	}
	placementDefaults(&t.Spec.Placement, t.pod)
	if t.Spec.ServiceAccountToken == "" {
		t.Spec.ServiceAccountToken = v1alpha1.Inherit
	}
	if t.Spec.Validate.Mode == "" {
		t.Spec.Validate.Mode = v1alpha1.Warn
		if t.Spec.Required {
			t.Spec.Validate.Mode = v1alpha1.Deny
		}
	}
	if t.Spec.Required && t.Spec.Validate.Protect == nil {
		t.Spec.Validate.Protect = []string{ProtectAll}
		t.Unprotected = t.Computed
	}
}

// computedEnds compiles the ends that are a ${...}.
func (c *parser) computedEnds(y *yaml.Node, t *Template) {
	for i, list := range fragment.ContainerLists {
		position, path := yamlnode.At(y, "spec", "placement", list), "spec.placement."+list
		positions := fragment.PositionsIn(&t.Spec.Placement, list)
		if len(positions) == 0 || !isDecoded(position, positions) {
			continue
		}
		source := string(positions[len(positions)-1].End)
		if !strings.Contains(source, "${") {
			continue
		}
		if position.Kind == yaml.SequenceNode {
			position, path = position.Content[len(positions)-1], fmt.Sprintf("%s[%d]", path, len(positions)-1)
		}
		pieces, err := c.compiler.CompilePieces(c.compiler.PodScope(), source, position.Line, false)
		switch {
		case err != nil:
			c.ReportProblem(position, path, "%v", err)
		case len(pieces) != 1 || pieces[0].Expression == nil || !pieces[0].Expression.Type().IsExactType(types.StringType):
			c.ReportProblem(position, path, "must be First, Last, or one ${...} that gives First or Last")
		default:
			t.ends[i] = pieces[0].Expression
		}
	}
}

// checkPlacement checks the positions.
func (c *parser) checkPlacement(y *yaml.Node, t *Template) {
	placement := yamlnode.Child(yamlnode.Child(y, "spec"), "placement")
	for _, list := range fragment.ContainerLists {
		path, positions := "spec.placement."+list, fragment.PositionsIn(&t.Spec.Placement, list)
		switch at := yamlnode.Child(placement, list); {
		case at == nil || !isDecoded(at, positions):
		case at.Kind != yaml.SequenceNode:
			c.checkPosition(at, path, positions[0], t)
		case len(positions) == 0 || len(positions) > maxPositions:
			c.ReportProblem(at, path, "has %d positions; write 1 to %d", len(positions), maxPositions)
		default:
			for i, position := range positions {
				sub := fmt.Sprintf("%s[%d]", path, i)
				if position.End != "" && i < len(positions)-1 {
					c.ReportProblem(at.Content[i], sub, "is possible for every pod, so those after it are never used; write it last")
				}
				c.checkPosition(at.Content[i], sub, position, t)
			}
		}
	}
}

// isDecoded reports whether all positions at a node are known. Problems of others are reported already.
func isDecoded(y *yaml.Node, positions v1alpha1.Positions) bool {
	if y.Kind == yaml.SequenceNode {
		return len(positions) == len(y.Content)
	}
	return len(positions) == 1
}

// checkPosition checks a position next to a container.
func (c *parser) checkPosition(y *yaml.Node, path string, p v1alpha1.Position, t *Template) {
	if y.Kind != yaml.MappingNode {
		return
	}
	switch name := p.Container(); {
	case p.After != "" && p.Before != "":
		c.ReportProblem(y, path, "has both after and before; leave one out")
	case strings.Contains(name, "${"):
		c.ReportProblem(y, path, "must name a container; only First and Last can be computed")
	case len(y.Content) == 0:
		c.ReportProblem(y, path, "must be First, Last, {after: NAME} or {before: NAME}")
	case name != "" && t.Brings(name):
		c.ReportProblem(y, path, "names the template's own container %s; name a container of the pods, or of a template with a lower order", name)
	}
}

// placementDefaults adds an end to positions that have none, given the compiled spec.pod.
func placementDefaults(p *v1alpha1.Placement, pod *fragment.Node) {
	p.Containers = withEnd(p.Containers, v1alpha1.Last)
	end := v1alpha1.Last
	for _, c := range pod.Member("spec").Member("initContainers").Items() {
		if policy := c.Member("restartPolicy"); policy != nil && policy.Static() != nil && policy.Static().IsText(string(corev1.ContainerRestartPolicyAlways)) {
			end = v1alpha1.First
		}
	}
	p.InitContainers = withEnd(p.InitContainers, end)
}

func withEnd(positions v1alpha1.Positions, end v1alpha1.End) v1alpha1.Positions {
	if n := len(positions); n > 0 && positions[n-1].End != "" {
		return positions
	}
	return append(positions, v1alpha1.Position{End: end})
}
