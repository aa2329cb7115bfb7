// SPDX-License-Identifier: Apache-2.0

package params

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
)

// shown returns a value as JSON.
func shown(t testing.TB, value any) string {
	t.Helper()
	v := types.DefaultTypeAdapter.NativeToValue(value)
	text, err := values.AppendJSON(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestParts checks the values of lists, maps and JSON, in the form of annotations.
func TestParts(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	many := func(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	for _, c := range []struct{ param, text, want string }{
		{"type: list", "", `[]`},
		{"type: list", " a, b ,,c,", `["a","b","c"]`},
		{"type: list", "a\n,b", `["a","b"]`},
		{"type: list", "a,a", `["a","a"]`},
		{"type: list", "[a,b]", `["[a","b]"]`},
		{"type: list, items: {type: integer}", "1, -2", `[1,-2]`},
		{"type: list, items: {type: integer}", "1,x", `has an item that is "x"; it must be an integer`},
		{"type: list, items: {type: number}", "1,0.5", `[1,0.5]`},
		{"type: list, items: {type: boolean}", "true,yes", `has an item that is "yes"; it must be true or false`},
		{"type: list, annotation: a/b, items: {type: boolean}", "TRUE,0,off,y", `[true,false,false,true]`},
		{"type: list, items: {enum: [info]}", "inf", `has an item that is "inf"; it must be one of info; did you mean "info"?`},
		{"type: list, items: {type: quantity, maximum: 1Gi}", "64Mi,2Gi", `has an item that is "2Gi"; it must be at most 1Gi`},
		{"type: list, items: {maxLength: 2}", "ab", `["ab"]`},
		{"type: list, items: {maxLength: 2}", "abc", `has an item that is 3 bytes long; at most 2 are allowed`},
		{"type: list, maxItems: 2", "a,b", `["a","b"]`},
		{"type: list, maxItems: 2", "a,b,c", `has 3 items; at most 2 are allowed`},
		{"type: list", many("a", 65), `has 65 items; at most 64 are allowed`},
		{"type: list, maxLength: 4", "a,b,c", `is 5 bytes long; at most 4 are allowed`},
		{"type: list", strings.Repeat("x", 4097), `is 4097 bytes long; at most 4096 are allowed`},
		{"type: list", strings.Repeat("x", 257), `has an item that is 257 bytes long; at most 256 are allowed`},
		{"type: list, message: 'names, such as a,b', items: {pattern: '[a-z]+'}", "a,1", `has an item that is "1"; it must be names, such as a,b`},
		{"type: map", "", `{}`},
		{"type: map", "b=2, a = 1 ,", `{"a":"1","b":"2"}`},
		{"type: map", "a=", `{"a":""}`},
		{"type: map", "a=b=c", `{"a":"b=c"}`},
		{"type: map", "NO_PROXY=localhost, 10.0.0.1,X=1", `{"NO_PROXY":"localhost,10.0.0.1","X":"1"}`},
		{"type: map", "a", `has no = after "a"; write pairs such as a=1,b=2`},
		{"type: map", "a=1,a=2", `has the key "a" twice`},
		{"type: map", "a=1,b=1,a=2", `has the key "a" twice`},
		{"type: map", "=1", `has the key ""; keys must match ` + usualKeys},
		{"type: map", "../x=1", `has the key "../x"; keys must match ` + usualKeys},
		{"type: map, keyPattern: '.*'", "a=1,=b", `{"":"b","a":"1"}`},
		{"type: map, keyPattern: '.*'", "=a,b", `{"":"a,b"}`},
		{"type: map, keyPattern: '.*'", "=a,b=1", `{"":"a","b":"1"}`},
		{"type: map, keyPattern: '.*'", "=", `{"":""}`},
		{"type: map, keyPattern: '.*'", "=a,=b", `has the key "" twice`},
		{"type: map, keyPattern: '.*'", "=a,x=1,=b", `has the key "" twice`},
		{"type: map, keyPattern: '/.*'", "/x=1", `{"/x":"1"}`},
		{"type: map, separator: ':'", "vol1:/tmp/one,vol2:/tmp/two", `{"vol1":"/tmp/one","vol2":"/tmp/two"}`},
		{"type: map, items: {type: integer}", "a=x", `has the key a with a value that is "x"; it must be an integer`},
		{"type: map, items: {type: number}", "a=1", `{"a":1}`},
		{"type: map, maxItems: 1", "a=1,b=2", `has 2 items; at most 1 are allowed`},
		{"type: json", `{"b": [1, null, 1.5], "a": "x"}`, `{"a":"x","b":[1,null,1.5]}`},
		{"type: json", "b: [1]\na: x\n", `{"a":"x","b":[1]}`},
		{"type: json", "- a\n- b: yes\n", `["a",{"b":true}]`},
		{"type: json", "", `is empty`},
		{"type: json", "x", `is "x"; it must be an object or a list in JSON or YAML`},
		{"type: json", "{", `is neither JSON nor YAML: line 1: did not find expected node content`},
		{"type: json", "a: &x [1]\nb: *x", `has a YAML anchor, an alias or a merge key; write the value itself`},
		{"type: json", "a: 1\n<<: {b: 1}", `has a YAML anchor, an alias or a merge key; write the value itself`},
		{"type: json", "a: 1\n---\nb: 1", `has more than one YAML document`},
		{"type: json", "a: !x 1", `is not JSON: line 1: the YAML tag !x has no meaning here`},
		{"type: json", `{"a": 1, "a": 2}`, `has the key "a" twice`},
		{"type: json", "a: 1\na: 2", `is not JSON: line 2: the key "a" appears twice`},
		{"type: json", `[1e999]`, `has the number 1e999, which is too large`},
		{"type: json", "[.inf]", `is not JSON: line 1: .inf is not a JSON number`},
		{"type: json", deep(maxJSONDepth), deep(maxJSONDepth)},
		{"type: json", deep(maxJSONDepth + 2), `is nested more than 16 deep`},
		{"type: json", "a: " + deep(maxJSONDepth+2), `is nested more than 16 deep`},
		{"type: json", "[" + many("1", maxJSONValues) + "]", "[" + many("1", maxJSONValues) + "]"},
		{"type: json", "[" + many("1", maxJSONValues+1) + "]", `has more than 1000 values`},
		{"type: json, keys: [host, port]", `{"host": {"name": 1}, "port": 2}`, `{"host":{"name":1},"port":2}`},
		{"type: json, keys: [host, port]", `[{"host": 1}, "x", {"prt": 2}]`, `has the unknown key "prt"; did you mean "port"?`},
		{"type: json, keys: [host, port]", `{"unknown": 1}`, `has the unknown key "unknown"; the keys are host, port`},
		{"type: json, maxLength: 16384", "[" + deep(8000) + "]", `is nested more than 16 deep`},
		{"type: boolean", "1", `is "1"; it must be true or false`},
		{"type: boolean, annotation: a/b", "maybe", `is "maybe"; it must be true or false, 1 or 0, yes or no, on or off`},
		{"type: boolean, annotation: a/b", "On", `true`},
		{"pattern: '[a-z]+', message: a name", "1", `is "1"; it must be a name`},
		{"pattern: '[a-z]+', message: a name", "a", `"a"`},
	} {
		p := compiledParam(t, "{name: p, "+c.param+"}")
		value, err := p.parseValue(c.text)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = shown(t, value)
		}
		if got != c.want {
			t.Errorf("{%s} with %.60q: %s\nwant %s", c.param, c.text, got, c.want)
		}
	}
}

// annotated returns annotations as a node.
func annotated(values ...string) *jsontree.Node {
	n := jsontree.Members()
	for i := 0; i < len(values); i += 2 {
		n.Set(values[i], jsontree.Text(values[i+1]))
	}
	return &n
}

// TestPrefix checks the values of a parameter with a prefix, at their bounds too.
func TestPrefix(t *testing.T) {
	t.Parallel()
	sized := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("a/s-%03d", i), strings.Repeat("x", 7))
		}
		return all
	}
	for _, c := range []struct {
		param string
		pod   []string
		ns    map[string]string
		want  string
	}{
		{"", nil, nil, `{}`},
		{"default: a=1", nil, nil, `{"a":"1"}`},
		{"default: a=1", []string{"a/s-b", "2"}, nil, `{"b":"2"}`},
		{"", []string{"a/s-b", "2", "a/s-", "3", "a/t-c", "4", "b/s-d", "5"}, nil, `{"b":"2"}`},
		{"", []string{"a/s-b", " 2,3 "}, nil, `{"b":" 2,3 "}`},
		{"", []string{"a/s-b", "pod"}, map[string]string{"a/s-b": "ns", "a/s-a": "ns"}, `{"a":"ns","b":"pod"}`},
		{"overridableBy: [Pod]", []string{"a/s-b", "pod"}, map[string]string{"a/s-a": "ns"}, `the namespace's annotation a/s-a sets a parameter that a namespace may not set`},
		{"overridableBy: [Namespace]", []string{"a/s-b", "pod"}, nil, `the pod's annotation a/s-b sets a parameter that a pod may not set`},
		{"", []string{"a/s-../x", "1"}, nil, `the pod's annotation a/s-../x ends in "../x"; the names must match ` + usualKeys},
		{"keyPattern: '[a-z]'", []string{"a/s-1", "1", "a/s-a", "1", "a/s-2", "1"}, nil, `the pod's annotation a/s-1 ends in "1"; the names must match [a-z]; the pod's annotation a/s-2 ends in "2"; the names must match [a-z]`},
		{"keys: [b, c]", []string{"a/s-b", "2", "a/s-d", "3"}, nil, `{"b":"2"}`},
		{"keys: [b, c], default: c=1", []string{"a/s-d", "3"}, nil, `{"c":"1"}`},
		{"items: {type: integer}", []string{"a/s-b", "x"}, nil, `the pod's annotation a/s-b is "x"; it must be an integer`},
		{"maxItems: 2", sized(3), nil, `the pod's annotation a/s-NAME is set with 3 names; at most 2 are allowed`},
		{"maxItems: 2", sized(2), nil, `{"000":"xxxxxxx","001":"xxxxxxx"}`},
		{"maxLength: 20", sized(2), nil, `{"000":"xxxxxxx","001":"xxxxxxx"}`},
		{"maxLength: 19", sized(2), nil, `the pod's annotation a/s-NAME has names and values of 20 bytes together; at most 19 are allowed`},
	} {
		set := NewSet([]*Param{compiledParam(t, "{name: p, prefix: a/s-"+strings.TrimSuffix(", "+c.param, ", ")+"}")})
		found, err := set.Find(annotated(c.pod...), nil, &request.Namespace{Annotations: c.ns})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = shown(t, found.CEL("p"))
		}
		if got != c.want {
			t.Errorf("{%s} with %v and %v: %s\nwant %s", c.param, c.pod, c.ns, got, c.want)
		}
	}
}

