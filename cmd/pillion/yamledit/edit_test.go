// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// samples are documents in as many styles as there are.
func samples() []string {
	return []string{
		"a: 1\n",
		"a: 1",
		"a: 1 # one\n# the end\n",
		"a:\n  b: 1\n  c:\n  - x\n  - y\n\n# about d\nd: 2\n",
		"a:\n    b:\n        - x: 1\n          y: 2\n        # between\n        - x: 3\n      # odd\n    # of a\n",
		"a:\n- x\n# behind x\n- y\n# behind y\nb: 1\n",
		"a: |\n  text\n   more\n\n  end\nb: >-\n  folded\n  text\n",
		"a:\n- |\n  # no comment\n  x\n# a comment\n- |+\n  keep\n\n\nb: 1\n",
		"a: |2\n    two\n  b\nc: d\n",
		"a: \"x\n  # y\n  z\"\nb: 'it''s\n\n  long'\nc: plain\n  goes on\n  and on # until here\n",
		"{a: 1, b: [x, y, {c: d}], e: {}, f: []}\n",
		"{a: b:, c: [d:, e:]}\n",
		"a: {b: 1, c: [x, \"y]\", 'z}']}\nd: [ x,\n  y, # why\n  z\n]\n",
		"{\"a\":1,\"b\":[\"x\",{\"c\":\"\\ud83d\\ude00]\"}],\"d\":{},\"e\":null}\n",
		"{\n    \"a\": 1,\n    \"b\": [\n        \"x\",\n        {\n            \"c\": \"d\"\n        }\n    ],\n    \"e\": {}\n}\n",
		"{\n\t\"a\": {\n\t\t\"b\": 1\n\t}\n}\n",
		"a:\r\n  b: 1\r\n  c:\r\n  - x\r\n",
		"\uFEFFa: \u00e4\u00f6 # \u2192\nb: {\u00fc: 1, \u4e2d: [\U0001F600, x]}\n",
		"a:\nb: ~\nc: null # none\nd: [] # none\ne: {}\nf:\n",
		"- a\n- b: 1\n  c: 2\n-\n  d: 3\n- - x\n  - y\n- # empty\n  e: 4\n",
		"a: !!map\n  b: !!str 1\nc: !!seq\n- x\nd: &x {y: z}\n",
		"? a\n: b\nc: d\n",
		"a: 'x'   \nb:\t1\nc:   [1,2]  # two\n",
		"a:\n  b: |-\n    x\n\n\n\n  # c\n  c: 1\n\n\n# d\n\nd: 1\n\n",
	}
}

// collections visits all objects and lists of a document.
func collections(node *yaml.Node, at []string, visit func(path []string, n *yaml.Node)) {
	if node.Kind == yaml.AliasNode {
		return
	}
	if node.Kind != yaml.ScalarNode {
		visit(at, node)
	}
	for i, child := range node.Content {
		name := strconv.Itoa(i)
		if node.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue
			}
			name = node.Content[i-1].Value
		}
		collections(child, append(slices.Clip(at), name), visit)
	}
}

func edit(t *testing.T, text string, changes ...Change) string {
	t.Helper()
	root, err := Document{Body: []byte(text)}.Parse()
	if err != nil {
		t.Fatal(err)
	}
	out, err := root.Edit(changes)
	if err != nil {
		t.Fatalf("%v\n%s\n%q", err, text, changes[0].Path)
	}
	return string(out)
}

var values = []string{`1`, `"x"`, `""`, `"on"`, `"a\nb"`, `"a\nb\n"`, `" lead\n\ntail \n\n"`, `{}`, `[]`, `{"k":"v","l":[1,{"m":null}]}`, `[{"k":[["x"]]},"y"]`}

// TestEditTakesBack adds something at every place of every sample, and removes it again. The bytes
// are then as before, and in between no other line differs.
func TestEditTakesBack(t *testing.T) {
	t.Parallel()
	n := 0
	for _, text := range samples() {
		root, err := Document{Body: []byte(text)}.Parse()
		if err != nil {
			t.Fatal(err, text)
		}
		collections(root.Content[0], nil, func(path []string, node *yaml.Node) {
			for _, value := range values {
				names := []string{"added", "metadata"}
				if node.Kind == yaml.SequenceNode {
					names = []string{"-", "0"}
				}
				for _, name := range names {
					if len(node.Content) == 0 && len(path) > 0 && isIndex(path[len(path)-1]) {
						continue
					}
					n++
					in := append(slices.Clip(path), name)
					out := edit(t, text, Change{Path: in, Value: []byte(value)})
					if node.Style&yaml.FlowStyle == 0 && (name != "0" || !strings.Contains(text, "- - x")) {
						wantLines(t, text, out)
					}
					back := []Change{{Path: slices.Clone(in)}}
					if name == "-" {
						back[0].Path[len(in)-1] = strconv.Itoa(len(node.Content))
					}
					if at, written, ok := root.Empty(in); ok {
						back = append(back, root.Restore(at, written))
					}
					if len(path) == 0 && len(node.Content) == 0 {
						continue
					}
					if back := edit(t, out, back...); back != text {
						t.Errorf("%q at %q in\n%s\ngives\n%s\nand taken out\n%s", value, in, text, out, back)
					}
				}
			}
		})
	}
	if n < 1000 {
		t.Error("only", n, "changes")
	}
}

