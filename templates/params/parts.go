// SPDX-License-Identifier: Apache-2.0

package params

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// The limits of a value in JSON or YAML.
const (
	maxJSONDepth  = 16
	maxJSONValues = 1_000
)

// usualKeys is the pattern of a map's keys, unless the template has another one. It is the form of
// names in Kubernetes' annotations. Keys often become a part of names and paths.
const usualKeys = `[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?`

// partError describes what is wrong with a part of a value.
type partError string

// Error returns the end of a sentence about the value.
func (e partError) Error() string { return string(e) }

func listType(p *v1alpha1.Param) *types.Type { return types.NewListType(CELType(itemOf(p))) }

func mapType(p *v1alpha1.Param) *types.Type {
	return types.NewMapType(types.StringType, CELType(itemOf(p)))
}

// CELType returns the type of a parameter in expressions.
func CELType(p *v1alpha1.Param) *types.Type { return rowOf(p).cel(p) }

// itemOf returns what an item must be, as a parameter.
func itemOf(p *v1alpha1.Param) *v1alpha1.Param {
	item := &v1alpha1.Param{Name: p.Name, Annotation: p.Annotation, Prefix: p.Prefix, Message: p.Message}
	if of := p.Items; of != nil {
		item.Type, item.Enum, item.Pattern, item.Minimum, item.Maximum, item.MaxLength = of.Type, of.Enum, of.Pattern, of.Minimum, of.Maximum, of.MaxLength
	}
	return item
}

// Samples returns values of a parameter that may be valid, the likeliest first.
func Samples(p *v1alpha1.Param) (all []string) {
	row := rowOf(p)
	switch row.parts {
	case ofItems:
		return append(Samples(itemOf(p)), "")
	case ofPairs:
		for _, value := range Samples(itemOf(p)) {
			all = append(all, slices.Concat(p.Keys, []string{"sample"})[0]+separatorOf(p)+value)
		}
		return append(all, "")
	case ofJSON:
		return []string{row.sample, "[]"}
	}
	for _, choice := range p.Enum {
		all = append(all, string(choice))
	}
	if p.Minimum != nil {
		all = append(all, string(*p.Minimum))
	}
	return append(all, row.sample, "example.com", "https://example.com", "https://example.com:8443/path", "1", "/sample", "sample:/sample")
}

// parseList splits a string at its commas. It trims blanks, and ignores empty items.
func parseList(p *Param, text string) (ref.Val, error) {
	values := []ref.Val{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		value, err := p.items.parseValue(item)
		if err != nil {
			return nil, partError("has an item that " + err.Error())
		}
		values = append(values, value)
	}
	if len(values) > p.Count() {
		return nil, p.tooMany(len(values))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, values), nil
}

func (p *Param) tooMany(n int) error {
	return partError(fmt.Sprintf("has %d items; at most %d are allowed", n, p.Count()))
}

// parseMap splits a string such as a=1,b=2. A part without a separator belongs to the value before
// it, so that a value may contain commas: NO_PROXY=localhost,10.0.0.1.
func parseMap(p *Param, text string) (ref.Val, error) {
	texts := map[string]string{}
	last := ""
	var parts []string // of the value of last; nil before the first key
	finish := func() {
		if parts != nil {
			texts[last] = strings.Join(parts, ",")
		}
	}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, separatorOf(&p.Param))
		switch key = strings.TrimSpace(key); {
		case !ok && parts == nil:
			return nil, partError(fmt.Sprintf("has no %s after %q; write pairs such as a%[1]s1,b%[1]s2", separatorOf(&p.Param), problem.Shorten(part)))
		case !ok:
			parts = append(parts, part)
			continue
		}
		finish()
		if err := p.checkKey(key); err != nil {
			return nil, err
		}
		if _, twice := texts[key]; twice {
			return nil, partError(fmt.Sprintf("has the key %q twice", problem.Shorten(key)))
		}
		last, parts = key, []string{strings.TrimSpace(value)}
	}
	finish()
	if len(texts) > p.Count() {
		return nil, p.tooMany(len(texts))
	}
	parsed := make(map[string]ref.Val, len(texts))
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		value, err := p.items.parseValue(texts[key])
		if err != nil {
			return nil, partError(fmt.Sprintf("has the key %s with a value that %v", key, err))
		}
		parsed[key] = value
	}
	return values.OfMap(parsed), nil
}

