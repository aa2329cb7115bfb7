// SPDX-License-Identifier: Apache-2.0

package jsontree_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates/jsontree"
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
		root, err := jsontree.Parse([]byte(verified))
		if err != nil {
			t.Fatal(err)
		}
		var v jsontree.Verifier
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
	root, _ := jsontree.Parse([]byte(verified))
	var v jsontree.Verifier
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
	added := func(name string) jsontree.Node { // a member with the mark of an addition
		return *new(jsontree.Journal).Add(new(jsontree.Members()), name, jsontree.Items(jsontree.Text("x")))
	}
	for name, fault := range map[string]func(root *jsontree.Node){
		"an existing member": func(root *jsontree.Node) { *root.At("metadata", "labels", "a") = added("a") },
		"a replaced list":    func(root *jsontree.Node) { *root.At("spec", "containers") = added("containers") },
		"a replaced item":    func(root *jsontree.Node) { *root.At("spec", "containers").Items()[0].Get("env") = added("env") },
		"a missing parent": func(root *jsontree.Node) {
			root.Get("spec").Set("affinity", jsontree.Members())
			new(jsontree.Journal).Add(root.At("spec", "affinity"), "x", jsontree.Text("y"))
		},
		"an index too large": func(root *jsontree.Node) {
			l := root.At("spec", "containers")
			l.Append(jsontree.Text("1"))
			l.Append(jsontree.Text("2"))
			new(jsontree.Journal).Insert(l, 3, jsontree.Text("3"))
		},
		"a filled list that is replaced": func(root *jsontree.Node) {
			l := root.At("spec", "volumes")
			new(jsontree.Journal).Insert(l, 0, jsontree.Text("1"))
			root.Get("spec").Set("volumes", added("volumes"))
		},
		"the same name again": func(root *jsontree.Node) {
			for range 2 {
				root.At("metadata", "labels").Set("n", added("n"))
			}
		},
	} {
		root, err := jsontree.Parse([]byte(verified))
		if err != nil {
			t.Fatal(err)
		}
		fault(root)
		var v jsontree.Verifier
		v.Begin(root)
		found := false
		root.Additions(func(path []byte, _ *jsontree.Node) { found = v.Add(path) != nil || found })
		if !found {
			t.Errorf("%s passes", name)
		}
	}
}
