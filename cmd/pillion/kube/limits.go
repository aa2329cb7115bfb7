// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Limits are those of the templates of namespaces, so that no tenant can take the memory and the time that all share.
// Templates of the cluster have no such limits. The limits of all replicas and of the controller must be the same.
type Limits struct {
	Count  int                    // of the templates of a namespace
	Size   resource.QuantityValue // of the JSON of these together
	Memory resource.QuantityValue // of the templates of all namespaces, by [Memory]
}

// NewLimits returns the default limits.
func NewLimits() Limits {
	return Limits{Count: 50, Size: mustParseQuantity("128Ki"), Memory: mustParseQuantity("48Mi")}
}

func mustParseQuantity(text string) resource.QuantityValue {
	return resource.QuantityValue{Quantity: resource.MustParse(text)}
}

// Flags adds the flags of the limits to a command. Their values are the defaults.
func (l *Limits) Flags(f *pflag.FlagSet) {
	*l = NewLimits()
	f.IntVar(&l.Count, "max-namespace-templates", l.Count, "use at most this `NUMBER` of templates of each namespace, the oldest ones; pillion serve and pillion controller need the same value")
	f.Var(&l.Size, "max-namespace-template-size", "use templates of each namespace with at most this `SIZE` as JSON together, the oldest ones; pillion serve and pillion controller need the same value")
	f.Var(&l.Memory, "max-template-memory", "limit the estimated `MEMORY` of the templates of all namespaces together, the oldest ones, and an eighth of it for each namespace; pillion serve and pillion controller need the same value")
}

// Check reports an invalid limit.
func (l *Limits) Check() error {
	switch {
	case l.Count < 1:
		return fmt.Errorf("--max-namespace-templates must be at least 1, not %d", l.Count)
	case l.Size.Sign() <= 0:
		return fmt.Errorf("--max-namespace-template-size must be more than 0, not %s", l.Size.String())
	case l.Memory.Sign() <= 0:
		return fmt.Errorf("--max-template-memory must be more than 0, not %s", l.Memory.String())
	}
	return nil
}

// OfNamespace is why templates of a namespace are not used that has too many.
func (l *Limits) OfNamespace() string {
	return fmt.Sprintf("of a namespace, Pillion uses only the oldest %d templates, and those with at most %s together, which take at most %s of memory", l.Count, formatBytes(l.Size.Value()), formatBytes(l.MostOfNamespace()))
}

// InTotal is why templates of a namespace are not used that are within its limits.
func (l *Limits) InTotal() string {
	return fmt.Sprintf("the templates of all namespaces together may take at most %s of memory, and none is left for this one; an administrator can raise --max-template-memory", formatBytes(l.Memory.Value()))
}

