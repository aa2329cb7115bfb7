// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/inject"
)

// parameterTemplate has a parameter for each kind in parameterKinds, and an environment variable with its value.
const parameterTemplate = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: side}
spec:
  default: true
  params:
  - {name: note, default: "", maxLength: 4096}
  - {name: list, type: list, default: "", items: {maxLength: 4096}}
  - {name: numbers, type: list, annotation: other.example/numbers, default: "", items: {type: integer, maximum: 9}}
  - {name: map, type: map, default: "", items: {maxLength: 4096}}
  - {name: json, type: json, default: "{}"}
  - {name: named, prefix: other.example/named-, maxLength: 4097, items: {maxLength: 4096}}
  variables:
  - {name: map, expression: "params.map.map(k, k + '=' + params.map[k])"}
  pod:
    spec:
      containers:
      - name: side
        image: side:1
        command: "${variables.map}"
        args: "${params.list}"
        env:
        - {name: NOTE, value: "${params.note}"}
        - {name: MIXED, value: "<${params.note}> $(HOME) $${x}"}
        - {name: LIST, value: "<${params.list.join(';')}>"}
        - {name: NUMBERS, value: "${params.numbers.map(n, string(n)).join(';')}"}
        - {name: MAP, value: "<${variables.map.join(';')}>"}
        - {name: JSON, value: "${json.marshal(params.json)}"}
        - {name: NAMED, value: "${params.named.map(k, k + '=' + params.named[k]).join(';')}"}
`

// parameterKind is a way in which a user's string gets into a template. Its key is an annotation, or the beginning of one
// whose end is the string.
type parameterKind struct {
	key    string
	prefix bool
	// leaves returns the leaves of the container that differ from those without the annotation: the values of its
	// variables, and its lists. It returns nil if the string must be rejected.
	leaves func(text string) map[string]any
}

var parameterKinds = []parameterKind{
	{key: "side.pillion.dev/note", leaves: func(text string) map[string]any {
		return map[string]any{"NOTE": text, "MIXED": "<" + text + "> $(HOME) ${x}"}
	}},
	{key: "side.pillion.dev/list", leaves: listLeaves},
	{key: "other.example/numbers", leaves: numberLeaves},
	{key: "side.pillion.dev/map", leaves: mapLeaves},
	{key: "side.pillion.dev/json"}, // see jsonLeaves
	{key: "other.example/named-k", leaves: func(text string) map[string]any { return map[string]any{"NAMED": "k=" + text} }},
	{key: "other.example/named-", prefix: true, leaves: func(name string) map[string]any {
		switch {
		case name == "": // it is another annotation
			return map[string]any{}
		case !nameOfKey.MatchString(name):
			return nil
		}
		return map[string]any{"NAMED": name + "=v"}
	}},
}

var nameOfKey = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// partsOf returns what is between commas, without blanks around it.
func partsOf(text string) (parts []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

func listLeaves(text string) map[string]any {
	parts, args := partsOf(text), []any{}
	for _, part := range parts {
		args = append(args, part)
	}
	if len(parts) > 64 {
		return nil
	}
	return map[string]any{"args": args, "LIST": "<" + strings.Join(parts, ";") + ">"}
}

func numberLeaves(text string) map[string]any {
	parts := partsOf(text)
	for i, part := range parts {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n > 9 || len(part) > 256 {
			return nil
		}
		parts[i] = strconv.FormatInt(n, 10)
	}
	if len(parts) > 64 {
		return nil
	}
	return map[string]any{"NUMBERS": strings.Join(parts, ";")}
}

func mapLeaves(text string) map[string]any {
	values, last := map[string]string{}, ""
	for i, part := range partsOf(text) {
		key, value, ok := strings.Cut(part, "=")
		if key = strings.TrimSpace(key); !ok && i > 0 {
			values[last] += "," + part
			continue
		}
		if _, twice := values[key]; !ok || twice || !nameOfKey.MatchString(key) {
			return nil
		}
		values[key], last = strings.TrimSpace(value), key
	}
	command, all := []any{}, []string{}
	for _, key := range sorted(values) {
		command, all = append(command, key+"="+values[key]), append(all, key+"="+values[key])
	}
	if len(values) > 64 {
		return nil
	}
	return map[string]any{"command": command, "MAP": "<" + strings.Join(all, ";") + ">"}
}

// FuzzParameter checks that any value of an annotation is rejected, or changes only the leaves that contain it.
func FuzzParameter(f *testing.F) {
	injector := inject.New(mustLoad(f, fstest.MapFS{"side.yaml": {Data: []byte(parameterTemplate)}}, "."))
	for _, text := range []string{
		"", "x", `"`, "'", "\n- name: evil\n  image: x", "${params.level}", "$${x}", "{{ .Values }}", "$(HOME)", "\x00\x1b\u2028",
		`"}],"op":"replace"`, "---\na: b", "!!binary x", "&a *a", strings.Repeat("x", 5000), "\u202e", "% #", "\\u0022",
		"a,b", " b ,, a,", "a=1", "b=2,c,a = 1=2", "a=1,a=2", "=1", "1,-2,+3", "9,10", "01", "1.5", strings.Repeat("a,", 64), strings.Repeat("1,", 65),
		`{"b":[1,null,0.5],"a":"x\u2028<"}`, "b: [1]\na: yes\n", `{"a":1,"a":2}`, "a: &x 1\nb: *x", `[1e999,9007199254740993]`, strings.Repeat("[", 17) + strings.Repeat("]", 17),
		"vault.hashicorp.com/x", "a/b", "../x", "a.b_c-d", "x-", "ä",
	} {
		for kind := range parameterKinds {
			f.Add(uint8(kind), text)
		}
	}
	pod, _ := parameterPod(f, injector, "other.example/none", "")
	without, err := json.Marshal(pod)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		if !utf8.ValidString(text) {
			t.Skip("no API server sends it: JSON is UTF-8")
		}
		kind := parameterKinds[int(which)%len(parameterKinds)]
		key, value := kind.key, text
		if kind.prefix {
			key, value = kind.key+text, "v"
		}
		pod, code := parameterPod(t, injector, key, value)
		var want map[string]any
		switch {
		case kind.leaves == nil:
			want = jsonLeaves(t, text, pod)
		case len(text) <= 4096:
			want = kind.leaves(text)
		}
		switch {
		case want == nil && code != inject.CodeInvalidParameter, want != nil && code != inject.CodeInjected:
			t.Fatalf("%s: %q: %s", key, value, code)
		case want != nil:
			if expected := withLeaves(decodeJSON(t, without), want); !reflect.DeepEqual(pod, expected) {
				t.Fatalf("%s: %q makes\n%v\nwant\n%v", key, value, pod, expected)
			}
		}
	})
}

