// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject"
)

// hostile are strings that control a terminal or mislead a reader.
var hostile = []string{
	"\x1b[2J\x1b[31mall is well\x1b[0m", "\x1b]52;c;cm0gLXJmIH4=\x07", "\u009b31m", "\x9b31m", "\u202ereversed\u202c", "\u2066isolated\u2069",
	"\u200e\u200f\u061c", "line\u2028and\u2029paragraph", "back\b\b\bspace", "over\rwritten", "\x00\x7f\x85\u0085", "\xe2\x80", "two\nlines\tand a tab",
	forged, "x\r\nFORGED", "x -n kube-system deployment.apps/coredns", "x\n-n kube-system deployment.apps/coredns",
}

// forged would begin a line, as what a command says does.
const forged = "x\nFORGED: all is well"

// beginsLine finds a line that begins with what is in a hostile text.
var beginsLine = regexp.MustCompile(`(?m)^\s*FORGED`)

// behindBreaks reports whether what beginsLine finds stands only behind hidden characters in the text.
// At its beginning or behind a blank, it may begin a line: of a table, or of folded text.
func behindBreaks(text string) bool {
	for {
		before, after, found := strings.Cut(text, "FORGED")
		if last, _ := utf8.DecodeLastRuneInString(before); !found || !inject.Hidden(last) {
			return !found
		}
		text = after
	}
}

// FuzzScreen checks that no content of manifests, templates, logs, arguments or the cluster makes a command write a
// hidden character or a line that begins with such content. The JSON and YAML output keeps its meaning.
func FuzzScreen(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		dir, api := hostileFiles(t, text), hostileAPI(t, text).kubeconfig(t)
		at := func(name string) string { return filepath.Join(dir, name) }
		for _, args := range [][]string{
			{text},
			{"--" + text},
			{"explain", text},
			{"inject", "-f", text, "-t", text},
			{"lint", text},
			{"serve", "--log-level", text},
			{"help", text},
			{"serve", "--print-config", "--listen", text},
			{"completion", text},
			{"certs", "-o", text},
			{"version", "-o", "json"},
			{"explain", "-f", at("pod.json"), "-t", at("agent.yaml"), "-v"},
			{"explain", "-f", at("pod.json"), "-t", at("agent.yaml"), "-o", "json"},
			{"explain", "-f", at("pod.json"), "-t", at("agent.yaml"), "-o", "yaml"},
			{"explain", "-f", at("broken.yaml"), "-t", at("agent.yaml")},
			{"inject", "-f", at("pod.json"), "-t", at("agent.yaml")},
			{"inject", "-f", at("pod.json"), "-t", at("agent.yaml"), "--strict"},
			{"inject", "-f", at("broken.yaml"), "-t", at("agent.yaml")},
			{"uninject", "-f", at("pod.json"), "-t", at("agent.yaml")},
			{"lint", at("hostile.yaml")},
			{"lint", at("hostile.yaml"), "-o", "json"},
			{"lint", at("broken.yaml")},
			{"lint", at("agent.yaml"), "--set", "a=" + text},
			{"policy", "-t", at("hostile.yaml"), "--as", "mutating"},
			{"policy", "-t", at("agent.yaml"), "--template", text},
			{"policy", "-t", at("broken.yaml")},
			{"audit", at("audit.log")},
			{"audit", at("audit.log"), "-o", "json"},
			{"audit", at("broken.yaml")},
			{"explain", "pod/web", "-n", "shop", "--kubeconfig", api, "-v"},
			{"explain", "pod/web", "-n", "shop", "--kubeconfig", api, "-o", "json"},
			{"explain", "deploy/" + text, "-n", text, "--kubeconfig", api},
			{"status", "-A", "--kubeconfig", api},
			{"status", "-A", "--kubeconfig", api, "-o", "json"},
			{"status", "-A", "--kubeconfig", api, "-o", "name"},
			{"status", text, "--kubeconfig", api},
			{"certs", "--kubeconfig", api},
			{"certs", "--kubeconfig", api, "-o", "json"},
		} {
			var out, told bytes.Buffer
			code := run(args, strings.NewReader(text), &out, &told)
			if slices.Contains(args, "-f") && slices.Contains([]string{"inject", "uninject"}, args[0]) || args[0] == "policy" {
				if slices.Contains(args, at("pod.json")) && code == exitOK && !strings.Contains(out.String(), `"example.com/note"`) {
					t.Errorf("%q: the document is %q", args, &out)
				}
				out.Reset() // a document
			}
			if all := out.String() + told.String(); strings.ContainsFunc(all, inject.Hidden) || !utf8.ValidString(all) {
				t.Errorf("%q writes %q", args, all)
			}
			if line := beginsLine.FindString(out.String() + "\n" + told.String()); line != "" && behindBreaks(text) && !slices.Contains(args, "-o") && !slices.Contains(args, "--print-config") {
				t.Errorf("%q writes a forged line:\n%s\n%s", args, &out, &told)
			}
			checkMeaning(t, args, out.Bytes(), text)
			if slices.Contains(args, "name") && strings.Contains(out.String(), "kube-system") {
				t.Errorf("%q writes %q", args, &out)
			}
		}
	})
}

