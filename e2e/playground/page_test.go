// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestResult checks what the page shows first: the result of an example with its additions marked, and the
// decisions.
func TestResult(t *testing.T) {
	p := open(t).evaluated()
	p.wait(contains(text("decisions"), "log-agent: injected"))
	p.wait(contains(content("result"), "registry.example/log-agent:1.4.2"))
	added := value[string](p, `[...document.getElementById('result').shadowRoot.querySelectorAll('.cm-line.added')].map((l) => l.innerText).join('\n')`)
	if !strings.Contains(added, "name: log-agent") || strings.Contains(added, "registry.example/shop:2.1") {
		t.Errorf("marked as added:\n%s", added)
	}
	t.Logf("first result after %s ms, that of the engine after %s ms, its evaluation takes %s ms", value[string](p, "document.body.dataset.first"),
		value[string](p, "document.body.dataset.engine"), value[string](p, "document.body.dataset.took"))
}

// TestSameBytes checks that another build gives the same files.
func TestSameBytes(t *testing.T) {
	again := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "node", root+"/cmd/pillion/playground/page/build.mjs", again).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files := must(os.ReadDir(page))
	for _, f := range files {
		if !bytes.Equal(must(os.ReadFile(filepath.Join(page, f.Name()))), must(os.ReadFile(filepath.Join(again, f.Name())))) {
			t.Errorf("%s differs", f.Name())
		}
	}
	if len(files) < 5 || len(files) != len(must(os.ReadDir(again))) {
		t.Errorf("the page has %d files", len(files))
	}
}

// TestExamples checks that each example of the menu has a result without problems.
func TestExamples(t *testing.T) {
	p := open(t).evaluated()
	for i, e := range examples(t) {
		before := value[string](p, "document.body.dataset.evaluated")
		p.run(do(`{const e = document.getElementById('example'); e.selectedIndex = ` + string(must(jsonOf(i))) + `; e.dispatchEvent(new Event('change'))}`))
		p.wait("document.body.dataset.evaluated > " + before)
		want := ": injected"
		if e.Tour == "Conflict" {
			want = ": conflict"
		}
		if got := value[string](p, text("decisions")); !strings.Contains(got, want) || value[string](p, text("problems"))+value[string](p, text("mistakes")) != "" {
			t.Errorf("%s: %s", e.Name, got)
		}
	}
}

// TestTabs checks each tab.
func TestTabs(t *testing.T) {
	p := open(t).evaluated()
	for _, tab := range []struct{ name, part string }{
		{"patch", `"path": "/spec/initContainers"`},
		{"warnings", "effect: "},
		{"security", "Pod Security level"},
		{"validating", `"allowed": true`},
		{"policy", "kind: MutatingAdmissionPolicy"},
	} {
		p.run(click("#tab-"+tab.name), chromedp.WaitVisible(chromedp.CSS("#panel-"+tab.name)))
		p.wait(contains(text("panel-"+tab.name), tab.part))
		if n := value[int](p, "[...document.querySelectorAll('[role=tabpanel]')].filter((e) => !e.hidden).length"); n != 1 {
			t.Errorf("%s: %d panels are visible", tab.name, n)
		}
	}
	p.run(click("[value=validating]"))
	p.wait(contains(text("policy"), "there is nothing to enforce"))
}

// TestWarnings checks that a misspelled annotation gives a warning, and a value that is not allowed a decision.
func TestWarnings(t *testing.T) {
	p := open(t).evaluated()
	p.restore(map[string]string{
		"tab": "warnings", "namespaceLabels": "pillion.dev/inject: enabled", "templates": agent,
		"manifest": pod("agent.pillion.dev/levels: debug"),
	})
	p.wait(contains(text("panel-warnings"), `did you mean "level"`))
	p.restore(map[string]string{"templates": agent, "manifest": pod("agent.pillion.dev/level: debug")})
	p.wait(contains(text("decisions"), "agent: not_opted_in"))
}

