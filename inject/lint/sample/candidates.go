// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// changesOf returns the worlds in which what a goal reads has another value, the likely ones first.
func (s setter) changesOf(w *world, from *source) (all []*world) {
	if from.at == nil {
		return s.changesOfParam(w, from)
	}
	set := func(at path, value any) { all = append(all, w.withValue(at, value)) }
	t, usual := typeAt(from.at), anyOf(from.at)
	switch {
	case t == nil:
		return nil
	case isText(t):
		for _, text := range from.stringsToTry(w.nodeAt(from.at).Text(), usual) {
			set(from.at, text)
		}
	case t.Kind() == reflect.Map:
		for _, name := range from.stringsToTry("", some) {
			set(from.at.childPath(name), anyOf(from.at.childPath(name)))
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		for _, text := range from.stringsToTry("", some) {
			set(from.at.childPath(len(w.childPaths(from.at))), text)
		}
	}
	for _, n := range from.numbersToTry() {
		switch {
		case isNumber(t):
			set(from.at, n)
		case t.Kind() == reflect.Slice && 0 <= n && n <= maxList:
			all = append(all, w.withSize(from.at, n))
		}
	}
	set(from.at, usual)
	if t.Kind() == reflect.Bool {
		set(from.at, false)
	}
	set(from.at, nil)
	return all
}

// changesOfParam returns the worlds in which annotations do something else with a parameter.
func (s setter) changesOfParam(w *world, from *source) (all []*world) {
	p := findParam(s.template, from.param)
	if p == nil {
		return nil
	}
	var settings []Setting
	for _, text := range slices.Concat(from.stringsToTry("", Value(s.template, p)), []string{"true", "false"}, Candidates(s.template, p)) {
		settings = append(settings, Setting{Value: text})
	}
	for _, set := range append(settings, Setting{Unset: true}) {
		if other, ok := s.withParam(w, from.param, set); ok {
			all = append(all, other)
		}
	}
	return all
}

// stringsToTry returns strings that may meet the goal, the likely ones first. Now is the string that one of them replaces, and usual is a
// valid one, or nil.
func (from *source) stringsToTry(now string, usual any) (all []string) {
	add := func(text string) { all = appendNew(all, completeName(text), text) }
	for _, text := range from.compared.strings {
		add(text)
	}
	if text, ok := usual.(string); ok {
		add(text)
	}
	for _, text := range from.all.strings {
		add(text)
	}
	for _, text := range from.compared.strings {
		add(now + text)
		add(text + now)
		add(text + "-")
	}
	for _, n := range from.compared.numbers {
		if 0 < n && n <= maxList {
			all = appendNew(all, strings.Repeat("a", n))
		}
	}
	return appendNew(all, "")
}

func (from *source) numbersToTry() []int {
	return appendNew(slices.Clone(from.compared.numbers), from.all.numbers...)
}

// completeName adds to a string that begins or ends with a separator, because no name, label or image does.
func completeName(text string) string {
	isSeparator := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	if strings.IndexFunc(text, isSeparator) == 0 {
		text = some + text
	}
	if i := strings.LastIndexFunc(text, isSeparator); i >= 0 && i == len(text)-1 {
		text += some
	}
	return text
}