// checkMeaning checks that JSON and YAML can be parsed and contain the text unchanged.
func checkMeaning(t *testing.T, args []string, out []byte, text string) {
	t.Helper()
	i := slices.Index(args, "-o")
	if i < 0 || len(out) == 0 || args[i+1] != "json" && args[i+1] != "yaml" {
		return
	}
	var value any
	if err := yaml.Unmarshal(out, &value); err != nil {
		t.Errorf("%q: %v\n%s", args, err, out)
	}
	quoted, err := json.Marshal(value)
	wanted, _ := json.Marshal(text)
	if err != nil || args[0] == "explain" && slices.Contains(hostile, text) && utf8.ValidString(text) && !bytes.Contains(quoted, bytes.Trim(wanted, `"`)) {
		t.Errorf("%q: %v; %s is not in %s", args, err, wanted, quoted)
	}
}

// hostileFiles are a pod, templates and an audit log with the text in them.
func hostileFiles(t *testing.T, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	note := thing("v1", "Pod", text, text, map[string]any{"labels": map[string]any{"app": text}})
	note["metadata"].(map[string]any)["annotations"] = map[string]any{
		"example.com/note": text, "pillion.dev/templates": text, "agent.pillion.dev/level": "parameters are " + text, "agent.pillion.dev/" + text: text,
		"agent.pillion.dev/injected": text, text + ".pillion.dev/injected": text,
	}
	note["spec"] = map[string]any{"initContainers": []any{map[string]any{"name": "agent", "image": text}}, "containers": []any{map[string]any{"name": text, "image": text}}}
	quoted, err := json.Marshal(text)
	must(t, err)
	for name, content := range map[string]string{
		"pod.json":     asJSON(t, note),
		"agent.yaml":   hostileTemplate(t, "x"),
		"hostile.yaml": hostileTemplate(t, text),
		"broken.yaml":  "metadata:\n  " + text + ": [" + string(quoted) + "\n" + text + "\n",
		"audit.log": `{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"create","responseStatus":{"code":201},` +
			`"objectRef":{"resource":"pods","namespace":` + string(quoted) + `,"name":` + string(quoted) + `},"annotations":{"x.pillion.dev/a":` + string(quoted) + `}}` + "\n" + text + "\n",
	} {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	out, err := json.Marshal(value)
	must(t, err)
	return string(out)
}

func hostileTemplate(t *testing.T, text string) string {
	t.Helper()
	return asJSON(t, map[string]any{
		"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "metadata": map[string]any{"name": "agent"},
		"spec": map[string]any{
			"default": true, "description": text,
			"params": []any{map[string]any{"name": "level", "default": "x", "description": text}},
			"pod": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
				"name": "agent", "image": "agent:1", "args": []any{"${params.level}", text}, "env": []any{map[string]any{"name": "A", "value": text}},
			}}}},
		},
	})
}

// hostileAPI has the text wherever a tenant or another administrator may have put it.
func hostileAPI(t *testing.T, text string) *pagedAPI {
	t.Helper()
	a := explainAPI(t)
	pod := barePod("shop", 0)
	metadata := pod["metadata"].(map[string]any)
	metadata["annotations"] = map[string]any{
		"agent.pillion.dev/injected": text, text + ".pillion.dev/injected": text, "pillion.dev/templates": "+" + text,
		"agent.pillion.dev/level": "parameters are " + text, "agent.pillion.dev/" + text: text,
	}
	metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": text, "uid": "u", "controller": true}}
	pod["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"] = text
	a.list(shopPods, pod)
	a.objects[shopPods+"/web"] = pod
	namespace := maps.Clone(a.objects["/api/v1/namespaces/shop"].(map[string]any))
	about := maps.Clone(namespace["metadata"].(map[string]any))
	about["annotations"] = map[string]any{"agent.pillion.dev/" + text: text, "agent.pillion.dev/level": text}
	namespace["metadata"] = about
	a.objects["/api/v1/namespaces/shop"] = namespace
	a.list("/api/v1/namespaces", namespace)
	other := yamlObject(t, `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: other}, webhooks: [{name: w,
rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}]}`)
	other["metadata"].(map[string]any)["name"] = text
	a.list(webhooksPath, a.objects[webhooksPath+"/pillion"].(map[string]any), other)
	template := thing("v1", "ConfigMap", "pillion-system", "pillion-templates", nil)
	template["data"] = map[string]any{"agent.yaml": hostileTemplate(t, "x")}
	a.objects["/api/v1/namespaces/pillion-system/configmaps/pillion-templates"] = template
	return a
}