// TestProblem checks that a mistake in a template is shown at its line, as the user types.
func TestProblem(t *testing.T) {
	p := open(t).evaluated()
	p.restore(map[string]string{"templates": agent, "manifest": pod(""), "namespaceLabels": "pillion.dev/inject: enabled"})
	p.wait(contains(text("decisions"), "agent: injected"))
	p.focus("templates")
	p.run(ctrl(kb.End), insert("    nodeNam: x\n"))
	p.wait(contains(text("problems"), `Line 13: spec.pod.nodeNam`))
	p.wait(contains(text("legend"), "There is a mistake in the templates. This is the result before it."))
	p.wait(`document.getElementById('templates').shadowRoot.querySelectorAll('.cm-gutter-lint .cm-lint-marker-error').length == 1`)
	line := value[string](p, `(() => {
		const root = document.getElementById('templates').shadowRoot;
		const y = root.querySelector('.cm-lint-marker-error').getBoundingClientRect().top;
		return [...root.querySelectorAll('.cm-lineNumbers .cm-gutterElement')].find((e) => Math.abs(e.getBoundingClientRect().top - y) < 8).innerText;
	})()`)
	if line != "13" {
		t.Errorf("the marker is at line %s", line)
	}
}

// TestCompletion checks that the editor completes a field from the JSON Schema.
func TestCompletion(t *testing.T) {
	p := open(t).evaluated()
	p.restore(map[string]string{"templates": agent, "manifest": pod("")})
	p.focus("templates")
	p.run(ctrl(kb.End), chromedp.KeyEvent("      shareP"))
	p.wait(`document.getElementById('templates').shadowRoot.querySelector('.cm-tooltip-autocomplete')?.innerText.includes('shareProcessNamespace')`)
	p.focus("manifest")
	p.run(ctrl(kb.End), chromedp.KeyEvent("  shareP"))
	p.wait(`document.getElementById('manifest').shadowRoot.querySelector('.cm-tooltip-autocomplete')?.innerText.includes('shareProcessNamespace')`)
}

// TestCompletionOfWorkloads checks that the editor of pods completes fields that no template has, by the kind.
func TestCompletionOfWorkloads(t *testing.T) {
	p := open(t).evaluated()
	for _, c := range []struct{ before, typed, want, not string }{
		{"apiVersion: v1\nkind: Pod\nspec:\n", "  nodeS", "nodeSelector", "replicas"},
		{"apiVersion: v1\nkind: Pod\nspec:\n", "  dnsPolicy: Clu", "ClusterFirstWithHostNet", ""},
		{"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n", "    imag", "imagePullPolicy", ""},
		{"apiVersion: v1\nkind: Pod\nmetadata:\n", "  lab", "labels", ""},
		{"apiVersion: apps/v1\nkind: Deployment\nspec:\n", "  repl", "replicas", "nodeSelector"},
		{"apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n", "      serviceA", "serviceAccountName", ""},
		{"apiVersion: batch/v1\nkind: CronJob\nspec:\n", "  concurrencyPolicy: F", "Forbid", ""},
		{"a: b\n---\napiVersion: v1\n", "kind: Na", "Namespace", ""},
	} {
		p.restore(map[string]string{"templates": agent + "# " + c.typed, "manifest": c.before})
		p.focus("manifest")
		p.run(ctrl(kb.End), chromedp.KeyEvent(c.typed))
		const list = `document.getElementById('manifest').shadowRoot.querySelector('.cm-tooltip-autocomplete')?.innerText`
		p.wait(list + "?.includes(" + quoted(c.want) + ")")
		if got := value[string](p, list); c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%s%s is completed by %q", c.before, c.typed, got)
		}
		p.run(chromedp.KeyEvent(kb.Escape))
	}
}

// TestHints checks that hints are marked at the lines of their templates and in the list, and follow the templates.
func TestHints(t *testing.T) {
	p := open(t).evaluated()
	p.restore(map[string]string{"templates": agent, "manifest": pod(""), "namespaceLabels": "pillion.dev/inject: enabled"})
	p.wait(contains(text("hints"), "Pod Security: baseline"))
	p.wait(`document.getElementById('templates').shadowRoot.querySelector('.cm-lint-marker-warning')`)
	p.restore(map[string]string{"templates": strings.ReplaceAll(agent, "agent", "other"), "manifest": pod("")})
	if got := value[string](p, text("hints")); strings.Contains(got, "agent") {
		t.Errorf("hints about the templates before: %s", got)
	}
	p.restore(map[string]string{"templates": agent + "  x: y\n", "manifest": pod("")})
	p.wait(contains(text("problems"), "Line") + " && " + text("hints") + " === ''")
	p.restore(map[string]string{"templates": strings.Replace(agent, "default: info, ", "", 1), "manifest": pod("")})
	p.wait(contains(text("hints"), "agent: the pod or its namespace must set level, because there is no default"))
	if mark := `document.getElementById('templates').shadowRoot.querySelector('.cm-lint-marker-error')`; value[bool](p, "Boolean("+mark+")") {
		t.Error("a hint is marked as an error")
	}
	// Denied pods are a problem.
	p.restore(map[string]string{"templates": strings.Replace(agent, `"agent:1"`, `"${pod.metadata.annotations['x']}"`, 1), "manifest": pod("")})
	p.wait(contains(text("problems"), "such pods are denied"))
}

