// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Parse reads, checks and compiles the templates of one file: a YAML stream
// (JSON is YAML). Each problem names file, line and path; a template with
// problems is not returned.
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
			return all, append(problems, yamlProblem(file, err))
		}
		if len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null" {
			continue
		}
		t, found := parseOne(file, doc.Content[0])
		problems = append(problems, found...)
		if t != nil {
			all = append(all, t)
		}
	}
}

// yamlProblem takes the line out of the YAML library's "yaml: line 3: ..." text.
func yamlProblem(file string, err error) Problem {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	p := Problem{File: file, Message: "not YAML: " + text}
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, message, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(number); err == nil {
				p.Line, p.Message = line, "not YAML: "+message
			}
		}
	}
	return p
}

func parseOne(file string, y *yaml.Node) (*Template, Problems) {
	c := &checker{file: file, fragments: map[reflect.Type][]fragmentAt{}}
	if left := maxNodes; !unfold(y, &left) {
		c.problem(y, "", "the document has more than %d values, aliases unfolded", maxNodes)
		return nil, c.problems
	}
	if !c.identity(y) {
		return nil, c.problems // its keys mean nothing to us
	}
	shell := c.walk(y, reflect.TypeFor[document](), "")
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	var doc document
	if err := json.Unmarshal(shell.static.AppendTo(nil), &doc); err != nil {
		c.problem(y, "", "%v", err) // a mistake of the checker, which should have found it
		return nil, c.problems
	}
	t := &Template{Name: doc.Metadata.Name, File: file, Spec: doc.Spec, params: map[string]*param{}}
	if !regexp.MustCompile(dnsLabel).MatchString(t.Name) {
		c.problem(at(y, "metadata", "name"), "metadata.name", "must be a DNS label: at most 63 of a-z, 0-9 and -")
	}
	c.params(y, t)
	c.selectors(y, t)
	if len(c.problems) > 0 {
		return nil, c.problems // expressions would only repeat them
	}
	c.expressions(y, t)
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	t.defaults()
	t.Revision = revision(y)
	t.reads = c.compiler.reads
	if t.Spec.Match.PodSelector != nil {
		t.reads["metadata.labels"] = true
	}
	return t, nil
}

// dnsLabel is RFC 1123's, as Kubernetes takes it for names.
const dnsLabel = `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`

// maxNodes bounds what the aliases of a document can unfold to.
const maxNodes = 100_000

// unfold puts what an alias stands for in its place.
func unfold(y *yaml.Node, left *int) bool {
	if *left--; *left < 0 {
		return false
	}
	for i, item := range y.Content {
		if item.Kind == yaml.AliasNode {
			y.Content[i] = item.Alias
		}
		if !unfold(y.Content[i], left) {
			return false
		}
	}
	return true
}

// identity says whether the document is a SidecarTemplate at all.
func (c *checker) identity(y *yaml.Node) bool {
	for _, want := range [][2]string{{"apiVersion", APIVersion}, {"kind", Kind}} {
		switch found := child(y, want[0]); {
		case found == nil:
			c.problem(y, want[0], "is missing; it must be %s", want[1])
		case found.Value != want[1]:
			c.problem(found, want[0], "must be %s, not %q", want[1], found.Value)
		}
	}
	return len(c.problems) == 0
}

func (c *checker) selectors(y *yaml.Node, t *Template) {
	match := &t.Spec.Match
	t.NamespaceSelector = c.selector(at(y, "spec", "match", "namespaceSelector"), "spec.match.namespaceSelector", match.NamespaceSelector)
	t.PodSelector = c.selector(at(y, "spec", "match", "podSelector"), "spec.match.podSelector", match.PodSelector)
}

// selector is nil where there is none, which matches everything.
func (c *checker) selector(y *yaml.Node, path string, s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		c.problem(y, path, "%v", err)
	}
	return selector
}

// expressions compiles the condition and the fragments.
func (c *checker) expressions(y *yaml.Node, t *Template) {
	var err error
	if c.compiler, err = newCompiler(t.Spec.Params); err != nil {
		c.problem(y, "", "%v", err)
		return
	}
	if source := t.Spec.Match.Condition; source != "" {
		if t.condition, err = c.compiler.compileBool(c.compiler.env, source); err != nil {
			c.problem(at(y, "spec", "match", "condition"), "spec.match.condition", "%v", err)
		}
	}
	c.env = c.compiler.env
	for _, f := range c.fragments[reflect.TypeFor[podFragment]()] {
		t.pod = c.walk(f.node, reflect.TypeFor[corev1.Pod](), f.path)
		t.Containers = c.podRules(f.node, f.path)
	}
	if t.pod == nil {
		t.pod = &part{static: tree.Members()}
	}
	c.env = c.compiler.each
	for i, f := range c.fragments[reflect.TypeFor[containerFragment]()] {
		entry := forEach{initContainers: t.Spec.ForEachContainer[i].InitContainers}
		if source := t.Spec.ForEachContainer[i].Where; source != "" {
			if entry.where, err = c.compiler.compileBool(c.env, source); err != nil {
				path := fmt.Sprintf("spec.forEachContainer[%d].where", i)
				c.problem(f.node, path, "%v", err)
			}
		}
		entry.add = c.walk(f.node, reflect.TypeFor[corev1.Container](), f.path)
		c.forEachRules(f.node, f.path, at(y, "spec", "pod"))
		t.forEach = append(t.forEach, entry)
	}
	if c.fragments[reflect.TypeFor[podFragment]()] == nil && t.forEach == nil {
		c.problem(at(y, "spec"), "spec", "adds nothing: give it pod, forEachContainer or both")
	}
}

// defaults fills in what has a default, so that nobody else needs to know it.
func (t *Template) defaults() {
	if t.Spec.Match.OS == "" {
		t.Spec.Match.OS = corev1.Linux
	}
	if t.Spec.Placement.Containers == "" {
		t.Spec.Placement.Containers = Last
	}
	if t.Spec.ServiceAccountToken == "" {
		t.Spec.ServiceAccountToken = Inherit
	}
	if t.Spec.Validate.Mode == "" {
		t.Spec.Validate.Mode = Warn
		if t.Spec.Required {
			t.Spec.Validate.Mode = Deny
		}
	}
}

// revision is taken of the document as canonical JSON (keys sorted), so that
// comments, order and layout do not count.
func revision(y *yaml.Node) string {
	n, err := tree.FromYAML(y)
	if err != nil {
		panic("templates: a checked document has no JSON: " + err.Error())
	}
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

// at is the value at that path, or the last value on the way that is there, so
// that a problem always has a line.
func at(y *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		next := child(y, key)
		if next == nil {
			return y
		}
		y = next
	}
	return y
}

// child is a mapping's value, or nil.
func child(y *yaml.Node, key string) *yaml.Node {
	if y == nil || y.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(y.Content); i += 2 {
		if y.Content[i].Value == key {
			return y.Content[i+1]
		}
	}
	return nil
}
