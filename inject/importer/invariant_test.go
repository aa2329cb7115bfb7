// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
)

// unchanged are changes that mean the same as before.
var unchanged = map[string]string{
	"removing .spec.updateStrategy.type":                                                                      "RollingUpdate is the default of a SidecarSet",
	"01-kruise-introduction removing .spec.updateStrategy":                                                    "it has only defaults",
	"01-kruise-introduction removing .spec.updateStrategy.maxUnavailable":                                     "1 is the default",
	"kyverno-anchors removing .spec.rules[3].mutate.foreach[0].patchStrategicMerge.spec.containers[0].(name)": "its image matches already",
	"stored changing .apiVersion":                                                                             "a List has no content of its own",
	"stored changing .kind":                                                                                   "a List has no content of its own",
	"stored changing .metadata.resourceVersion":                                                               "a List has no content of its own",
	"stored adding to .metadata":                                                                              "a List has no content of its own",
	"stored adding to ":                                                                                       "a List has no content of its own",
	"odds changing .apiVersion":                                                                               "a List has no content of its own",
	"odds changing .kind":                                                                                     "a List has no content of its own",
	"odds adding to ":                                                                                         "a List has no content of its own",
}

// TestNothingIsDropped checks that each field of the input is in a template or in the report. It changes and removes each value of
// each case, and adds an unknown field to each object. Each of these must change the templates or the report. The templates
// must still be valid, with their comments.
func TestNothingIsDropped(t *testing.T) {
	var changes atomic.Int32
	every := size.Choose(t, 10, 1)
	t.Run("cases", func(t *testing.T) {
		forEachSource(t, func(t *testing.T, sources []Source, at int) {
			t.Parallel()
			documents := documentsOf(sources[at].Data)
			before := outputOf(t, sources, at, documents)
			n := 0
			for _, doc := range documents {
				for _, c := range changesOf(doc.Content[0], "") {
					if n++; n%every != 0 {
						continue
					}
					c.do()
					after := outputOf(t, sources, at, documents)
					c.undo()
					changes.Add(1)
					if c.what == "removing" && strings.Contains(t.Name(), "/stored/") {
						continue // the objects have the defaults of API servers, which mean the same if they are missing
					}
					_, same := unchanged[c.what+" "+c.path]
					if _, also := unchanged[strings.Split(t.Name(), "/")[2]+" "+c.what+" "+c.path]; same || also {
						continue
					}
					switch {
					case c.unknown && !strings.Contains(after, "unknownToAll"):
						t.Errorf("a field unknownToAll in %s is dropped", c.path)
					case !c.unknown && after == before:
						t.Errorf("%s %s changes nothing", c.what, c.path)
					}
				}
			}
		})
	})
	if n := int(changes.Load()); n < 800/every {
		t.Errorf("only %d changes are tried", n)
	}
}

func documentsOf(data []byte) (documents []*yaml.Node) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		if decoder.Decode(&doc) != nil {
			return documents
		}
		documents = append(documents, &doc)
	}
}

// forEachSource runs a test for each imported file of each case.
func forEachSource(t *testing.T, test func(t *testing.T, sources []Source, at int)) {
	paths, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("there are no cases", err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sources := sourcesOf(archive)
		for at := range sources {
			if sources[at].Name == "other.yaml" {
				continue // objects that are reported as a whole, because nothing of them becomes a template
			}
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar")+"/"+sources[at].Name, func(t *testing.T) { test(t, sources, at) })
		}
	}
}

// outputOf returns the templates and the report of sources, one of which has other documents.
func outputOf(t *testing.T, sources []Source, at int, documents []*yaml.Node) string {
	t.Helper()
	var data bytes.Buffer
	encoder := yaml.NewEncoder(&data)
	for _, doc := range documents {
		if err := encoder.Encode(doc); err != nil {
			t.Fatal(err)
		}
	}
	changed := append([]Source{}, sources...)
	changed[at].Data = data.Bytes()
	results, err := Import(changed)
	if err != nil {
		return err.Error()
	}
	var findings strings.Builder
	for _, r := range results {
		fmt.Fprintf(&findings, "%v %v\n", r.LeftOut, r.Notes)
		checkTemplates(t, r.Templates)
	}
	return YAML(results) + Text(results) + findings.String()
}

// change is a change of one place of a document.
type change struct {
	what, path string
	unknown    bool
	do, undo   func()
}

// changesOf returns the changes of all places in a node.
func changesOf(n *yaml.Node, path string) (all []change) {
	switch n.Kind {
	case yaml.MappingNode:
		content := n.Content
		all = append(all, change{"adding to", path, true, func() {
			n.Content = append(append([]*yaml.Node{}, content...), textNode("unknownToAll"), textNode("x"))
		}, func() { n.Content = content }})
		for i := 0; i+1 < len(content); i += 2 {
			at := path + "." + content[i].Value
			without := append(append([]*yaml.Node{}, content[:i]...), content[i+2:]...)
			all = append(all, change{"removing", at, false, func() { n.Content = without }, func() { n.Content = content }})
			all = append(all, changesOf(content[i+1], at)...)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			all = append(all, changesOf(item, fmt.Sprintf("%s[%d]", path, i))...)
		}
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			break
		}
		value, tag := n.Value, n.Tag
		all = append(all, change{"changing", path, false, func() {
			switch tag {
			case "!!int":
				n.Value = "7"
			case "!!bool":
				n.Value = map[string]string{"true": "false", "false": "true"}[strings.ToLower(value)]
			default:
				n.Value = "z" + value
			}
		}, func() { n.Value = value }})
	}
	return all
}

// checkTemplates checks that templates have no problem.
func checkTemplates(t testing.TB, all []Template) {
	t.Helper()
	for _, template := range all {
		if _, problems := templates.Parse("imported.yaml", []byte(template.YAML)); len(problems) > 0 {
			t.Errorf("%v in\n%s", problems, template.YAML)
		}
	}
}

// FuzzImport checks that no input makes an invalid template, or a panic.
func FuzzImport(f *testing.F) {
	paths, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, s := range sourcesOf(archive) {
			f.Add(s.Data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		results, err := Import([]Source{{"input.yaml", data}})
		if err != nil {
			return // not YAML
		}
		for _, r := range results {
			checkTemplates(t, r.Templates)
		}
	})
}
