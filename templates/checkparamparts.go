// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// checkParamSource checks where the values of a parameter come from.
func (c *checker) checkParamSource(node *yaml.Node, path string, p *v1alpha1.Param) {
	if p.Annotation != "" && p.Prefix != "" {
		c.reportProblem(yamlAt(node, "prefix"), path+".prefix", "is not allowed together with annotation; leave one out")
	}
	if p.Prefix != "" && p.Type != mapParam {
		c.reportProblem(yamlAt(node, "type"), path+".type", "must be map: a prefix may select several annotations")
	}
	if p.Prefix != "" && p.Separator != "" {
		c.reportProblem(yamlAt(node, "separator"), path+".separator", "has no meaning with a prefix: each annotation has one value")
	}
	for _, key := range []struct{ field, value, whole string }{{"annotation", p.Annotation, p.Annotation}, {"prefix", p.Prefix, p.Prefix + "a"}} {
		if key.value == "" {
			continue
		}
		domain, _, _ := strings.Cut(key.value, "/")
		switch errs := validation.IsQualifiedName(key.whole); {
		case domain == Domain || strings.HasSuffix(domain, "."+Domain):
			c.reportProblem(yamlAt(node, key.field), path+"."+key.field, "must not be in the domain %s, which is Pillion's own; leave it out, and users set TEMPLATE.%s/%s", Domain, Domain, p.Name)
		case len(errs) > 0:
			c.reportProblem(yamlAt(node, key.field), path+"."+key.field, "is no key of an annotation: %s%s", problem.TrimPattern(errs[0]), ofMany(key.value))
		case key.field == "prefix" && domain == key.value:
			c.reportProblem(yamlAt(node, key.field), path+"."+key.field, "must begin with a domain, as in example.com/secret-")
		}
	}
}

// ofMany returns a hint if a key has a * for several keys.
func ofMany(key string) string {
	if prefix, ok := strings.CutSuffix(key, "*"); ok && strings.Contains(prefix, "/") {
		return "; for all annotations that begin with it, write prefix: " + prefix
	}
	return ""
}

// checkParamParts checks and compiles what the items and keys of a value must be.
func (c *checker) checkParamParts(node *yaml.Node, path string, p *param) {
	of := p.row.parts
	for _, option := range []struct {
		field string
		set   bool
		ok    bool
	}{
		{"items", p.Items != nil, of == ofItems || of == ofPairs},
		{"maxItems", p.MaxItems != nil, of == ofItems || of == ofPairs},
		{"keyPattern", p.KeyPattern != "", of == ofPairs},
		{"keys", len(p.Keys) > 0, of == ofJSON || p.Prefix != ""},
		{"separator", p.Separator != "", of == ofPairs},
		{"enum", len(p.Enum) > 0, of == scalar},
		{"pattern", p.Pattern != "", of == scalar},
	} {
		if option.set && !option.ok {
			hint := ""
			if option.field == "keys" && of == ofPairs {
				hint = "; write a keyPattern"
			} else if of != ofJSON && (option.field == "enum" || option.field == "pattern") {
				hint = "; write it in items, for each item"
			}
			c.reportProblem(yamlAt(node, option.field), path+"."+option.field, "has no meaning for a parameter of type %s%s", p.Type, hint)
		}
	}
	if p.MaxItems != nil && (*p.MaxItems < 1 || *p.MaxItems > values.MaxItems) {
		c.reportProblem(yamlAt(node, "maxItems"), path+".maxItems", "must be from 1 to %d", values.MaxItems)
	}
	if of != ofItems && of != ofPairs {
		return
	}
	if strings.ContainsAny(p.Separator, ", \t") {
		c.reportProblem(yamlAt(node, "separator"), path+".separator", "must have no comma and no blank")
	}
	item := itemOf(&p.Param)
	if rowOfType(item.Type).parts != scalar {
		c.reportProblem(yamlAt(node, "items", "type"), path+".items.type", "must not be %s: an item has a single value", item.Type)
		return
	}
	p.items = c.checkParam(yamlChild(node, "items"), path+".items", item)
	if p.items.pattern != nil {
		c.checkPatternWork(yamlAt(node, "items", "pattern"), path+".items.pattern", item.Pattern, p.length)
	}
	if of == ofPairs {
		c.checkPrefixKeys(node, path, p)
		p.keysPattern = c.compilePattern(yamlAt(node, "keyPattern"), path+".keyPattern", cmp.Or(p.KeyPattern, usualKeys), p.length)
	}
}

// checkPrefixKeys checks the keys that may follow a prefix.
func (c *checker) checkPrefixKeys(node *yaml.Node, path string, p *param) {
	if p.Prefix == "" || len(p.Keys) == 0 {
		return
	}
	if p.KeyPattern != "" {
		c.reportProblem(yamlAt(node, "keyPattern"), path+".keyPattern", "is not allowed together with keys; leave one out")
	}
	for _, name := range p.Keys {
		if errs := validation.IsQualifiedName(p.Prefix + name); name == "" || len(errs) > 0 {
			c.reportProblem(yamlAt(node, "keys"), path+".keys", "%q is no end of an annotation's key", shortenForError(name))
		}
	}
}

func (c *checker) checkMaxLength(node *yaml.Node, path string, p *param) {
	if p.MaxLength == nil {
		return
	}
	most, why := values.MaxText, "expressions cannot read longer strings"
	if p.Prefix != "" && p.row.parts != scalar {
		most, why = values.MaxOutput, "it is the length of all names and values together"
	}
	if *p.MaxLength < 1 {
		c.reportProblem(yamlAt(node, "maxLength"), path+".maxLength", "must be at least 1")
	}
	if *p.MaxLength > most {
		c.reportProblem(yamlAt(node, "maxLength"), path+".maxLength", "must be at most %d: %s", most, why)
	}
}

// compilePattern compiles a pattern for strings up to a length. It returns nil if there is none, or if it
// is wrong.
func (c *checker) compilePattern(y *yaml.Node, path, pattern string, length int) *regexp.Regexp {
	if pattern == "" {
		return nil
	}
	if n := values.PatternSteps(pattern); n > values.MaxPatternSteps {
		c.reportProblem(y, path, "takes %d steps, and at most %d are allowed; repeat less in it", n, values.MaxPatternSteps)
		return nil
	}
	if !c.checkPatternWork(y, path, pattern, length) {
		return nil
	}
	if _, err := regexp.Compile(pattern); err != nil {
		c.reportProblem(y, path, "%v", err)
		return nil
	}
	return regexp.MustCompile("^(?:" + pattern + ")$")
}

// maxWork is the maximum number of steps of a pattern for a parameter's value.
const maxWork = 1 << 20

// checkPatternWork checks that matching strings of a length in total takes not too long.
func (c *checker) checkPatternWork(y *yaml.Node, path, pattern string, length int) bool {
	n := values.PatternSteps(pattern)
	if n*length > maxWork {
		c.reportProblem(y, path, "takes %d steps for each of %d bytes, and at most %d are allowed; lower maxLength", n, length, maxWork)
	}
	return n*length <= maxWork
}