func isIndex(name string) bool { _, err := strconv.Atoi(name); return err == nil }

// wantLines checks that every original line is still there, except for an empty value that was
// filled.
func wantLines(t *testing.T, before, after string) {
	t.Helper()
	rest := strings.SplitAfter(strings.TrimPrefix(after, byteOrderMark), "\n")
	for line := range strings.SplitAfterSeq(strings.TrimPrefix(before, byteOrderMark), "\n") {
		k := 0
		for k < len(rest) && strings.TrimRight(rest[k], "\r\n") != strings.TrimRight(line, "\r\n") {
			k++
		}
		if k == len(rest) {
			t.Errorf("the line %q is lost or changed in\n%s", line, after)
			return
		}
		rest = rest[k+1:]
	}
}

// TestEditFills checks that an empty value that was filled is restored, however it was written.
func TestEditFills(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, value, want string }{
		{"a:\nz: 1\n", `[1]`, "a:\n- 1\nz: 1\n"},
		{"a: ~   # none\nz: 1\n", `{"x":1}`, "a:    # none\n  x: 1\nz: 1\n"},
		{"a:   [] # none\nz: 1\n", `[{"x":1}]`, "a:    # none\n- x: 1\nz: 1\n"},
		{"a: []", `[1]`, "a:\n- 1"},
		{"a: [\n  ]\nz: 1\n", `[1]`, "a:\n- 1\nz: 1\n"},
		{"a: [ # c\n  ] # d\nz: 1\n", `[1]`, "a:  # c\n   # d\n- 1\nz: 1\n"},
		{"a:\n  {}\nz: 1\n", `{"x":1}`, "a:\n  x: 1\nz: 1\n"},
		{"a: # b\n  {} # c\nz: 1\n", `{"x":1}`, "a: # b\n   # c\n  x: 1\nz: 1\n"},
		{"a: null\nz: 1\n", `true`, "a: true\nz: 1\n"},
		{"a: # b\nz: 1\n", `"x\ny"`, "a: \"x\\ny\" # b\nz: 1\n"},
		{"a: []\r\nz: 1\r\n", `[1]`, "a:\r\n- 1\r\nz: 1\r\n"},
		{"a:\r\n  []\r\nz: 1\r\n", `[1]`, "a:\r\n- 1\r\nz: 1\r\n"},
		{"'a' : &x []\nz: 1\n", `[1]`, "'a' : &x\n- 1\nz: 1\n"},
		{"{a: [ ], z: 1}\n", `["b"]`, "{a: [b ], z: 1}\n"},
		{"{a: , z: 1}\n", `["b"]`, "{a: [b] , z: 1}\n"},
		{"{a, z: 1}\n", `["b"]`, "{a: [b], z: 1}\n"},
		{"{a: ~ , z: 1}\n", `["b"]`, "{a: [b] , z: 1}\n"},
		{`{"a":null,"z":1}`, `["b"]`, `{"a":["b"],"z":1}`},
		{"{\n  \"a\" : [\n ],\n  \"z\": 1}", `["b"]`, "{\n  \"a\" : [\"b\"\n ],\n  \"z\": 1}"},
	} {
		root, err := Document{Body: []byte(row.text)}.Parse()
		if err != nil {
			t.Fatal(err)
		}
		at, written, ok := root.Empty([]string{"a"})
		out := edit(t, row.text, Change{Path: []string{"a"}, Value: []byte(row.value)})
		if !ok || out != row.want {
			t.Errorf("%q becomes\n%q, want\n%q", row.text, out, row.want)
		}
		if back := edit(t, out, Change{Path: []string{"a"}}, root.Restore(at, written)); back != row.text {
			t.Errorf("%q with %q comes back as\n%q", row.text, written, back)
		}
	}
}

