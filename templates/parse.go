// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Parse reads, checks and compiles the templates of one file, which is a YAML stream (JSON is
// YAML). Each problem has file, line and path. Parse does not return templates with problems.
func Parse(file string, data []byte) ([]*Template, Problems) {
	var all []*Template
	var problems Problems
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all, problems
		}
		if err != nil {
			line, message := notYAML(data, err)
			return all, append(problems, Problem{File: file, Line: line, Message: message})
		}
		if len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null" {
			continue
		}
		t, found := parseOne(file, doc.Content[0])
		slices.SortStableFunc(found, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
		problems = append(problems, found...)
		if t != nil {
			all = append(all, t)
		}
	}
}

// maxNodes limits the number of nodes of a document after its aliases are expanded.
const maxNodes = 100_000

func parseOne(file string, y *yaml.Node) (*Template, Problems) {
	c := &checker{file: file, meant: map[string]bool{}}
	y, problem := unfolded(y)
	if problem != nil {
		problem.File = file
		return nil, Problems{*problem}
	}
	if !c.identity(y, Kind) {
		return nil, c.problems // its keys have no meaning here
	}
	shell := c.walk(y, reflect.TypeFor[document](), "", "")
	var doc document
	if shell == nil {
		return nil, c.problems
	}
	if err := json.Unmarshal(shell.static.AppendTo(nil), &doc); err != nil {
		c.problem(y, "", "%v", err) // a bug of the checker, which should have found it
		return nil, c.problems
	}
	t := &Template{Name: doc.Metadata.Name, File: file, line: at(y, "metadata", "name").Line, Spec: doc.Spec, params: map[string]*param{}}
	if !isLabel(t.Name) {
		c.problem(at(y, "metadata", "name"), "metadata.name", "must be a DNS label: at most 63 of a-z, 0-9 and -")
	}
	c.selectors(y, t)
	c.protect(y, t)
	c.labels(y, t)
	if !c.params(y, t) {
		return nil, c.problems // expressions would only report them again
	}
	c.expressions(y, t)
	c.placement(y, t)
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	t.defaults()
	for _, p := range t.params {
		p.key = t.Key(&p.Param)
	}
	t.presets()
	whole, err := tree.FromYAML(y)
	if err != nil { // an unknown tag, or a number that JSON lacks
		line, message := tree.CutLine(err.Error())
		return nil, Problems{{File: file, Line: line, Message: "not YAML: " + message}}
	}
	t.Revision = revision(&whole)
	t.asksIfSet = c.asksIfSet
	t.reads, t.uses, t.readsRequest, t.readsGated = c.compiler.reads, c.compiler.uses, c.compiler.readsRequest, c.compiler.readsGated
	t.noteAccount(c.compiler.readsAccount)
	t.reads.noteSources(t.Spec.Params)
	if t.Spec.Match.PodSelector != nil {
		t.reads["metadata.labels"] = true
	}
	return t, nil
}

// identity reports whether the document is of a kind.
func (c *checker) identity(y *yaml.Node, kind string) bool {
	for _, want := range [][2]string{{"apiVersion", APIVersion}, {"kind", kind}} {
		switch found := child(y, want[0]); {
		case found == nil:
			c.problem(y, want[0], "is missing; it must be %s", want[1])
		case found.Value != want[1]:
			hint := ""
			if found.Value == TestKind {
				hint = "; move tests to a subfolder"
			}
			c.problem(found, want[0], "must be %s, not %q%s", want[1], found.Value, hint)
		}
	}
	return len(c.problems) == 0
}

func (c *checker) selectors(y *yaml.Node, t *Template) {
	match := &t.Spec.Match
	t.NamespaceSelector = c.selector(at(y, "spec", "match", "namespaceSelector"), "spec.match.namespaceSelector", match.NamespaceSelector)
	t.PodSelector = c.selector(at(y, "spec", "match", "podSelector"), "spec.match.podSelector", match.PodSelector)
}

// selector compiles a label selector. It returns nil, which matches everything, if there is none.
func (c *checker) selector(y *yaml.Node, path string, s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		c.problem(y, path, "%s", brief(err.Error()))
	}
	return selector
}

// protect checks that containers have each protected field.
func (c *checker) protect(y *yaml.Node, t *Template) {
	list := child(child(child(y, "spec"), "validate"), "protect")
	for i, path := range t.Spec.Validate.Protect {
		if path == ProtectAll {
			continue
		}
		typ := reflect.TypeFor[corev1.Container]()
		for name := range strings.SplitSeq(path, ".") {
			names, next := fieldOf(typ, name)
			if next == nil {
				c.problem(list.Content[i], fmt.Sprintf("spec.validate.protect[%d]", i), "a container has no field %q%s", path, DidYouMean(name, names))
				break
			}
			typ = next
		}
	}
}

