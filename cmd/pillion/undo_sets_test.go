// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/templates"
)

// TestUndoSets checks that uninject gives back the bytes that inject read, whatever the templates
// read of what other templates add.
func TestUndoSets(t *testing.T) {
	t.Parallel()
	undone := 0
	for seed := range uint64(60) {
		undone += tryUndoSets(t, seed, 5)
	}
	if undone < 100 {
		t.Errorf("only %d documents were injected", undone)
	}
}

// FuzzUndoSets does the same for any seed.
func FuzzUndoSets(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, seed+100)
	}
	f.Fuzz(func(t *testing.T, seed, stream uint64) { tryUndoSets(t, seed, stream) })
}

var nameOfContainer = regexp.MustCompile(`\bname"? ?: *["']?(app|c0|c1|i|web|side|prepare|setup)\b`)

// tryUndoSets returns the number of documents that were injected.
func tryUndoSets(t *testing.T, seed, stream uint64) (injected int) {
	t.Helper()
	g := reviews.NewSets(seed, stream)
	var docs []string
	var set []*templates.Template
	for i := range 1 + g.IntN(4) {
		doc := fmt.Sprintf("{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t%d}, spec: {%s}}", i, g.Template(i))
		if found, problems := templates.Parse("t", []byte(doc)); len(problems) == 0 {
			docs, set = append(docs, doc), append(set, found...)
		}
	}
	pod := `{"apiVersion":"v1","kind":"Pod",` + g.Pod(true)[1:]
	block, err := yaml.JSONToYAML([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	injector := inject.New(templates.NewSet(set))
	all := []string{pod, string(block), undoStream(seed)}
	for _, text := range all { // containers without a name, which only a file may have
		some := nameOfContainer.ReplaceAllStringFunc(text, func(name string) string {
			return strings.Replace(name, "name", []string{"name", "workingDir"}[g.IntN(2)], 1)
		})
		all = append(all, some)
	}
	for _, text := range all {
		if !valid(text) {
			continue
		}
		out, report, err := processed(injector, text, false)
		if err != nil {
			t.Fatalf("seed %d, stream %d: %v\n%s\n%s", seed, stream, err, strings.Join(docs, "\n"), text)
		}
		back, _, err := processed(injector, out, true)
		if err != nil || back != text {
			t.Fatalf("seed %d, stream %d: %v\n%s\n%s\nbecomes\n%s\nand then\n%s\n%s", seed, stream, err, strings.Join(docs, "\n"), text, out, back, firstDifference(text, back))
		}
		if strings.Contains(report, ": injected") {
			injected++
		}
	}
	return injected
}
