// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates/tree"
)

const verified = `{"metadata":{"labels":{"a":"b","x/y":"z"},"annotations":null},"spec":{"containers":[{"name":"a","env":[{}]},{"name":"b"}],"volumes":[],"dup":1,"dup":{"in":{}}}}`

// TestVerifier checks that an add to an absent place passes, and that everything else fails.
func TestVerifier(t *testing.T) {
	t.Parallel()
	for paths, want := range map[string]string{
		"/metadata/labels/c":                    "",
		"/metadata/labels/a":                    "there already",
		"/metadata/labels/x~1y":                 "there already",
		"/metadata/labels/x~1z":                 "",
		"/metadata/labels/c /metadata/labels/c": "added before",
		"/metadata":                             "there already",
		"":                                      "the whole pod",
		"/metadata/annotations":                 "",
		"/metadata/annotations/a":               `no "annotations"`,
		"/spec/volumes":                         "",
		"/spec/volumes/-":                       "",
		"/spec/volumes/0 /spec/volumes/1 /spec/volumes/-":     "",
		"/spec/volumes/- /spec/volumes":                       "added before",
		"/spec/volumes /spec/volumes/-":                       "added or filled before",
		"/spec/volumes/1":                                     "no place",
		"/spec/containers":                                    "there already",
		"/spec/containers/0":                                  "",
		"/spec/containers/2":                                  "",
		"/spec/containers/3":                                  "no place",
		"/spec/containers/00":                                 "no place",
		"/spec/containers/-1":                                 "no place",
		"/spec/containers/0 /spec/containers/3":               "",
		"/spec/containers/0 /spec/containers/0/env/-":         "shifted",
		"/spec/containers/0/env/- /spec/containers/0":         "",
		"/spec/containers/0/env/0/x /spec/containers/0/env/0": "",
		"/spec/containers/0/name":                             "there already",
		"/spec/containers/0/name/x":                           "neither",
		"/spec/containers/1/env":                              "",
		"/spec/containers/1/env/-":                            `no "env"`,
		"/spec/containers/2/env":                              `no "2"`,
		"/spec/containers/-/env":                              `no "-"`,
		"/spec/dup/in/x":                                      "",
		"/spec/affinity/x":                                    `no "affinity"`,
		"/status":                                             "",
	} {
		root, err := tree.Parse([]byte(verified))
		if err != nil {
			t.Fatal(err)
		}
		var v tree.Verifier
		for range 2 { // the second time with the state of the first
			v.Begin(root)
			got := ""
			for path := range strings.SplitSeq(paths, " ") {
				if err := v.Add([]byte(path)); err != nil {
					got = err.Error()
				}
			}
			if (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", paths, got, want)
			}
		}
	}
	root, _ := tree.Parse([]byte(verified))
	var v tree.Verifier
	v.Begin(root)
	for i := range 100 {
		if err := v.Add(fmt.Appendf(nil, "/spec/f%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if v.Add([]byte("/spec/f70")) == nil {
		t.Error("the same place after many others")
	}
}

// TestVerifierOfFaults checks that the verifier does not trust the tree's own records.
func TestVerifierOfFaults(t *testing.T) {
	t.Parallel()
	added := func(name string) tree.Node { // a member with the mark of an addition
		return *new(tree.Journal).Add(new(tree.Members()), name, tree.Items(tree.Text("x")))
	}
	for name, fault := range map[string]func(root *tree.Node){
		"an existing member": func(root *tree.Node) { *root.At("metadata", "labels", "a") = added("a") },
		"a replaced list":    func(root *tree.Node) { *root.At("spec", "containers") = added("containers") },
		"a replaced item":    func(root *tree.Node) { *root.At("spec", "containers").Items()[0].Get("env") = added("env") },
		"a missing parent": func(root *tree.Node) {
			root.Get("spec").Set("affinity", tree.Members())
			new(tree.Journal).Add(root.At("spec", "affinity"), "x", tree.Text("y"))
		},
		"an index too large": func(root *tree.Node) {
			l := root.At("spec", "containers")
			l.Append(tree.Text("1"))
			l.Append(tree.Text("2"))
			new(tree.Journal).Insert(l, 3, tree.Text("3"))
		},
		"a filled list that is replaced": func(root *tree.Node) {
			l := root.At("spec", "volumes")
			new(tree.Journal).Insert(l, 0, tree.Text("1"))
			root.Get("spec").Set("volumes", added("volumes"))
		},
		"the same name again": func(root *tree.Node) {
			for range 2 {
				root.At("metadata", "labels").Set("n", added("n"))
			}
		},
	} {
		root, err := tree.Parse([]byte(verified))
		if err != nil {
			t.Fatal(err)
		}
		fault(root)
		var v tree.Verifier
		v.Begin(root)
		found := false
		root.Additions(func(path []byte, _ *tree.Node) { found = v.Add(path) != nil || found })
		if !found {
			t.Errorf("%s passes", name)
		}
	}
}
