// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/problem"
)

// Parameters may read annotations of other products. Such a product has further annotations in the
// same domain, which no template reads and which are no mistakes. So a key is a mistake only if it is
// almost the same as a key that a template reads, or if a template says that it reads the annotations of the
// domain in place of the product (spec.annotationDomains).

// productKeys are the annotations of other products that templates read.
type productKeys struct {
	keys        []productKey
	domains     map[string]bool
	replaced    map[string]string // domains that a template reads in place of the product, and the template
	labels      map[string]bool   // that the templates add
	annotations map[string]bool   // that the templates add
}

// productKey is the key of an annotation, or the prefix of several.
type productKey struct {
	template, key string
	prefix        bool
}

// recordReadKeys records the annotations of other products that a template reads.
func (p *productKeys) recordReadKeys(t *templates.Template) {
	for i := range t.Spec.Params {
		param := &t.Spec.Params[i]
		if !param.OfOthers() {
			continue
		}
		switch {
		case param.Annotation != "":
			p.keys = append(p.keys, productKey{t.Name, param.Annotation, false})
		case len(param.Keys) == 0:
			p.keys = append(p.keys, productKey{t.Name, param.Prefix, true})
		}
		for _, name := range param.Keys {
			if param.Prefix != "" {
				p.keys = append(p.keys, productKey{t.Name, param.Prefix + name, false})
			}
		}
		p.domains = addToSet(p.domains, domainOf(cmp.Or(param.Annotation, param.Prefix)))
	}
	for _, domain := range t.Spec.AnnotationDomains {
		if p.replaced == nil {
			p.replaced = map[string]string{}
		}
		if _, ok := p.replaced[domain]; !ok {
			p.replaced[domain] = t.Name
		}
	}
}

// recordAddedKeys records the labels and annotations that a template adds.
func (p *productKeys) recordAddedKeys(t *templates.Template) {
	for name, metadata := range t.PodFragment().Children() {
		if name != "metadata" {
			continue
		}
		for field, of := range metadata.Children() {
			for key := range of.Children() {
				if field == "labels" {
					p.labels = addToSet(p.labels, key)
				} else {
					p.annotations = addToSet(p.annotations, key)
				}
			}
		}
	}
}

// addToSet adds a name to a set, which may be nil.
func addToSet(set map[string]bool, name string) map[string]bool {
	if set == nil {
		set = map[string]bool{}
	}
	set[name] = true
	return set
}

// domainOf returns the part of a key before the slash.
func domainOf(key string) string {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return ""
	}
	return domain
}

// readsKey reports whether a template reads the annotation.
func (p *productKeys) readsKey(key string) bool {
	return len(p.keys) > 0 && p.domains[domainOf(key)] && slices.ContainsFunc(p.keys, func(k productKey) bool { return k.readsKey(key) })
}

func (k *productKey) readsKey(key string) bool {
	return key == k.key && !k.prefix || k.prefix && len(key) > len(k.key) && strings.HasPrefix(key, k.key)
}

// resemblesKey reports whether a key of the same domain is a probable typing error.
func (k *productKey) resemblesKey(key string) bool {
	skip := strings.Index(k.key, "/") + 1
	want, name := k.key[skip:], key[skip:]
	if !k.prefix {
		return problem.IsTypo(name, want)
	}
	for size := len(want) - 1; size <= len(want)+1; size++ {
		if 0 < size && size < len(name) && problem.IsTypo(name[:size], want) {
			return true
		}
	}
	return false
}

// keyAsWritten returns the key as users write it.
func (k *productKey) keyAsWritten() string {
	if k.prefix {
		return k.key + params.AnyName
	}
	return k.key
}

// describeMistake returns a message about an annotation that is a mistake, or "". The finding belongs to no template, so that it never
// denies a pod: the key may have a meaning for another part of the product.
func (p *productKeys) describeMistake(key string) string {
	domain := domainOf(key)
	if !p.domains[domain] || p.readsKey(key) {
		return ""
	}
	for i := range p.keys {
		if k := &p.keys[i]; domainOf(k.key) == domain && k.resemblesKey(key) {
			return fmt.Sprintf("annotation %s sets no parameter; did you mean %q, which the template %s reads?", problem.Cut(key, maxValue), k.keyAsWritten(), k.template)
		}
	}
	if template := p.replaced[domain]; template != "" && !p.annotations[key] {
		return fmt.Sprintf("annotation %s sets no parameter; the template %s reads other annotations of %s", problem.Cut(key, maxValue), template, domain)
	}
	return ""
}

// ignoresKey reports whether parameters read some annotations of the key's domain, but not this one. It returns false if there is a
// finding about the annotation.
func (p *productKeys) ignoresKey(key string) bool {
	return p.domains[domainOf(key)] && !p.readsKey(key) && !p.annotations[key] && p.describeMistake(key) == ""
}

// describeLabelMistake returns a message about a label whose key a template reads as an annotation, or "".
func (p *productKeys) describeLabelMistake(key string) string {
	if p.labels[key] || !p.readsKey(key) {
		return ""
	}
	return fmt.Sprintf("label %s sets no parameter; set it as an annotation", problem.Cut(key, maxValue))
}
