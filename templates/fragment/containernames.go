// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/validation"
)

// NamePattern returns a name with * for its computed part. The constant parts around it identify containers with computed names. It
// returns an error if no name can be valid.
func NamePattern(name string) (string, error) {
	prefix, rest, computed := strings.Cut(name, "${")
	if !computed {
		return name, nil
	}
	for more := rest; computed; _, more, computed = strings.Cut(rest, "${") {
		if _, rest, computed = diagnostics.CutExpression(more); !computed {
			return name, nil // already reported
		}
	}
	if !validation.IsLabel(prefix + "x" + rest) {
		return name, fmt.Errorf("%q is never a DNS label: at most 63 of a-z, 0-9 and -", name)
	}
	return prefix + "*" + rest, nil
}

// namePattern returns the form of a name, as the function [NamePattern] does for the name's string.
func (p *Node) namePattern() string {
	switch {
	case p == nil:
		return ""
	case p.kind == staticPart:
		return p.static.Text()
	}
	return p.pieces[0].Literal + "*" + p.pieces[len(p.pieces)-1].Literal
}

// IsNamed reports whether a container has one of the names of a template, in which * is any string.
func IsNamed(own, name string) bool {
	if own == name {
		return true
	}
	prefix, suffix, generated := strings.Cut(own, "*")
	return generated && len(name) >= len(prefix)+len(suffix) && strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix)
}

// IsGenerated reports whether a name of a template is a pattern, for containers with computed names.
func IsGenerated(own string) bool { return strings.Contains(own, "*") }

// HasConstant reports whether a name of a template has a constant part.
func HasConstant(own string) bool { return own != "*" }

// Overlap reports whether containers may have both names, in which * is any string.
func Overlap(a, b string) bool {
	if !IsGenerated(a) || !IsGenerated(b) {
		return IsNamed(a, b) || IsNamed(b, a)
	}
	prefix, suffix, _ := strings.Cut(a, "*")
	otherPrefix, otherSuffix, _ := strings.Cut(b, "*")
	return (strings.HasPrefix(prefix, otherPrefix) || strings.HasPrefix(otherPrefix, prefix)) &&
		(strings.HasSuffix(suffix, otherSuffix) || strings.HasSuffix(otherSuffix, suffix))
}