// formatBytes returns a number of bytes as text, for example "128 KiB".
func formatBytes(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// namespaceReserve is how much memory of each namespace counts for the first half of the total. What a namespace takes beyond
// counts for the second one, so that a few namespaces with large templates leave room for small ones of others.
func (l *Limits) namespaceReserve() int64 { return l.Memory.Value() / 64 }

// halfMemory returns one half of the total.
func (l *Limits) halfMemory() int64 { return l.Memory.Value() / 2 }

// MostOfNamespace returns the memory that the templates of a namespace may take, in bytes.
func (l *Limits) MostOfNamespace() int64 { return l.Memory.Value() / 8 }

// splitMemory returns what memory of a namespace counts for each half of the total.
func (l *Limits) splitMemory(memory int64) (reserved, rest int64) {
	reserved = min(memory, l.namespaceReserve())
	return reserved, memory - reserved
}

// allotment is how many templates of a namespace are used.
type allotment struct {
	n      int
	memory int64
	full   bool
}

// addTemplate adds the next template of a namespace, given what is left of each half, if there is enough.
func (a *allotment) addTemplate(memory int64, l *Limits, reserved, rest *int64) {
	before1, before2 := l.splitMemory(a.memory)
	now1, now2 := l.splitMemory(a.memory + memory)
	if now1 -= before1; now1 > *reserved {
		a.full = true
	}
	if now2 -= before2; now2 > *rest {
		a.full = true
	}
	if a.full {
		return
	}
	a.n++
	a.memory += memory
	*reserved -= now1
	*rest -= now2
}

// What a template takes in memory, in bytes: measured, and rounded up.
const (
	ofText       = 20   // for each byte of its JSON
	ofParam      = 6500 // for each parameter, in addition
	ofExpression = 3500 // for each expression, in addition
	ofCEL        = 290  // for each byte of an expression, in addition
	ofStep       = 180  // for each step of a compiled pattern
	ofClass      = 6000 // for each class of Unicode letters in a pattern, such as \pL
)

// maxSteps is how many steps a pattern can have: templates with more are invalid.
const maxSteps = 1000

// Memory estimates how much memory a template takes, from its JSON alone, so that it is known before the template is
// compiled. Compiled expressions and patterns take most of it. For each construct of the format, the result is at least what
// was measured.
func Memory(text []byte) int {
	var of struct {
		Spec struct {
			Params []json.RawMessage `json:"params"`
		} `json:"spec"`
	}
	_ = json.Unmarshal(text, &of) // without params, if they are invalid
	n := ofText*len(text) + ofParam*len(of.Spec.Params)
	for s := range jsonStrings(text) {
		n += s.memory()
	}
	return n
}

// jsonString is a string in JSON that is no key, without its quotes. Its key is "" in a list.
type jsonString struct{ key, text []byte }

// jsonStrings returns the strings in JSON.
func jsonStrings(text []byte) func(yield func(jsonString) bool) {
	return func(yield func(jsonString) bool) {
		var key []byte
		for {
			begin := bytes.IndexByte(text, '"')
			if begin < 0 {
				return
			}
			text = text[begin+1:]
			end := stringEnd(text)
			one := text[:end]
			text = text[min(end+1, len(text)):]
			if len(text) > 0 && text[0] == ':' {
				key = one
				continue
			}
			if !yield(jsonString{key, one}) {
				return
			}
			key = nil
		}
	}
}

// expressionKeys are the fields of a template whose strings are expressions without "${".
var expressionKeys = []string{"condition", "where", "expression"}

// memory returns what a string takes as an expression or a pattern.
func (s jsonString) memory() int {
	if string(s.key) == "pattern" {
		return patternMemory(unescapeJSON(s.text), 1)
	}
	n, size := 0, 0
	if begin := bytes.Index(s.text, []byte("${")); begin >= 0 {
		for part := range bytes.SplitSeq(s.text[begin+2:], []byte("${")) {
			n++
			size += bytes.LastIndexByte(part, '}') + 1
		}
	} else if bytes.Contains(s.key, []byte("${")) || slices.Contains(expressionKeys, string(s.key)) {
		n, size = 1, len(s.text)
	}
	memory := ofExpression*n + ofCEL*size
	if calls := bytes.Count(s.text, []byte("matches")); n > 0 && calls > 0 {
		memory += patternMemory(unescapeJSON(s.text), calls) + ofClass*countClasses(unescapeJSON(s.text)) // it has two copies of classes
	}
	return memory
}

// unescapeJSON returns a string without the escapes of JSON.
func unescapeJSON(text []byte) []byte {
	if !bytes.ContainsRune(text, '\\') {
		return text
	}
	var s string
	_ = json.Unmarshal(slices.Concat([]byte{'"'}, text, []byte{'"'}), &s) // "", if it is no JSON: then it is not used
	return []byte(s)
}

// escaped matches what can be a digit, a brace or a backslash in a string of CEL.
var escaped = regexp.MustCompile(`\\[xXuU0-7]`)

var repeated = regexp.MustCompile(`\{[0-9]`)

// patternMemory returns what the patterns in a string take.
func patternMemory(text []byte, patterns int) int {
	steps := len(text) + patterns
	if repeated.Match(text) || escaped.Match(text) {
		steps = maxSteps * patterns
	}
	return ofStep*min(steps, maxSteps*patterns) + ofClass*countClasses(text)
}

// countClasses returns how many classes of Unicode letters patterns in a string can have.
func countClasses(text []byte) int {
	if escaped.Match(text) {
		return len(text) / len(`\pL`)
	}
	return bytes.Count(text, []byte(`\p`)) + bytes.Count(text, []byte(`\P`))
}

// stringEnd returns the position of the quote that ends a JSON string.
func stringEnd(text []byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(text)
}