// TestManifestNamespace checks that a Namespace in the manifest counts for its pods.
func TestManifestNamespace(t *testing.T) {
	p := open(t).evaluated()
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {pillion.dev/inject: enabled}}\n---\n"
	p.restore(map[string]string{"templates": agent, "manifest": pod("")})
	p.wait(contains(text("decisions"), "agent: not_opted_in"))
	p.restore(map[string]string{"templates": agent, "manifest": namespace + pod("")})
	p.wait(contains(text("decisions"), "agent: injected"))
}

// TestLink checks that the link of the page restores its whole state.
func TestLink(t *testing.T) {
	state := map[string]string{
		"templates": agent + "# é 𝄞 ü\n", "manifest": pod("agent.pillion.dev/level: debug"), "namespaceLabels": "pillion.dev/inject: enabled",
		"namespaceAnnotations": "a: b", "accountLabels": "c: d", "accountAnnotations": "e: f", "final": pod(""), "policy": "validating", "tab": "validating",
	}
	p := open(t).evaluated()
	p.restore(state)
	p.wait(contains(text("verdict"), "denied"))
	p.run(click("#share"))
	p.wait(contains(text("status"), "The link is"))
	again := openAt(t, p.url, value[string](p, "location.hash"))
	again.wait(contains(text("verdict"), "denied"))
	again.run(click("#share"))
	again.wait(contains(text("status"), "The link is"))
	if was, is := value[string](p, "location.hash"), value[string](again, "location.hash"); was != is {
		t.Errorf("the links differ:\n%s\n%s", was, is)
	}
	for id, want := range map[string]string{"accountAnnotations": "e: f", "namespaceAnnotations": "a: b", "accountLabels": "c: d"} {
		if got := value[string](again, "document.getElementById('"+id+"').value"); got != want {
			t.Errorf("%s: %q", id, got)
		}
	}
	again.wait(contains(content("templates"), "# é 𝄞 ü"))
}

// TestTamper checks that the validating webhook denies a pod whose sidecar the user changes by hand.
func TestTamper(t *testing.T) {
	p := open(t).evaluated()
	p.restore(map[string]string{"templates": agent, "manifest": pod(""), "namespaceLabels": "pillion.dev/inject: enabled", "tab": "validating"})
	p.wait(contains(text("verdict"), "allowed") + " && " + contains(content("final"), "agent:1"))
	p.focus("final")
	p.run(ctrl("a"))
	p.run(insert(strings.Replace(value[string](p, content("final")), "agent:1", "evil:1", 1)))
	p.wait(contains(text("verdict"), "denied") + " && " + contains(text("verdict"), "evil:1"))
	p.run(ctrl("a"), insert("kind: [\n"))
	p.wait(contains(text("verdict"), "There is no response, because the final pod has problems:") + " && " + contains(text("verdict"), "Line "))
	p.run(ctrl("a"), chromedp.KeyEvent(kb.Delete))
	p.wait(contains(text("verdict"), "There is no pod."))
	p.run(click("#reset"))
	p.wait(contains(text("verdict"), "allowed"))
}

// agent is a template that denies changes of its image.
const agent = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  validate: {mode: Deny, protect: [image]}
  params:
  - {name: level, type: string, default: info, enum: [info, debug]}
  pod:
    spec:
      containers:
      - {name: agent, image: "agent:1", args: ["--level=${params.level}"]}
`

// pod returns a Pod with an annotation.
func pod(annotation string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  annotations: {" + annotation + "}\nspec:\n  containers:\n  - {name: app, image: \"app:1\"}\n"
}
