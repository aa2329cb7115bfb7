// SPDX-License-Identifier: Apache-2.0

package exposure

import (
	"maps"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// maxValues is how many values a parameter may have to be tried with all of them.
const maxValues = 16

// domain is what annotations can make of a parameter.
type domain struct {
	// settings has all values that differ from the current one. It is nil if there are too many.
	settings []sample.Setting
	finite   bool
}

// domainOf returns the domain of a parameter that annotations may set.
func domainOf(t *templates.Template, p *v1alpha1.Param) domain {
	values, finite := valuesOf(p)
	if !finite {
		return domain{}
	}
	d := domain{finite: true}
	for _, value := range values {
		if t.Takes(p.Name, value) == nil {
			d.settings = append(d.settings, sample.Setting{Value: value})
		}
	}
	if !p.Needed() {
		d.settings = append(d.settings, sample.Setting{Unset: true})
	}
	return d
}

// valuesOf returns all values of a parameter, and false if there may be others. Some of them may be invalid.
func valuesOf(p *v1alpha1.Param) (values []string, finite bool) {
	switch {
	case p.Prefix != "":
		return nil, false
	case len(p.Enum) > 0:
		return p.Choices(), true
	case p.Type == "boolean":
		return []string{"true", "false"}, true // other words for them mean the same
	case p.Type == "integer" && p.Minimum != nil && p.Maximum != nil:
		low, err := strconv.ParseInt(string(*p.Minimum), 10, 64)
		high, err2 := strconv.ParseInt(string(*p.Maximum), 10, 64)
		if err != nil || err2 != nil || high < low || high-low >= maxValues || high-low < 0 {
			return nil, false
		}
		for i := low; i <= high; i++ {
			values = append(values, strconv.FormatInt(i, 10))
		}
		return values, true
	case (p.Type == "" || p.Type == "string") && p.Pattern != "":
		return stringsOf(p.Pattern)
	}
	return nil, false
}

// stringsOf returns all strings that match a pattern, and false if there are more than maxValues.
func stringsOf(pattern string) (all []string, finite bool) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, false
	}
	return stringsOfRegexp(re)
}

func stringsOfRegexp(re *syntax.Regexp) (all []string, finite bool) {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText:
		return []string{""}, true
	case syntax.OpLiteral:
		return []string{string(re.Rune)}, re.Flags&syntax.FoldCase == 0
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				if all = append(all, string(r)); len(all) > maxValues {
					return nil, false
				}
			}
		}
		return all, true
	case syntax.OpCapture:
		return stringsOfRegexp(re.Sub[0])
	case syntax.OpQuest:
		words, ok := stringsOfRegexp(re.Sub[0])
		return append([]string{""}, words...), ok && len(words) < maxValues
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			words, ok := stringsOfRegexp(sub)
			if all = append(all, words...); !ok || len(all) > maxValues {
				return nil, false
			}
		}
		return all, true
	case syntax.OpConcat:
		all = []string{""}
		for _, sub := range re.Sub {
			words, ok := stringsOfRegexp(sub)
			if !ok || len(words)*len(all) > maxValues {
				return nil, false
			}
			var longer []string
			for _, begin := range all {
				for _, word := range words {
					longer = append(longer, begin+word)
				}
			}
			all = longer
		}
		return all, true
	}
	return nil, false
}

// eachSetting calls visit with the settings of parameters, those that change fewest parameters first, beginning with the ones that
// change none. It returns false if a parameter has too many values, or if there are more settings than most.
func eachSetting(domains map[string]domain, names []string, most int, visit func(sample.Settings)) bool {
	all := []sample.Settings{{}}
	for _, name := range names {
		d := domains[name]
		if !d.finite || len(all)*(len(d.settings)+1) > most {
			return false
		}
		for _, before := range slices.Clone(all) {
			for _, setting := range d.settings {
				more := maps.Clone(before)
				more[name] = setting
				all = append(all, more)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b sample.Settings) int { return len(a) - len(b) })
	for _, settings := range all {
		visit(settings)
	}
	return true
}

// formsOfZero returns the ways to write the integer 0 with up to length digits, because a pattern may allow only some of them.
func formsOfZero(length int) (all []string) {
	for n := 1; n <= min(length, 64); n++ {
		for _, sign := range []string{"", "+", "-"} {
			all = append(all, sign+strings.Repeat("0", n))
		}
	}
	return all
}