// TestEditAliases checks that parts that an anchor and its aliases share are not changed.
func TestEditAliases(t *testing.T) {
	t.Parallel()
	for path, line := range map[string]string{"a y": "1", "c y": "3", "d b y": "5", "d e y": "", "d y": "", "f y": ""} {
		root, err := Document{Body: []byte("a: &x\n  b: 1 # one\nc: *x\nd:\n  <<: *x\n  e: {}\nf: &z {}\n")}.Parse()
		if err != nil {
			t.Fatal(err)
		}
		_, err = root.Edit([]Change{{Path: strings.Fields(path), Value: []byte(`3`)}})
		if err == nil != (line == "") || err != nil && !strings.HasPrefix(err.Error(), "line "+line+": this part is used in several places by a YAML anchor") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestEditLast checks that a block scalar keeps its value at the end of a file without a line
// break.
func TestEditLast(t *testing.T) {
	t.Parallel()
	if out := edit(t, "a: |\n  x", Change{Path: []string{"b"}, Value: []byte(`1`)}); out != "a: |-\n  x\nb: 1" {
		t.Errorf("%q", out)
	}
}

// TestEditIsLinear checks that twice the document takes twice the memory, in every style.
func TestEditIsLinear(t *testing.T) {
	items := map[string][3]string{
		"block": {"a:\n", "- b: 1\n  c:\n  - x\n", ""},
		"flow":  {"{a: [", "{b: 1, c: [x]}, ", "{b: 1, c: [x]}]}\n"},
		"json":  {`{"a":[`, `{"b":1,"c":["x"]},`, `{"b":1,"c":["x"]}]}`},
		"rune":  {"{a: [", "{b: \u00e4, c: [x]}, ", "{b: 1, c: [x]}]}\n"},
	}
	for name, parts := range items {
		cost := func(n int) float64 {
			text := parts[0] + strings.Repeat(parts[1], n) + parts[2]
			var changes []Change
			for i := range n {
				changes = append(changes, Change{Path: []string{"a", strconv.Itoa(i), "c", "-"}, Value: []byte(`"y"`)})
			}
			return testing.AllocsPerRun(1, func() {
				if out := edit(t, text, changes...); strings.Count(out, "y") != n {
					t.Error("not all were added")
				}
			})
		}
		if small, large := cost(200), cost(800); large > 5*small {
			t.Errorf("%s: 200 items take %.0f allocations, 800 take %.0f", name, small, large)
		}
	}
}

// FuzzEdit checks that any document that can be parsed can be changed, has the intended value, and
// gets its bytes back when the change is undone.
func FuzzEdit(f *testing.F) {
	for i, text := range samples() {
		f.Add([]byte(text), uint(i), uint(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, place, value uint) {
		root, err := Document{Body: data}.Parse()
		if err != nil || len(root.Content) == 0 || hasMarker(data) {
			return
		}
		if _, err := jsontree.FromYAML(root.Node); err != nil {
			return
		}
		var paths [][]string
		collections(root.Content[0], nil, func(path []string, n *yaml.Node) {
			name := "added"
			if n.Kind == yaml.SequenceNode {
				name = "-"
			}
			if len(n.Content) > 0 && (name == "-" || memberAt(n, name) < 0) {
				paths = append(paths, append(slices.Clip(path), name))
			}
		})
		if len(paths) == 0 {
			return
		}
		change := Change{Path: paths[place%uint(len(paths))], Value: []byte(values[value%uint(len(values))])}
		out, err := root.Edit([]Change{change})
		if err != nil {
			if strings.Contains(err.Error(), "please report") && !exotic(data) && breakLength(data) > 0 {
				t.Fatalf("%v\n%q %q", err, data, change.Path)
			}
			return
		}
		if bytes.Contains(data, []byte("*")) || exotic(data) {
			return // aliases stay unfolded
		}
		again, err := Document{Body: out}.Parse()
		if err != nil {
			t.Fatal(err)
		}
		if last := len(change.Path) - 1; change.Path[last] == "-" {
			n := again.Content[0]
			for _, name := range change.Path[:last] {
				if n.Kind == yaml.MappingNode {
					n = Member(n, name)
				} else {
					i, _ := strconv.Atoi(name)
					n = n.Content[i]
				}
			}
			change.Path[last] = strconv.Itoa(len(n.Content) - 1)
		}
		back, err := again.Edit([]Change{{Path: change.Path}})
		if err != nil {
			t.Fatalf("%v\n%q\n%q", err, data, out)
		}
		if !bytes.Equal(back, data) && (breakLength(data) > 0 || !bytes.ContainsAny(data, "|>")) {
			t.Errorf("%q\nbecomes\n%q\nand then\n%q", data, out, back)
		}
	})
}

// hasMarker reports whether data has a marker between documents, which a document of a stream must not have.
func hasMarker(data []byte) bool { return len(Split(data)) > 1 }

// exotic are characters that YAML allows and no manifest has, and forms that are
// rejected with a clear error.
func exotic(data []byte) bool {
	return bytes.ContainsAny(data, "\r\t\u0085\u2028\u2029\uFEFF?%&!*") || bytes.Contains(data, []byte("- -"))
}

func ExampleDocument_Parse() {
	for _, d := range Split([]byte("a: 1 # one\n---\n{\"b\": 2}{\"c\": 3}\n")) {
		root, err := d.Parse()
		if err != nil {
			fmt.Println(err)
			continue
		}
		body, err := root.Edit([]Change{{Path: []string{"z"}, Value: []byte(`[26]`)}})
		fmt.Printf("%s%s%v\n", d.Head, body, err)
	}
	// Output:
	// a: 1 # one
	// z:
	// - 26
	// <nil>
	// ---
	// {"b": 2,"z":[26]}<nil>
	// {"c": 3,"z":[26]}
	// <nil>
}