// expressions compiles the condition and the fragments.
func (c *checker) expressions(y *yaml.Node, t *Template) {
	var err error
	if c.compiler, err = newCompiler(t.Spec.Params); err != nil {
		c.problem(y, "", "%v", err)
		return
	}
	if !c.variables(y, t) {
		return // expressions that read them would only report them again
	}
	if source := t.Spec.Match.Condition; source != "" {
		if t.condition, err = c.compiler.compileBool(c.compiler.env, source); err != nil {
			c.problem(at(y, "spec", "match", "condition"), "spec.match.condition", "%v", err)
		} else {
			t.conjuncts = sync.OnceValue(t.condition.conjuncts)
		}
	}
	c.computedEnds(y, t)
	c.os = t.Spec.Match.OS
	spec := child(y, "spec")
	pod, each := child(spec, "pod"), items(child(spec, "forEachContainer"))
	if pod == nil && len(each) == 0 && !c.meant["spec.pod"] && !c.meant["spec.forEachContainer"] {
		c.problem(at(y, "spec"), "spec", "adds nothing: give it pod, forEachContainer or both")
	}
	t.pod = &part{static: tree.Members()}
	if pod != nil {
		c.env = c.compiler.env
		t.pod = c.walk(pod, reflect.TypeFor[corev1.Pod](), "", "spec.pod")
		t.order = c.podRules(pod, "spec.pod")
		t.Containers = eachOnce(t.order["initContainers"], t.order["containers"])
		t.generates = slices.ContainsFunc(t.Containers, IsGenerated)
	}
	c.env = c.compiler.each
	for i, item := range each {
		t.forEach = append(t.forEach, c.eachContainer(item, fmt.Sprintf("spec.forEachContainer[%d]", i), pod))
	}
}

func (c *checker) eachContainer(item *yaml.Node, path string, pod *yaml.Node) forEach {
	var f forEach
	var err error
	if where := child(item, "where"); where != nil {
		if f.where, err = c.compiler.compileBool(c.env, where.Value); err != nil {
			c.problem(where, path+".where", "%v", err)
		} else {
			f.named, f.differs = namedIn(f.where), f.where.readsContainer()
		}
	}
	if init := child(item, "initContainers"); init != nil {
		f.initContainers = init.Value == "true"
	}
	add := child(item, "add")
	if f.initContainers {
		c.forbid(add, path+".add", "init containers cannot have this; leave out initContainers: true", "lifecycle")
	}
	if add == nil {
		c.problem(item, path+".add", "is missing")
		return f
	}
	f.add = c.walk(add, reflect.TypeFor[corev1.Container](), "", path+".add")
	c.forEachRules(add, path+".add", pod)
	return f
}

// defaults sets the defaults, so that other code does not have to know them.
func (t *Template) defaults() {
	t.Computed = t.pod.computedFields()
	if t.Spec.Match.OS == "" {
		t.Spec.Match.OS = corev1.Linux
	}
	t.Spec.Placement.defaults(t.pod)
	if t.Spec.ServiceAccountToken == "" {
		t.Spec.ServiceAccountToken = Inherit
	}
	if t.Spec.Validate.Mode == "" {
		t.Spec.Validate.Mode = Warn
		if t.Spec.Required {
			t.Spec.Validate.Mode = Deny
		}
	}
	if t.Spec.Required && t.Spec.Validate.Protect == nil {
		t.Spec.Validate.Protect = []string{ProtectAll}
		t.Unprotected = t.Computed
	}
}

// computedEnds compiles the ends that are a ${...}.
func (c *checker) computedEnds(y *yaml.Node, t *Template) {
	for i, list := range containerLists {
		source := string(t.Spec.Placement.In(list).End)
		if !strings.Contains(source, "${") {
			continue
		}
		position, path := at(y, "spec", "placement", list), "spec.placement."+list
		pieces, err := c.compiler.split(c.compiler.env, source)
		switch {
		case err != nil:
			c.problem(position, path, "%v", err)
		case len(pieces) != 1 || pieces[0].program == nil || !pieces[0].program.out.IsExactType(cel.StringType):
			c.problem(position, path, "must be First, Last, or one ${...} that gives First or Last")
		default:
			t.ends[i] = pieces[0].program
		}
	}
}

// placement checks the positions.
func (c *checker) placement(y *yaml.Node, t *Template) {
	placement := child(child(y, "spec"), "placement")
	for _, list := range containerLists {
		position, p := child(placement, list), t.Spec.Placement.In(list)
		if position == nil || position.Kind != yaml.MappingNode {
			continue
		}
		path := "spec.placement." + list
		switch name := p.After + p.Before; {
		case p.After != "" && p.Before != "":
			c.problem(position, path, "has both after and before; leave one out")
		case strings.Contains(name, "${"):
			c.problem(position, path, "must name a container; only First and Last can be computed")
		case len(position.Content) == 0:
			c.problem(position, path, "must be First, Last, {after: NAME} or {before: NAME}")
		case name != "" && t.Brings(name):
			c.problem(position, path, "names the template's own container %s; name a container of the pods, or of a template with a lower order", name)
		}
	}
}

// defaults sets the ends, given the compiled spec.pod.
func (p *Placement) defaults(pod *part) {
	if p.Containers.End == "" {
		p.Containers.End = Last
	}
	if p.InitContainers.End == "" {
		p.InitContainers.End = Last
		for _, c := range pod.member("spec").member("initContainers").items() {
			if policy := c.member("restartPolicy"); policy != nil && policy.static.IsText(string(corev1.ContainerRestartPolicyAlways)) {
				p.InitContainers.End = First
			}
		}
	}
}

// revision returns the hash of the document as canonical JSON with sorted keys. Comments, order and
// layout do not change it.
func revision(n *tree.Node) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(n.AppendTo(nil)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		panic("templates: a checked document is no JSON: " + err.Error())
	}
	canonical, err := json.Marshal(v)
	if err != nil {
		panic("templates: a checked document is no JSON: " + err.Error())
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])[:12]
}

// noteAccount records whether the template reads the ServiceAccount, in expressions or parameters.
func (t *Template) noteAccount(byExpressions bool) {
	t.readsAccount = byExpressions
	for i := range t.Spec.Params {
		if t.Spec.Params[i].Overridable(ByServiceAccount) {
			t.readsAccount, t.accountSets, t.reads[accountName] = true, true, true
		}
	}
}
