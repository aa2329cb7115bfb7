// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// focused is an expression for the ID of the focused element.
const focused = "document.activeElement.id || document.activeElement.tagName + ':' + (document.activeElement.value ?? '')"

// TestKeyboard checks that the Tab key reaches everything and is trapped nowhere, and that arrow keys select tabs.
func TestKeyboard(t *testing.T) {
	p := open(t).evaluated()
	want := []string{
		"share", "BUTTON:", "BUTTON:", "BUTTON:", "BUTTON:", "BUTTON:", "example", "templates", "manifest",
		"namespaceLabels", "namespaceAnnotations", "accountLabels", "accountAnnotations", "decisions", "A:", "SUMMARY:", "tab-result", "result",
	}
	var got []string
	for range 40 {
		p.run(chromedp.KeyEvent(kb.Tab))
		id := value[string](p, focused)
		if got = append(got, id); id == "result" {
			break
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("Tab reaches %s", got)
	}
	p.run(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	for _, c := range []struct{ key, tab string }{
		{kb.ArrowRight, "patch"}, {kb.ArrowRight, "warnings"}, {kb.End, "policy"}, {kb.ArrowRight, "result"}, {kb.ArrowLeft, "policy"}, {kb.Home, "result"},
	} {
		p.run(chromedp.KeyEvent(c.key))
		if id := value[string](p, focused); id != "tab-"+c.tab || value[bool](p, "document.getElementById('panel-"+c.tab+"').hidden") {
			t.Errorf("the focus is on %s, not on the tab %s, or its panel is hidden", id, c.tab)
		}
	}
	p.focus("templates")
	p.run(ctrl(kb.Home), chromedp.KeyEvent("x"))
	p.wait(text("problems") + ".includes('Line 1')")
}

// contrast returns the strings whose contrast with their background is less than WCAG AA demands.
const contrast = `(() => {
	const parse = (c) => { const [r, g, b, a = 1] = c.match(/[\d.]+/g).map(Number); return {r, g, b, a}; };
	const lum = ({r, g, b}) => { const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
	const above = (e) => e.parentElement ?? e.getRootNode().host;
	const background = (e) => { for (; e; e = above(e)) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a === 1) return c; } return {r: 255, g: 255, b: 255}; };
	const bad = [];
	let texts = 0;
	const visit = (node) => {
		for (const e of node.querySelectorAll('*')) {
			if (e.shadowRoot) visit(e.shadowRoot);
			if (!e.checkVisibility() || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
			texts++;
			if (e.closest(':disabled')) continue;
			const [a, b] = [lum(parse(getComputedStyle(e).color)), lum(background(e))].sort((x, y) => y - x);
			const ratio = (a + 0.05) / (b + 0.05);
			if (ratio < 4.5) bad.push(e.tagName + '.' + e.className + ' ' + JSON.stringify(e.textContent.slice(0, 30)) + ' ' + ratio.toFixed(2));
		}
	};
	visit(document);
	return texts < 50 ? 'only ' + texts + ' texts' : bad.join('\n');
})()`

func scheme(name string) action {
	return call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// TestContrast checks the contrast of all strings, in light and dark.
func TestContrast(t *testing.T) {
	for _, name := range []string{"light", "dark"} {
		p := open(t, scheme(name)).evaluated()
		p.restore(map[string]string{"templates": agent, "manifest": pod("agent.pillion.dev/level: x, agent.pillion.dev/y: z"), "namespaceLabels": "pillion.dev/inject: enabled", "tab": "validating"})
		p.wait(contains(text("verdict"), "denied"))
		if bad := value[string](p, contrast); bad != "" {
			t.Errorf("%s:\n%s", name, bad)
		}
		p.typeInto("namespaceLabels", "pillion.dev/inject")
		p.wait(contains(text("legend"), "There is a mistake"))
		if bad := value[string](p, contrast); bad != "" {
			t.Errorf("%s, of an earlier result:\n%s", name, bad)
		}
		p.restore(map[string]string{"templates": agent + "  x: y\n", "namespaceLabels": "pillion.dev/inject: enabled", "tab": "policy"})
		p.wait(contains(text("problems"), "Line"))
		if bad := value[string](p, contrast); bad != "" {
			t.Errorf("%s:\n%s", name, bad)
		}
	}
}

// TestNarrow checks that nothing is wider than a narrow screen.
func TestNarrow(t *testing.T) {
	p := open(t, chromedp.EmulateViewport(360, 800)).evaluated()
	if wide := value[int](p, "document.documentElement.scrollWidth"); wide > 360 {
		t.Errorf("the page is %d pixels wide", wide)
	}
}

// TestNames checks that all that can be used has a name for screen readers.
func TestNames(t *testing.T) {
	p := open(t).evaluated()
	unnamed := value[string](p, `[...document.querySelectorAll('button, select, textarea, input, [role=tabpanel], [tabindex="0"]')]
		.filter((e) => !(e.labels?.length || e.innerText?.trim() || e.ariaLabel || e.getAttribute('aria-labelledby')) && e.checkVisibility()).map((e) => e.outerHTML).join('\n')`)
	if unnamed != "" {
		t.Errorf("without a name:\n%s", unnamed)
	}
	for _, id := range []string{"templates", "manifest", "result"} {
		if !value[bool](p, "Boolean(document.getElementById('"+id+"').shadowRoot.querySelector('.cm-content').ariaLabel)") {
			t.Errorf("the editor %s has no name", id)
		}
	}
}
