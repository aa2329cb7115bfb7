// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestPolicyOfPage checks the Content-Security-Policy of the page.
func TestPolicyOfPage(t *testing.T) {
	p := open(t).evaluated()
	policy := value[string](p, `document.querySelector('meta[http-equiv="Content-Security-Policy"]').content`)
	for _, part := range []string{"default-src 'none'", "script-src 'self' 'wasm-unsafe-eval';", "style-src 'self';", "connect-src 'self';", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy+";", part) {
			t.Errorf("%s lacks %s", policy, part)
		}
	}
	for _, part := range []string{"unsafe-inline", "'unsafe-eval'", "http:", "https:", "*"} {
		if strings.Contains(policy, part) {
			t.Errorf("%s allows %s", policy, part)
		}
	}
}

// TestHTML checks that HTML in all that a link can contain is shown as text.
func TestHTML(t *testing.T) {
	p := open(t).evaluated()
	const html = `<img src=x onerror=\"window.pwned=1\"><script>window.pwned=1</script>`
	p.restore(map[string]string{
		"templates": strings.Replace(agent, "metadata: {name: agent}", "metadata: {name: agent, annotations: {a: \""+html+"\"}}", 1),
		"manifest":  pod(`agent.pillion.dev/level: "` + html + `", "` + html + `": b, agent.pillion.dev/x: "` + html + `"`), "namespaceLabels": "pillion.dev/inject: enabled\n\"" + html + "\": c",
		"accountLabels": html, "final": pod(`a: "` + html + `"`), "tab": `"><img src=x onerror="window.pwned=1">`, "policy": html,
	})
	p.wait(contains(text("decisions"), "<img src=x"))
	for _, tab := range []string{"warnings", "validating", "policy", "security", "patch"} {
		p.run(click("#tab-" + tab))
	}
	p.restore(map[string]string{"templates": html, "manifest": html, "namespaceLabels": html})
	if value[bool](p, "window.pwned !== undefined") || value[int](p, "document.querySelectorAll('img, script:not([src])').length") > 0 {
		t.Error("HTML of the input is part of the page")
	}
}

// TestLinks checks that links that are invalid or very long when they are decompressed are rejected.
func TestLinks(t *testing.T) {
	p := open(t).evaluated()
	bomb := p.link(map[string]string{"templates": strings.Repeat("a", 8<<20)})
	if len(bomb) > 64<<10 {
		t.Fatalf("the link has %d bytes", len(bomb))
	}
	for _, fragment := range []string{bomb, "#s=%%%", "#s=AAAA", "#s=" + strings.Repeat("A", 1<<16)} {
		p.run(do("document.getElementById('trouble').textContent = ''; location.hash = " + quoted(fragment)))
		p.wait(contains(text("trouble"), "This link cannot be read"))
	}
	p.restore(map[string]string{"templates": agent, "manifest": pod(""), "namespaceLabels": "pillion.dev/inject: enabled"})
	p.wait(contains(text("decisions"), "agent: injected"))
	p.wait("document.getElementById('trouble').hidden && document.getElementById('example').selectedIndex === -1")
	// The page gives no link that it cannot read.
	p.run(do("document.getElementById('accountLabels').value = 'a'.repeat(1 << 20)"))
	before := value[string](p, "location.hash")
	p.run(click("#share"))
	p.wait(contains(text("status"), "There is no link: the text is longer than 1 MiB"))
	if got := value[string](p, "location.hash"); got != before {
		t.Error("the link in the address bar changed")
	}
	// The message stays when the page then shows its first example.
	cut := openAt(t, p.url, "#s=AAAA").evaluated()
	cut.wait(contains(text("status"), "Evaluated"))
	cut.wait(contains(text("trouble"), "This link cannot be read"))
}

// TestBounds checks that a template at the bounds of what an evaluation may cost ends, and that the page answers in
// the meantime.
func TestBounds(t *testing.T) {
	p := open(t).evaluated()
	list := "[" + strings.Repeat("1,", 999) + "1]"
	var annotations strings.Builder
	for i := range 100 {
		fmt.Fprintf(&annotations, "    a%d: ${string(%s.map(x, %s.all(y, y == x)).size())}\n", i, list[:400]+"1]", list[:200]+"1]")
	}
	templates := strings.Replace(agent, "  pod:\n", "  pod:\n    metadata:\n      annotations:\n"+strings.ReplaceAll(annotations.String(), "    a", "        a"), 1)
	p.run(do("location.hash = " + quoted(p.link(map[string]string{"templates": templates, "manifest": pod(""), "namespaceLabels": "pillion.dev/inject: enabled", "accountAnnotations": "c: d"}))))
	p.wait("document.getElementById('accountAnnotations').value")
	p.run(do("document.getElementById('accountLabels').focus()"), insert("a: b")) // the page answers
	p.wait("document.getElementById('accountLabels').value.endsWith('a: b')")
	p.wait(text("problems") + ".length > 0 || " + text("decisions") + ".includes('agent: ') || " + contains(text("status"), "Stopped after"))
	p.restore(map[string]string{"templates": agent, "manifest": pod(""), "namespaceLabels": "pillion.dev/inject: enabled"})
	p.wait(contains(text("decisions"), "agent: injected"))
}

// TestStop checks that the page ends a worker that does not answer, and starts another one.
func TestStop(t *testing.T) {
	const worker = `let n = 0;
		postMessage({running: true});
		onmessage = ({data}) => {
			if (!data.input) return;
			while (data.input.manifest.includes('hang')) n++;
			postMessage({id: data.id, took: 1, output: {problems: [], mistakes: [], hints: [], result: data.input.manifest, added: [], objects: [], verdicts: []}});
		};`
	p := open(t, serving("worker.js", 200, "text/javascript", worker)).evaluated()
	p.run(do("location.hash = " + quoted(p.link(map[string]string{"manifest": "hang"}))))
	p.wait(contains(text("status"), "Stopped after 5 s"))
	p.wait(contains(content("result"), "kind: Deployment") + " && " + contains(text("legend"), "the result of an earlier input"))
	p.restore(map[string]string{"manifest": "after"})
	p.wait(contains(content("result"), "after") + " && " + contains(text("legend"), "Nothing is added."))
}
