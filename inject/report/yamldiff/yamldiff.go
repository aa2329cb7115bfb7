// SPDX-License-Identifier: Apache-2.0

// Package yamldiff prints JSON as YAML, and the differences between two of them.
package yamldiff

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"go.yaml.in/yaml/v3"
)

// Of returns the lines that differ as a unified diff with these names, or "".
func Of(fromName, from, toName, to string) string {
	text := string(diff.Diff(fromName, []byte(from), toName, []byte(to)))
	_, after, _ := strings.Cut(text, "\n") // the first line names the program
	return after
}

// Encode returns a value of [Decode] as YAML with sorted keys.
func Encode(v any) string {
	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := errors.Join(encoder.Encode(v), encoder.Close()); err != nil {
		panic("yamldiff: JSON is no YAML: " + err.Error())
	}
	return out.String()
}

// Decode returns the value of JSON that is valid. Its numbers keep their digits.
func Decode(text []byte) any {
	var v any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		panic("yamldiff: a parsed value is no JSON: " + err.Error())
	}
	return withNumbers(v)
}

// withNumbers makes YAML keep the digits of numbers.
func withNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}
	case map[string]any:
		for key := range v {
			v[key] = withNumbers(v[key])
		}
	case []any:
		for i := range v {
			v[i] = withNumbers(v[i])
		}
	}
	return v
}
