// SPDX-License-Identifier: Apache-2.0

package jsontree_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

func parse(t *testing.T, text string) *jsontree.Node {
	t.Helper()
	n, err := jsontree.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestParseKeepsBytes checks that parsed JSON is written as it was received, and that a sealed tree has the same values.
func TestParseKeepsBytes(t *testing.T) {
	for _, text := range []string{
		` {"a" : [1, 2.50, {"b": null} ] , "c":"\u00e9\n" }`, `[]`, `{}`, `"x"`, `12345678901234567890`, `true`, `null`,
		`{"1":{"2":{"3":{"4":{"5":{"6":[ 7 ]}}}}}}`,
	} {
		n := parse(t, text)
		if got := n.String(); got != strings.TrimSpace(text) {
			t.Errorf("%s: %s", text, got)
		}
		n.Seal()
		var want, got any
		if json.Unmarshal([]byte(text), &want) != nil || json.Unmarshal([]byte(n.String()), &got) != nil || !reflect.DeepEqual(want, got) {
			t.Errorf("%s sealed: %s", text, n)
		}
	}
}

// TestParseRejects checks that invalid and too deep JSON is rejected.
func TestParseRejects(t *testing.T) {
	for _, text := range []string{
		``, ` `, `{`, `{"a"}`, `{"a":1,}`, `[1,]`, `{"a":1} x`, `{"a":01}`, "{\"a\":\"\xff\"}", `{"a":tru}`, `{a:1}`, "\"\n\"", `{} {}`,
		strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
	} {
		if n, err := jsontree.Parse([]byte(text)); err == nil {
			t.Errorf("%.40q became %.40s", text, n)
		}
	}
}

// TestLookup checks lookups of members: null counts as absent, the last of several with one name counts, and names are unescaped.
func TestLookup(t *testing.T) {
	n := parse(t, `{"a":{"b":{"c":{"d":{"e":"deep"}}}},"n":null,"d":1,"d":2,"esc\u0061ped":true,"k\"":"q","l":[1,"x"]}`)
	if got := n.At("a", "b", "c", "d", "e").Text(); got != "deep" {
		t.Error(got)
	}
	if n.Get("n") != nil || n.At("n", "x") != nil || n.Get("no") != nil || n.At("l", "x") != nil {
		t.Error("absent and null are not the same")
	}
	if n.Get("d").String() != "2" {
		t.Error("not the last of two")
	}
	if n.Get("escaped").Kind() != jsontree.True || !n.Get(`k"`).IsText("q") {
		t.Error("names are not unescaped")
	}
	if items := n.Get("l").Items(); len(items) != 2 || !items[1].IsText("x") || items[0].Text() != "" {
		t.Error(items)
	}
}

// TestAdditions checks additions to objects and lists, and that they can be undone.
func TestAdditions(t *testing.T) {
	n := parse(t, `{"list":[{"x":1},{"x":2}],"empty":[],"null":null,"obj":{"a/b~c":{"k":1}}}`)
	var journal jsontree.Journal
	add := func() {
		list := n.Get("list")
		journal.Add(&list.Items()[1], "y", jsontree.Text("in the second"))
		journal.Insert(list, 0, jsontree.Text("first"))
		journal.Insert(list, 2, jsontree.Text("middle"))
		journal.Insert(list, 4, jsontree.Text("last"))
		journal.Add(n, "empty", jsontree.Items(jsontree.Int(1)))
		journal.Add(n, "null", jsontree.Bool(true))
		journal.Add(n.At("obj", "a/b~c"), "new~/", jsontree.Members(jsontree.Field("\"", jsontree.Float(1.5))))
		if journal.Add(n, "obj", jsontree.Int(1)) != nil || journal.Add(n, "list", jsontree.Items()) != nil {
			t.Error("what was there was replaced")
		}
	}
	var got []string
	additions := func() []string {
		got = nil
		n.Additions(func(path []byte, value *jsontree.Node) { got = append(got, string(path)+" "+value.String()) })
		return got
	}
	add()
	if journal.Undo(); len(additions()) > 0 || len(n.Get("list").Items()) != 2 || n.Get("empty").Kind() != jsontree.Array {
		t.Errorf("not taken back: %q", got)
	}
	add()
	journal.Keep()
	journal.Undo()
	additions()
	want := []string{
		`/list/1/y "in the second"`, `/list/0 "first"`, `/list/2 "middle"`, `/list/- "last"`,
		`/empty [1]`, `/null true`, `/obj/a~1b~0c/new~0~1 {"\"":1.5}`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestWith checks that copies with and without members leave the original unchanged.
func TestWith(t *testing.T) {
	n, arena := parse(t, `{"a":1,"b":[1]}`), new(jsontree.Arena)
	with, without := arena.With(n, "b", jsontree.Int(2)), arena.Without(n, "a")
	more := arena.With(n, "c", jsontree.Items())
	if n.String() != `{"a":1,"b":[1]}` || with.String() != `{"a":1,"b":2}` || without.String() != `{"b":[1]}` || more.String() != `{"a":1,"b":[1],"c":[]}` {
		t.Error(n, with.String(), without.String(), more.String())
	}
}

// TestText checks that any string becomes valid JSON.
func TestText(t *testing.T) {
	for _, s := range []string{"", "plain", "q\"\\\n\x00\u2028", "é", "\xff\xfe"} {
		n := jsontree.Text(s)
		var back string
		if err := json.Unmarshal(n.AppendTo(nil), &back); err != nil || back != strings.ToValidUTF8(s, "\uFFFD") || n.Text() != back || !n.IsText(back) {
			t.Errorf("%q: %s, %v", s, n.String(), err)
		}
	}
}

// TestFromYAML checks that YAML becomes the JSON that Kubernetes makes of it.
func TestFromYAML(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: [x, 'y', true, null, ~]": `{"a":1,"b":["x","y",true,null,null]}`,
		"z: 1\na: 2":                       `{"z":1,"a":2}`,
		"n: 12345678901234567890\nm: 123456789012345678901234567890":   `{"n":12345678901234567890,"m":123456789012345678901234567890}`,
		"h: 0x1F\no: 0o17\nu: 1_000\nf: 1.50\ne: .5\nneg: -3":          `{"h":31,"o":15,"u":1000,"f":1.50,"e":0.5,"neg":-3}`,
		"d: 2001-12-14\na: yes\nb: 'yes'\nc: Off\nd2: oN\ne: !!str no": `{"d":"2001-12-14","a":true,"b":"yes","c":false,"d2":"oN","e":"no"}`,
		"a: &x {k: 1}\nb: *x\nc:\n  <<: *x\n  l: 2":                    `{"a":{"k":1},"b":{"k":1},"c":{"k":1,"l":2}}`,
		"a: &x {k: 1, m: 2}\nc:\n  l: 2\n  <<: [{k: 3}, *x]\n  m: 4":   `{"a":{"k":1,"m":2},"c":{"l":2,"k":3,"m":4}}`,
		"b: |\n  line\n  two\nq: \"\\u00e9\\n\"":                       `{"b":"line\ntwo\n","q":"é\n"}`,
		`{"json": {"works": [1, "2", false, 1.0e3]}}`:                  `{"json":{"works":[1,"2",false,1.0e3]}}`,
	} {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		n, err := jsontree.FromYAML(&doc)
		if err != nil || n.String() != want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", text, err, n.String(), want)
		}
	}
	for text, want := range map[string]string{
		"a: .inf": "line 1", "a: 1\na: 2": "line 2", "a: 1\n<<: 2": "line 2", "a: 1\n<<: [{}, 2]": "line 2", "a: &a\n  b: *a": "itself", "? [1]\n: 2": "line 1", "a: !!set {b}": "line 1",
		"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f]": "aliases",
	} {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		if n, err := jsontree.FromYAML(&doc); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, %.40s", text, err, n.String())
		}
	}
}

