// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates"
)

// replacing returns a file of templates. Each is [NAMESPACE/]NAME[!][=REPLACES[:SHARE]], with ! if it is required.
func replacing(all ...string) templates.File {
	var text strings.Builder
	for _, of := range all {
		id, replaces, replacing := strings.Cut(of, "=")
		id, required := strings.CutSuffix(id, "!")
		kind, metadata, spec := "ClusterSidecarTemplate", "name: "+id, fmt.Sprintf("required: %t", required)
		if namespace, name, ok := strings.Cut(id, "/"); ok {
			kind, metadata = "SidecarTemplate", fmt.Sprintf("name: %s, namespace: %q", name, namespace)
		}
		if name, share, ok := strings.Cut(replaces, ":"); replacing {
			if spec += ", replaces: " + name; ok {
				spec += ", share: " + share
			}
		}
		fmt.Fprintf(&text, "---\n{apiVersion: pillion.dev/v1alpha1, kind: %s, metadata: {%s}, spec: {%s, pod: {metadata: {annotations: {a: b}}}}}\n", kind, metadata, spec)
	}
	return templates.File{Path: "set.yaml", Data: []byte(text.String())}
}

// TestReplaces checks which templates may replace which others. The others are used all the same.
func TestReplaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		all      []string
		ids, why string
	}{
		{[]string{"a", "b=a"}, "a b", ""},
		{[]string{"a", "b=a", "c=a:10"}, "a b c", ""},
		{[]string{"a!", "b!=a"}, "a b", ""},
		{[]string{"x/a", "x/b=a"}, "x/a x/b", ""},
		{[]string{"agent", "b=agnet"}, "agent", `there is no template agnet to replace; did you mean "agent"?`},
		{[]string{"x/a", "b=a"}, "x/a", "there is no template a to replace"},
		{[]string{"x/a", "y/b=a"}, "x/a", "there is no template a to replace"},
		{[]string{"a", "x/b=a"}, "a", "a is a ClusterSidecarTemplate; a SidecarTemplate can replace only one of its own namespace"},
		{[]string{"a", "x/a", "x/b=a"}, "a", "a is a ClusterSidecarTemplate; a SidecarTemplate can replace only one of its own namespace"},
		{[]string{"a", "b=a", "c=b"}, "a b", "b itself replaces a; replace that one"},
		{[]string{"b=c", "c=b"}, "", "c itself replaces b; replace that one"},
		{[]string{"a!", "b=a"}, "a", "a is required, so this template must be required too; set required: true"},
		{[]string{"a", "b!=a"}, "a", "a is not required, so this template must not be required either; leave required out, or make a required"},
	} {
		set, problems := templates.CompileValid(replacing(c.all...))
		why := problems.Error()
		if got := idsOf(set); got != c.ids || (c.why == "") != (why == "") || !strings.Contains(why, "spec.replaces: "+c.why) && c.why != "" {
			t.Errorf("%v: the set has %s, want %s; the problems are %q, want %q", c.all, got, c.ids, why, c.why)
		}
		if _, err := templates.Compile(replacing(c.all...)); (err != nil) != (c.why != "") {
			t.Errorf("%v: %v", c.all, err)
		}
	}
}

// TestReplacesRevision checks that replaces and share change the revision of the set, but not of a template, which
// stays the same if it takes the place of the other one.
func TestReplacesRevision(t *testing.T) {
	t.Parallel()
	seen, revisions := map[string]string{}, map[string]bool{}
	for _, with := range []string{"b", "b=a", "b=a:10", "b=a:20"} {
		set, problems := templates.CompileValid(replacing("a", with))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if before := seen[set.Revision]; before != "" {
			t.Errorf("the sets with %s and with %s have the same revision", before, with)
		}
		seen[set.Revision], revisions[set.Templates[1].Revision] = with, true
		if set.Templates[1].Excludes(set.Templates[0]) != (with != "b") || set.Templates[0].Excludes(set.Templates[1]) != (with != "b") {
			t.Errorf("a pod gets a and %s: %v", with, set.Templates[0].Excludes(set.Templates[1]))
		}
	}
	if len(revisions) != 1 {
		t.Errorf("the template has the revisions %v", revisions)
	}
}

// TestRolloutRevision checks that how running pods are updated changes no revision: otherwise, a pause would make
// all pods outdated.
func TestRolloutRevision(t *testing.T) {
	t.Parallel()
	revisions := map[string]bool{}
	for _, with := range []string{"", "rollout: {}", "rollout: {strategy: InPlace}", "rollout: {strategy: InPlace, paused: true, maxUnavailable: 1}"} {
		text := "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: a}\nspec:\n  pod: {spec: {containers: [{name: c, image: i}]}}\n  " + with + "\n"
		set, problems := templates.CompileValid(templates.File{Path: "a.yaml", Data: []byte(text)})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		revisions[set.Revision+set.Templates[0].Revision] = true
	}
	if len(revisions) != 1 {
		t.Errorf("the revisions are %v", revisions)
	}
}
