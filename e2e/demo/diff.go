// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"go.yaml.in/yaml/v3"
)

// diff prints the differences between two pods in JSON, as a diff of YAML.
func (s *screen) diff(beforeName, afterName string, before, after []byte) error {
	from, err := podYAML(before)
	if err != nil {
		return err
	}
	to, err := podYAML(after)
	if err != nil {
		return err
	}
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: strings.SplitAfter(from, "\n"), FromFile: beforeName,
		B: strings.SplitAfter(to, "\n"), ToFile: afterName,
		Context: 2,
	})
	if err != nil {
		return err
	}
	for line := range strings.Lines(strings.TrimRight(text, " \n")) {
		line = strings.TrimRight(line, " \n")
		s.line(lineColor(line), "  %s", line)
	}
	return nil
}

func lineColor(line string) string {
	switch {
	case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"):
		return bold
	case strings.HasPrefix(line, "@@"):
		return cyan
	case strings.HasPrefix(line, "+"):
		return green
	case strings.HasPrefix(line, "-"):
		return red
	}
	return plain
}

// keyOrder returns the keys that users expect first. All other keys follow by name.
func keyOrder() []string {
	return []string{
		"apiVersion", "kind", "metadata", "spec", "name", "generateName", "labels", "annotations", "image", "restartPolicy",
		"command", "args", "ports", "env", "resources", "mountPath", "volumeMounts", "initContainers", "containers", "volumes",
	}
}

// podYAML returns the pod as users write it, without the fields of the API server.
func podYAML(pod []byte) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(pod, &document); err != nil {
		return "", err
	}
	tidy(&document, keyOrder())
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	err := encoder.Encode(&document)
	return text.String(), err
}

// tidy converts JSON to block style and sorts the keys.
func tidy(node *yaml.Node, order []string) {
	node.Style = 0
	if node.Kind == yaml.MappingNode {
		node.Content = sortedPairs(node.Content, order)
	}
	for _, child := range node.Content {
		tidy(child, order)
	}
}

// sortedPairs sorts alternating keys and values.
func sortedPairs(content []*yaml.Node, order []string) []*yaml.Node {
	pairs := slices.Collect(slices.Chunk(content, 2))
	pairs = slices.DeleteFunc(pairs, func(pair []*yaml.Node) bool {
		key := pair[0].Value
		return key == "managedFields" || key == "status" && len(pair[1].Content) == 0
	})
	rank := func(pair []*yaml.Node) int {
		if i := slices.Index(order, pair[0].Value); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(pairs, func(a, b []*yaml.Node) int {
		if byRank := rank(a) - rank(b); byRank != 0 {
			return byRank
		}
		return strings.Compare(a[0].Value, b[0].Value)
	})
	return slices.Concat(pairs...)
}
