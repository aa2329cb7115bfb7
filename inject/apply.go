// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/mattbaird/jsonpatch"
)

// Apply is the pod with the operations of a [Result] for it done.
func Apply(pod []byte, ops []jsonpatch.JsonPatchOperation) ([]byte, error) {
	doc, err := apply(pod, ops)
	if err != nil {
		return nil, err
	}
	return json.Marshal(doc)
}

func apply(pod []byte, ops []jsonpatch.JsonPatchOperation) (any, error) {
	doc, err := decode(pod)
	if err != nil {
		return nil, err
	}
	for _, op := range ops {
		value, err := decode(op.Value.(json.RawMessage))
		if err != nil {
			return nil, err
		}
		doc = with(doc, strings.Split(op.Path, "/")[1:], value)
	}
	return doc, nil
}

// with is doc with an operation's value added at the names.
func with(doc any, names []string, value any) any {
	name := unescape(names[0])
	list, ok := doc.([]any)
	if !ok {
		object, _ := doc.(map[string]any)
		if len(names) > 1 {
			value = with(object[name], names[1:], value)
		}
		object[name] = value
		return object
	}
	i, err := strconv.Atoi(name)
	if err != nil {
		i = len(list) // -
	}
	if len(names) > 1 {
		list[i] = with(list[i], names[1:], value)
		return list
	}
	return slices.Insert(list, i, value)
}

func unescape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
}

func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var doc any
	err := d.Decode(&doc)
	return doc, err
}