func separatorOf(p *v1alpha1.Param) string { return cmp.Or(p.Separator, "=") }

// checkKey returns an error for a key of a map that is not allowed.
func (p *Param) checkKey(key string) error {
	if len(p.Keys) > 0 && !slices.Contains(p.Keys, key) {
		return p.unknownKey(key)
	}
	if p.keysPattern.MatchString(key) {
		return nil
	}
	return partError(fmt.Sprintf("has the key %q; keys must match %s", problem.Shorten(key), cmp.Or(p.KeyPattern, usualKeys)))
}

// unknownKey returns an error for a key that is not one of the parameter's.
func (p *Param) unknownKey(key string) error {
	return partError(fmt.Sprintf("has the unknown key %q%s", problem.Shorten(key), cmp.Or(problem.DidYouMean(key, p.Keys), "; the keys are "+strings.Join(p.Keys, ", "))))
}

// parseJSON parses an object or a list in JSON or YAML. Aliases and merge keys are rejected: a
// short string with them can be a large value.
func parseJSON(p *Param, text string) (ref.Val, error) {
	if n, err := jsontree.Parse([]byte(text)); err == nil {
		return p.valueOfJSON(n)
	}
	var doc yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(text)))
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, partError("is empty")
	} else if err != nil {
		return nil, partError("is neither JSON nor YAML: " + strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, partError("has more than one YAML document")
	}
	if err := plainYAML(&doc, 0); err != nil {
		return nil, err
	}
	n, err := jsontree.FromYAML(&doc)
	if err != nil {
		return nil, partError("is not JSON: " + err.Error())
	}
	return p.valueOfJSON(&n)
}

// plainYAML returns an error for what makes a YAML document more than its text.
func plainYAML(y *yaml.Node, depth int) error {
	switch {
	case y.Kind == yaml.AliasNode || y.Anchor != "" || y.ShortTag() == "!!merge":
		return partError("has a YAML anchor, an alias or a merge key; write the value itself")
	case depth > maxJSONDepth:
		return errTooDeep
	}
	for _, item := range y.Content {
		if err := plainYAML(item, depth+1); err != nil {
			return err
		}
	}
	return nil
}

var errTooDeep = partError("is nested more than " + strconv.Itoa(maxJSONDepth) + " deep")

// valueOfJSON returns an object or a list that expressions can read.
func (p *Param) valueOfJSON(n *jsontree.Node) (ref.Val, error) {
	if n.Kind() != jsontree.Object && n.Kind() != jsontree.Array {
		return nil, errors.New("a scalar")
	}
	left := maxJSONValues
	if err := checkJSON(n, &left, 1); err != nil {
		return nil, err
	}
	if err := p.checkKeys(n); err != nil {
		return nil, err
	}
	n.Seal()
	return values.Of(n), nil
}

// checkKeys returns an error for a key that the template does not know, in the object itself or in an
// object that is an item of the list.
func (p *Param) checkKeys(n *jsontree.Node) error {
	if len(p.Keys) == 0 {
		return nil
	}
	members := n.Members()
	for i := range members {
		if name := members[i].Name(); !slices.Contains(p.Keys, name) {
			return p.unknownKey(name)
		}
	}
	items := n.Items()
	for i := range items {
		if err := p.checkKeys(&items[i]); err != nil {
			return err
		}
	}
	return nil
}

func checkJSON(n *jsontree.Node, left *int, depth int) error {
	kids := n.Items()
	switch {
	case n.Kind() == jsontree.Object:
		kids = n.Members()
	case n.Kind() == jsontree.Number && types.IsError(values.Of(n)):
		return partError(fmt.Sprintf("has the number %s, which is too large", problem.Shorten(n.String())))
	}
	if depth > maxJSONDepth && len(kids) > 0 {
		return errTooDeep
	}
	names := make(map[string]bool, len(kids))
	for i := range kids {
		if *left--; *left < 0 {
			return partError(fmt.Sprintf("has more than %d values", maxJSONValues))
		}
		if name := kids[i].Name(); n.Kind() == jsontree.Object {
			if names[name] {
				return partError(fmt.Sprintf("has the key %q twice", problem.Shorten(name)))
			}
			names[name] = true
		}
		if err := checkJSON(&kids[i], left, depth+1); err != nil {
			return err
		}
	}
	return nil
}