// TestPartsAreLinear checks that a value of twice the length takes at most about twice the
// allocations, whatever it contains.
func TestPartsAreLinear(t *testing.T) {
	for param, item := range map[string]string{
		"type: list, maxLength: 16384, maxItems: 1000":                          "a,",
		"type: list, maxLength: 16384, maxItems: 1000, items: {pattern: '.*'}":  "ab1,",
		"type: map, maxLength: 16384, maxItems: 1000":                           "k%d=v,",
		"type: map, maxLength: 16383, maxItems: 1000, items: {maxLength: 9999}": "k=v,v,v,",
		"type: json, maxLength: 16384":                                          "- a\n",
		"type: json, maxLength: 16383":                                          "- {a: [b]}\n",
		"type: json, maxLength: 16382":                                          "# x\n",
		"type: json, maxLength: 16381":                                          "k%d: [",
		"type: json, maxLength: 16380":                                          "- 'x\n",
		"type: json, maxLength: 16379":                                          "? ",
	} {
		p := compiledParam(t, "{name: p, "+param+"}")
		cost := func(n int) float64 {
			var b strings.Builder
			for i := range n {
				b.WriteString(strings.ReplaceAll(item, "%d", fmt.Sprint(i)))
			}
			return testing.AllocsPerRun(3, func() { _, _ = p.parseValue(b.String()) })
		}
		if one, two := cost(400), cost(800); two > 2.5*one+100 {
			t.Errorf("{%s} with %q: %v allocations, and %v for twice the length", param, item, one, two)
		}
	}
}