// FuzzParse checks that the parser accepts exactly what jsontext accepts, and that the tree has the
// same values as encoding/json, however much of it is indexed.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,{"b":null}]}`, `{"a":1,"a":{"x":2}}`, `{"\u0061":"\ud83d\ude00\/"}`, ` [ 1e5 , -0 ] `, `{"A":1,"a":2}`, `"\ud800"`,
		`{"a":{"b":{"c":{"d":{"e":{"f":[[[[1]]]]}}}}}}`, `12345678901234567890`, "\"\xff\"", `nul`, `[1]]`, `{"":0}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := jsontree.Parse(bytes.Clone(text))
		if want := jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true)); (err == nil) != want {
			t.Fatalf("valid: %v, but %v", want, err)
		}
		if err != nil {
			return
		}
		if got := n.String(); got != string(bytes.TrimSpace(text)) {
			t.Fatalf("%q became %q", text, got)
		}
		var want any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&want); err != nil {
			t.Fatal(err)
		}
		if at := differs(n, want); at != "" {
			t.Fatalf("%q: %s", text, at)
		}
	})
}

func differs(n *jsontree.Node, want any) string {
	switch w := want.(type) {
	case map[string]any:
		if n.Kind() != jsontree.Object {
			return "no object"
		}
		for k, v := range w {
			child := n.Get(k)
			if v == nil && child == nil {
				continue
			}
			if child == nil {
				return k + " is missing"
			}
			if d := differs(child, v); d != "" {
				return k + ": " + d
			}
		}
		for i := range n.Members() {
			if _, ok := w[n.Members()[i].Name()]; !ok {
				return n.Members()[i].Name() + " is too much"
			}
		}
	case []any:
		if n.Kind() != jsontree.Array || len(n.Items()) != len(w) {
			return "no such array"
		}
		for i := range w {
			if d := differs(&n.Items()[i], w[i]); d != "" {
				return fmt.Sprint(i, ": ", d)
			}
		}
	case string:
		if n.Kind() != jsontree.String || n.Text() != w || !n.IsText(w) {
			return fmt.Sprintf("%q, not %q", n.Text(), w)
		}
	case json.Number:
		if n.Kind() != jsontree.Number || n.String() != w.String() {
			return n.String()
		}
	case bool:
		if (n.Kind() == jsontree.True) != w {
			return n.String()
		}
	case nil:
		if n.Kind() != jsontree.Null {
			return n.String()
		}
	}
	return ""
}

// TestLongList checks that a list of many tiny items takes little more memory than its nodes, and
// that this is counted.
func TestLongList(t *testing.T) {
	const items, most = 300_000, 100 * 300_000 // bytes
	used := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	var parser jsontree.Parser
	text := `{"list":[{}` + strings.Repeat(",{}", items-1) + `],"more":[1,2,3]}`
	before := used()
	n, err := parser.Parse(text, 2)
	if err != nil || len(n.Get("list").Items()) != items {
		t.Fatal(err)
	}
	after := used()
	if after -= before; after > most || parser.Kept() < after*9/10 {
		t.Errorf("%d items take %d bytes, of which %d are known", items, after, parser.Kept())
	}
	runtime.KeepAlive(n)
}

// TestLongLists checks that the items after a long list do not each keep memory for it.
func TestLongLists(t *testing.T) {
	const most = 200 << 20 // gigabytes if each item kept it
	list := "[" + strings.Repeat("1,", 4999) + "1]"
	text := `{"a":[` + strings.Repeat("1,", 200_000) + strings.Repeat(list+",", 100) + list + `]}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var parser jsontree.Parser
	if _, err := parser.Parse(text, 2); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if memory := after.TotalAlloc - before.TotalAlloc; memory > most || parser.Kept() > most {
		t.Errorf("%d bytes take %d MiB, and keep %d", len(text), memory>>20, parser.Kept()>>20)
	}
}
