// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestAdvice checks that the expression in the error of one that fails is valid, and does not fail
// for the same pod.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for leaf, want := range map[string]string{
		"${pod.spec.hostname}":                                                         "pod.spec.?hostname",
		"a-${pod.spec.hostname}":                                                       "pod.spec.?hostname.orValue('')",
		"a-${string(pod.spec.terminationGracePeriodSeconds)}":                          "pod.spec.?terminationGracePeriodSeconds.orValue(0)",
		"${pod.spec.hostPID ? 'a' : 'b'}":                                              "pod.spec.?hostPID.orValue(false)",
		"${pod.spec.nodeSelector['a']}":                                                "pod.spec.nodeSelector[?'a']",
		"a-${pod.spec.nodeSelector['a']}":                                              "pod.spec.nodeSelector[?'a'].orValue('')",
		"${pod.metadata.labels.nothing}":                                               "pod.metadata.labels.?nothing",
		"${pod.spec.containers[0].securityContext.seLinuxOptions.user}":                "pod.spec.containers[0].?securityContext.?seLinuxOptions.?user",
		"${pod.spec.containers[7].securityContext.seLinuxOptions.user + 'x'}":          "pod.spec.containers[?7].?securityContext.?seLinuxOptions.?user.orValue('')",
		"${pod.spec.containers.filter(c, c.name == 'nothing')[0].image}":               "pod.spec.containers.filter(c, c.name == \"nothing\")[?0].?image",
		"${pod.spec.containers.map(c, pod.metadata.labels['x-' + c.name]).join(',')}":  "pod.metadata.labels[?\"x-\" + c.name].orValue('')",
		"${string(pod.spec.containers.all(c, c.securityContext.privileged))}":          "c.?securityContext.?privileged.orValue(false)",
		"${[pod.spec.containers[0].name, 'a', pod.spec.containers[9].name].join(',')}": "pod.spec.containers[?9].?name.orValue('')",
		"${string(size(pod.spec.containers[3].args))}":                                 "pod.spec.containers[?3].?args.orValue([])",
		"${string(pod.spec.containers[0].livenessProbe.httpGet.httpHeaders[0].value)}": "pod.spec.containers[0].?livenessProbe.?httpGet.?httpHeaders[?0].?value.orValue('')",
	} {
		text, err := renderLeaf(t, leaf)
		if err == nil {
			t.Errorf("%s does not fail: %s", leaf, text)
			continue
		}
		_, got, _ := strings.Cut(err.Error(), "; for pods without it, write ")
		if got != want {
			t.Errorf("%s: %v, want %s", leaf, err, want)
			continue
		}
		plain := strings.NewReplacer("[?", "[", ".?", ".", ".orValue('')", "", ".orValue(0)", "", ".orValue(false)", "", ".orValue([])", "", `"`, "'").Replace(got)
		fixed := strings.Replace(leaf, plain, strings.ReplaceAll(got, `"`, "'"), 1)
		if text, err := renderLeaf(t, fixed); err != nil || fixed == leaf {
			t.Errorf("%s: %s, %v", fixed, text, err)
		}
	}
}

// TestAdviceBesideOptional checks the expression in the error of one that has has() or a field with .? behind the missing one.
func TestAdviceBesideOptional(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ leaf, wrong, want string }{
		{
			"${pod.spec.containers[0].securityContext.?seLinuxOptions.?user.orValue('x')}", "pod.spec.containers[0].securityContext.?seLinuxOptions.?user.orValue('x')",
			"pod.spec.containers[0].?securityContext.?seLinuxOptions.?user.orValue('x')",
		},
		{
			"a-${string(pod.spec.containers[7].?securityContext.?runAsUser.orValue(5))}", "pod.spec.containers[7].?securityContext.?runAsUser.orValue(5)",
			"pod.spec.containers[?7].?securityContext.?runAsUser.orValue(5)",
		},
		{
			"${string(has(pod.spec.containers[0].livenessProbe.httpGet))}", "has(pod.spec.containers[0].livenessProbe.httpGet)",
			"pod.spec.containers[0].?livenessProbe.?httpGet.hasValue()",
		},
		{
			"${pod.spec.containers[0].livenessProbe.?httpGet.hasValue() ? 'a' : 'b'}", "pod.spec.containers[0].livenessProbe.?httpGet",
			"pod.spec.containers[0].?livenessProbe.?httpGet",
		},
	} {
		_, err := renderLeaf(t, test.leaf)
		if err == nil {
			t.Errorf("%s does not fail", test.leaf)
			continue
		}
		if _, got, _ := strings.Cut(err.Error(), "; for pods without it, write "); got != test.want {
			t.Errorf("%s: %v, want %s", test.leaf, err, test.want)
		}
		if text, err := renderLeaf(t, strings.Replace(test.leaf, test.wrong, test.want, 1)); err != nil {
			t.Errorf("%s with the advice: %s, %v", test.leaf, text, err)
		}
	}
}

// TestAdviceObjectBefore checks that the advice for a field that a pod lacks also works for pods without the object around it.
func TestAdviceObjectBefore(t *testing.T) {
	t.Parallel()
	tpl, problems := parseExpression(t, "a-${string(pod.spec.containers[0].securityContext.runAsUser)}")
	if problems != nil {
		t.Fatal(problems)
	}
	pod, err := jsontree.Parse([]byte(`{"spec":{"containers":[{"name":"app","securityContext":{"privileged":false}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	values, err := tpl.Values(nil, &request.ServiceAccount{}, &request.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	want := "pod.spec.containers[0].?securityContext.?runAsUser.orValue(0)"
	if _, err := tpl.Render(&cel.Input{Pod: pod}, values); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