// TestParseAllocations checks that parsing a value, which a request does, allocates little more than the
// value.
func TestParseAllocations(t *testing.T) {
	p := compiledParam(t, "{name: p, type: list, items: {type: integer}}")
	if n := testing.AllocsPerRun(100, func() { _, _ = p.parseValue("1,2,3,4,5,6,7,8,9,10") }); n > 20 {
		t.Errorf("%v allocations for ten items", n)
	}
}

// TestIsTypo checks which names of other products' annotations are almost certainly typing errors.
func TestIsTypo(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"agent-inject-secert-", "agent-inject-secret-"},
		{"adminPort", "admin-port"},
		{"app-ports", "app-port"},
		{"skip-inbound-port", "skip-inbound-ports"},
		{"agent-limts-cpu", "agent-limits-cpu"},
		{"agent-limits-cpi", "agent-limits-cpu"},
		{"Role", "role"},
	} {
		if !problem.IsTypo(pair[0], pair[1]) {
			t.Errorf("%s is a typing error for %s", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{
		{"role", "role"},
		{"proxy-gid", "proxy-uid"},
		{"agent-limits-mem", "agent-limits-cpu"},
		{"skip-outbound-ports", "skip-inbound-ports"},
		{"app-id", "app-port"},
		{"excludeInboundPorts", "includeInboundPorts"},
		{"agent-inject", "agent-inject-secret-"},
		{"", "role"},
		{"roles", "role"},
		{"ca-key", "ca-cert"},
		{"env", "eng"},
	} {
		if problem.IsTypo(pair[0], pair[1]) {
			t.Errorf("%s is not certainly a typing error for %s", pair[0], pair[1])
		}
	}
}

// FuzzParts checks that any value of a list, a map or JSON is rejected with a sentence, or is the
// same value each time, with bounded parts.
func FuzzParts(f *testing.F) {
	for _, text := range []string{"", "a,b", "a=1,b=2", "a:/x,b:/y", `{"a":[1]}`, "a: [1]\nb: yes", "a: &x 1\nb: *x", "[[[[[[", "? a", "\x00", "a=1,a=2", "!!binary x"} {
		f.Add(text)
	}
	var all []*Param
	for _, declared := range []string{"type: list", "type: list, items: {type: number}", "type: map", "type: map, separator: ':'", "type: json", "type: boolean, annotation: a/b"} {
		all = append(all, compiledParam(f, "{name: p, "+declared+"}"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range all {
			one, err := p.parseValue(text)
			if err != nil {
				if len(err.Error()) > 4*len(text)+1000 {
					t.Errorf("an error of %d bytes about %d", len(err.Error()), len(text))
				}
				continue
			}
			two, _ := p.parseValue(text)
			if a, b := shown(t, one), shown(t, two); a != b || len(text) > p.length {
				t.Errorf("%q gives %s and %s", text, a, b)
			}
		}
	})
}
