// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestPlace checks that a new result keeps the place of the user: how far the result is scrolled, and in the patch the focus too.
func TestPlace(t *testing.T) {
	for _, c := range []struct{ tab, scroller, focus, want string }{
		{"result", "document.getElementById('result').shadowRoot.querySelector('.cm-scroller')", "", "BODY,150"},
		{"patch", "document.getElementById('panel-patch')", "document.querySelector('#panel-patch pre').focus()", "PRE,150"},
	} {
		p := open(t, chromedp.EmulateViewport(1280, 600)).evaluated()
		p.run(click("#tab-"+c.tab), do("document.activeElement.blur()"), do(c.focus+"; "+c.scroller+".scrollTop = 150"))
		place := func() string {
			return value[string](p, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done("+
				"[document.activeElement.nodeName, Math.round("+c.scroller+".scrollTop)].join()))))")
		}
		if got := place(); got != c.want {
			t.Fatalf("%s: the place is %s", c.tab, got)
		}
		// A label of the ServiceAccount changes nothing in the result. An annotation of the namespace changes a line of it and of the patch.
		for field, text := range map[string]string{"accountLabels": "a: b", "namespaceAnnotations": "log-agent.pillion.dev/level: debug"} {
			p.typeInto(field, text)
			if got := place(); got != c.want {
				t.Errorf("%s: after a change of %s, the place is %s", c.tab, field, got)
			}
		}
		p.wait("document.getElementById('panel-patch').textContent.includes('--level=debug')")
	}
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
