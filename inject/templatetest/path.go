// SPDX-License-Identifier: Apache-2.0

package templatetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// value is an expected value at a path.
type value struct {
	path  string
	steps []step
	want  json.RawMessage
}

// step leads from a value to those in it: to a member, or to items of a list.
type step struct {
	member string
	list   bool
	any    bool   // every item
	key    string // items whose member of this name has the value in item; "" is an index
	item   string
	index  int
}

// parsePath parses a path in a Pod, for example spec.containers[web].args[0]. In brackets are the
// index of an item, its name or other merge key, * for every item, or a key of a map in quotes. It
// returns an error if a Pod has no such place, because an absent value would be found nowhere.
func parsePath(path string) (steps []step, err error) {
	t, key := reflect.TypeFor[corev1.Pod](), ""
	for rest := path; ; {
		var s step
		if s.list = strings.HasPrefix(rest, "["); s.list {
			s.item, rest, err = cutBrackets(rest)
		} else {
			n := strings.IndexAny(rest+".", ".[")
			s.member, rest = rest[:n], rest[n:]
		}
		if err == nil {
			t, key, err = s.resolveIn(t, key)
		}
		if err != nil {
			return nil, err
		}
		if steps = append(steps, s); rest == "" {
			return steps, nil
		}
		rest = strings.TrimPrefix(rest, ".")
	}
}

// cutBrackets splits [item]rest. An item in quotes may contain any character.
func cutBrackets(text string) (item, rest string, err error) {
	text = text[1:]
	if quoted, err := strconv.QuotedPrefix(text); err == nil && strings.HasPrefix(text[len(quoted):], "]") {
		item, err = strconv.Unquote(quoted)
		return item, text[len(quoted)+1:], err
	}
	item, rest, ok := strings.Cut(text, "]")
	if !ok {
		return "", "", errors.New("the path has a [ without a ]")
	}
	return item, rest, nil
}

// resolveIn completes a step from a value of a type, of which key is the merge key if it is a list. It
// returns the type and the merge key of the place that the step leads to.
func (s *step) resolveIn(t reflect.Type, key string) (reflect.Type, string, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case !s.list && s.member == "":
		return nil, "", errors.New("the path must have a name between dots, and at its end")
	case s.list && t.Kind() == reflect.Slice:
		i, err := strconv.Atoi(s.item)
		switch {
		case s.item == "*":
			s.any = true
		case err == nil && i >= 0:
			s.index = i
		case key == "":
			return nil, "", fmt.Errorf("[%s]: the items of this list have no name; use an index or *", s.item)
		case key == "containerPort":
			s.key = "name" // ports[8080] would look like an index
		default:
			s.key = key
		}
		return t.Elem(), "", nil
	case t.Kind() == reflect.Map:
		if s.list {
			s.list, s.member = false, s.item
		}
		return t.Elem(), "", nil
	case s.list:
		return nil, "", fmt.Errorf("[%s] is for items of a list, and this is none", s.item)
	case t.Kind() == reflect.Slice:
		return nil, "", fmt.Errorf("%s: before it, name an item of the list in brackets", s.member)
	}
	var names []string
	if t.Kind() == reflect.Struct {
		for _, f := range jsontree.StructFields(t) {
			if f.JSON == s.member {
				return f.Type, f.Tag.Get("patchMergeKey"), nil
			}
			names = append(names, f.JSON)
		}
	}
	return nil, "", fmt.Errorf("%s: a Pod has no such field%s", s.member, problem.DidYouMean(s.member, names))
}

// findValues returns the values at a path below a node.
func findValues(n *jsontree.Node, steps []step) (found []*jsontree.Node) {
	if n == nil {
		return nil
	}
	if len(steps) == 0 {
		return []*jsontree.Node{n}
	}
	s := steps[0]
	if !s.list {
		return findValues(n.Get(s.member), steps[1:])
	}
	items := n.Items()
	for i := range items {
		if s.matchesItem(&items[i], i) {
			found = append(found, findValues(&items[i], steps[1:])...)
		}
	}
	return found
}

func (s *step) matchesItem(item *jsontree.Node, i int) bool {
	switch {
	case s.any:
		return true
	case s.key == "":
		return i == s.index
	}
	return item.Get(s.key).IsText(s.item)
}

// compareIn returns a failure if the values at the path are not the expected one. With *, one of them
// suffices.
func (v *value) compareIn(pod *jsontree.Node) *Failure {
	found := findValues(pod, v.steps)
	want, must := yamlOf(v.want), "must be "+oneLine(v.want)
	f := &Failure{What: "expect.values " + strconv.Quote(v.path)}
	if string(v.want) == "null" {
		if len(found) == 0 {
			return nil
		}
		f.Message = "must be absent, but is " + found[0].String()
		return f
	}
	var got []string
	for _, n := range found {
		text := n.AppendTo(nil)
		if yamlOf(text) == want {
			return nil
		}
		got = append(got, oneLine(text))
	}
	switch {
	case len(got) == 0:
		f.Message = must + ", but is absent"
	case len(got) > 1:
		f.Message = must + ", but there are only " + strings.Join(got, ", ")
	case isScalar(v.want):
		f.Message = must + ", but is " + got[0]
	default:
		f.Message, f.Diff = "differs", diffLines(want, yamlOf(found[0].AppendTo(nil)))
	}
	return f
}

func isScalar(text []byte) bool { return text[0] != '{' && text[0] != '[' }

// oneLine returns a scalar as YAML if that has one line, and other values as JSON.
func oneLine(text []byte) string {
	if line := strings.TrimSpace(yamlOf(text)); isScalar(text) && !strings.Contains(line, "\n") {
		return line
	}
	return string(text)
}