// parameterPod returns a pod with an annotation after injection, without that annotation.
func parameterPod(t testing.TB, injector *inject.Injector, key, value string) (after any, code inject.Code) {
	t.Helper()
	pod, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{key: value}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "app"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, text := checkInvariants(t, injector, inject.Request{Operation: "CREATE", Object: pod})
	after = decodeJSON(t, text)
	delete(after.(map[string]any)["metadata"].(map[string]any)["annotations"].(map[string]any), key)
	return after, r.Decisions[0].Code
}

// sideOf returns the container that the template brings, or nil.
func sideOf(pod any) map[string]any {
	for _, c := range pod.(map[string]any)["spec"].(map[string]any)["containers"].([]any) {
		if c := c.(map[string]any); c["name"] == "side" {
			return c
		}
	}
	return nil
}

// withLeaves replaces leaves of the template's container.
func withLeaves(pod any, leaves map[string]any) any {
	side := sideOf(pod)
	for name, leaf := range leaves {
		if _, list := leaf.([]any); list {
			side[name] = leaf
			continue
		}
		for _, e := range side["env"].([]any) {
			if e := e.(map[string]any); e["name"] == name {
				e["value"] = leaf
			}
		}
	}
	return pod
}

// jsonLeaves returns the variable JSON of the pod, and nil if it is not there. It checks that it is JSON with the
// same values as the string, if that is JSON. JSON within the limits may not be rejected.
func jsonLeaves(t *testing.T, text string, pod any) map[string]any {
	t.Helper()
	var want any
	isJSON := json.Unmarshal([]byte(text), &want) == nil && !hasDoubledKeys([]byte(text))
	side := sideOf(pod)
	if side == nil {
		kind := reflect.ValueOf(want).Kind()
		if isJSON && (kind == reflect.Map || kind == reflect.Slice) && len(text) <= 1000 && strings.Count(text, "[")+strings.Count(text, "{") <= 16 {
			t.Fatalf("%q was rejected", text)
		}
		return nil
	}
	for _, e := range side["env"].([]any) {
		if e := e.(map[string]any); e["name"] == "JSON" {
			var got any
			if err := json.Unmarshal([]byte(e["value"].(string)), &got); err != nil || isJSON && !reflect.DeepEqual(got, want) {
				t.Fatalf("%q became %q: %v", text, e["value"], err)
			}
			return map[string]any{"JSON": e["value"]}
		}
	}
	t.Fatalf("%q: no variable: %v", text, side)
	return nil
}
