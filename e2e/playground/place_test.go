// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"strings"
	"testing"
)

// TestPlace checks that a new result keeps the place of the user: the focus, and how far each part is scrolled.
func TestPlace(t *testing.T) {
	p := open(t).evaluated()
	p.wait(contains(text("decisions"), "log-agent: injected"))
	const scroller = "document.getElementById('result').shadowRoot.querySelector('.cm-scroller')"
	const patch = "document.querySelector('#panel-patch pre')"
	p.run(do("{" + patch + ".focus(); " + patch + ".scrollTop = 200; " + scroller + ".scrollTop = 150}"))
	place := func() string {
		return value[string](p, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done("+
			"[document.activeElement.nodeName, "+patch+".scrollTop, Math.round("+scroller+".scrollTop)].join()))))")
	}
	if got := place(); got != "PRE,200,150" {
		t.Fatalf("the place is %s", got)
	}
	// A label of the ServiceAccount changes nothing in the result. Another image changes a line of it and of the patch.
	for _, step := range []string{
		"{const e = document.getElementById('accountLabels'); e.value = 'a: b'; e.dispatchEvent(new Event('input'))}",
		"location.hash = " + quoted(p.link(map[string]string{
			"templates": strings.Replace(examples(t)[0].Templates, "log-agent:1.4.2", "log-agent:1.4.3", 1),
			"manifest":  examples(t)[0].Manifest, "namespaceLabels": examples(t)[0].NamespaceLabels,
		})),
	} {
		before := value[string](p, "document.body.dataset.evaluated")
		p.run(do(step))
		p.wait("document.body.dataset.evaluated > " + before)
		if got := place(); got != "PRE,200,150" {
			t.Errorf("after %.60s, the place is %s", step, got)
		}
	}
	p.wait(contains(text("panel-patch"), "log-agent:1.4.3"))
}

// TestUndo checks that undo ends at the text that the page set, and leads back to changes before another example.
func TestUndo(t *testing.T) {
	p := open(t).evaluated()
	p.focus("manifest")
	p.run(insert("# mine\n"))
	p.run(ctrl("z"), ctrl("z"), ctrl("z"))
	p.wait(contains(content("manifest"), "name: shop") + " && !" + contains(content("manifest"), "# mine"))
	p.run(insert("# mine\n"))
	p.run(do("{const e = document.getElementById('example'); e.selectedIndex = 2; e.dispatchEvent(new Event('change'))}"))
	p.wait("!" + contains(content("manifest"), "# mine"))
	p.run(ctrl("z"))
	p.wait(contains(content("manifest"), "# mine"))
}

// TestEarly checks that the user cannot type into an editor before the page has set its text.
func TestEarly(t *testing.T) {
	open(t, serving("main.js", 200, "text/javascript", "")).wait("document.querySelector('main').inert")
	p := open(t).evaluated()
	p.wait("!document.querySelector('main').inert")
}
