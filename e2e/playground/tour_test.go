// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestTour follows the tour: each example has the decision that it is about, and what its text suggests to try works.
func TestTour(t *testing.T) {
	p := open(t).evaluated()
	for i, c := range []struct{ name, shows, in, from, to, then string }{
		{"Log agent", "log-agent: injected", "templates", "log-agent:1.4.2", "log-agent:1.5.0", "log-agent: injected"},
		{"Mesh", "mesh: injected", "manifest", `"5432"`, "all", "mesh: invalid_parameter"},
		{"Secrets", "secrets: injected", "manifest", "        secrets.pillion.dev/role: shop\n", "", "secrets: invalid_parameter"},
		{"Canary", "log-agent-next: not_in_share", "templates", "share: 20 ", "share: 100 ", "log-agent-next: injected"},
		{"Conflict", "log-agent: conflict", "manifest", "mountPath: /var/log/app", "mountPath: /data", "log-agent: injected"},
	} {
		before := value[string](p, "document.body.dataset.evaluated")
		p.run(click(fmt.Sprintf("#tour li:nth-child(%d) button", i+1)))
		p.wait("document.body.dataset.evaluated > " + before + " && " + contains(text("decisions"), c.shows))
		current := value[string](p, "[...document.querySelectorAll('#tour [aria-current]')].map((b) => b.innerText).join()")
		if about := value[string](p, text("about")); current != c.name || !strings.Contains(about, "Try it: ") {
			t.Errorf("%s: the current example is %s, about %q", c.name, current, about)
		}
		e := examples(t)[i]
		state := map[string]string{"templates": e.Templates, "manifest": e.Manifest, "namespaceLabels": e.NamespaceLabels}
		changed := strings.Replace(state[c.in], c.from, c.to, 1)
		if e.Tour != c.name || changed == state[c.in] {
			t.Fatalf("the example %s has no %q in its %s", e.Tour, c.from, c.in)
		}
		state[c.in] = changed
		p.restore(state)
		p.wait(contains(text("decisions"), c.then))
		if about := value[string](p, text("about")); about != "" {
			t.Errorf("%s: a link has the text of an example: %q", c.name, about)
		}
	}
	if got := value[string](p, text("decisions")); strings.Contains(got, "conflict") {
		t.Errorf("after the conflict: %s", got)
	}
	canary := examples(t)[3]
	p.restore(map[string]string{"templates": canary.Templates, "manifest": canary.Manifest, "namespaceLabels": canary.NamespaceLabels})
	p.wait(contains(text("decisions"), "log-agent-next: injected") + " && " + contains(text("decisions"), "log-agent-next: not_in_share"))
}

// TestRevealed checks for each example that the largest block of additions is in view, in a window of each size, and that the
// result is as tall as the window.
func TestRevealed(t *testing.T) {
	for _, size := range [][2]int{{1400, 900}, {1900, 1200}, {390, 844}} {
		p := open(t, chromedp.EmulateViewport(int64(size[0]), int64(size[1]))).evaluated()
		for i, e := range examples(t) {
			if size[0] != 1400 && e.Tour == "" {
				continue
			}
			before := value[string](p, "document.body.dataset.evaluated")
			p.run(do(fmt.Sprintf("{const e = document.getElementById('example'); e.selectedIndex = %d; e.dispatchEvent(new Event('change'))}", i)))
			p.wait("document.body.dataset.evaluated > " + before)
			seen := value[string](p, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
				const scroller = document.getElementById('result').shadowRoot.querySelector('.cm-scroller');
				const {top, bottom} = scroller.getBoundingClientRect();
				done([...scroller.querySelectorAll('.cm-line.added')].filter((l) => {
					const r = l.getBoundingClientRect();
					return r.top >= top - 1 && r.bottom <= Math.min(bottom, innerHeight) + 1;
				}).map((l) => l.innerText).join('\n'));
			})))`)
			if e.Tour != "Conflict" && !regexp.MustCompile(`(?m)^ *(- )?name: `).MatchString(seen) {
				t.Errorf("%d, %s: in view is only\n%s", size[0], e.Name, seen)
			}
			if scrolled := value[int](p, "Math.round(scrollY)"); scrolled != 0 {
				t.Errorf("%d, %s: the page is scrolled by %d", size[0], e.Name, scrolled)
			}
		}
		if size[0] < 880 {
			continue
		}
		box := value[map[string]float64](p, "(({height, bottom}) => ({height, bottom}))(document.getElementById('result').getBoundingClientRect())")
		if box["bottom"] < float64(size[1])-20 || box["bottom"] > float64(size[1]) || box["height"] < float64(size[1])/2 {
			t.Errorf("%v: the result is %v", size, box)
		}
	}
}

// TestOutdated checks that the last good result stays while the input has a mistake, in gray, and that a new example never
// shows the result of the one before.
func TestOutdated(t *testing.T) {
	p := open(t).evaluated()
	good := map[string]string{"templates": agent, "manifest": pod(""), "namespaceLabels": "pillion.dev/inject: enabled"}
	p.restore(good)
	p.wait(contains(content("result"), "agent:1"))
	const outdated = "document.getElementById('part-result').classList.contains('outdated')"
	color := func() string {
		return value[string](p, "getComputedStyle(document.getElementById('result').shadowRoot.querySelector('.cm-line.added')).backgroundColor")
	}
	fresh := color()
	for _, c := range []struct{ editor, part, typed string }{{"templates", "templates", "  x: [\n"}, {"manifest", "manifest", "  x: [\n"}} {
		p.focus(c.editor)
		before := value[string](p, "document.body.dataset.evaluated")
		p.run(ctrl("End"), insert(c.typed))
		p.wait("document.body.dataset.evaluated > " + before + " && " + outdated)
		if legend := value[string](p, text("legend")); legend != "There is a mistake in the "+c.part+". This is the result before it." {
			t.Errorf("%s: %s", c.part, legend)
		}
		if !value[bool](p, contains(content("result"), "agent:1")+" && "+contains(text("decisions"), "agent: injected")) || color() == fresh {
			t.Errorf("%s: the last good result is not there, or not gray", c.part)
		}
		p.run(ctrl("z"))
		p.wait("!" + outdated + " && " + contains(text("legend"), "added line"))
	}
	p.typeInto("namespaceLabels", "pillion.dev/inject")
	p.wait(outdated + " && " + contains(text("decisions"), "agent: injected"))
	p.typeInto("namespaceLabels", "a: b")
	p.wait("!" + outdated + " && " + contains(text("decisions"), "agent: not_opted_in"))
	// A kind that Pillion does not know is no mistake: the other objects have a result.
	p.restore(map[string]string{"templates": agent, "namespaceLabels": "pillion.dev/inject: enabled", "manifest": pod("") + "---\nkind: Rollout\napiVersion: a/v1\nspec: {template: {spec: {containers: [{name: a}]}}}\n"})
	p.wait("!" + outdated + " && " + contains(text("mistakes"), "does not know this kind") + " && " + contains(text("decisions"), "agent: injected"))
	p.restore(map[string]string{"templates": agent + "  x: y\n", "manifest": pod("")})
	p.wait(contains(text("legend"), "There is no result, because the templates have problems.") + " && !" + contains(content("result"), "agent:1"))
}

// TestFieldMistake checks that a mistake in a field is shown below it, and not with those of the manifest.
func TestFieldMistake(t *testing.T) {
	p := open(t).evaluated()
	for _, field := range []string{"namespaceLabels", "namespaceAnnotations", "accountLabels", "accountAnnotations"} {
		was := value[string](p, "document.getElementById('"+field+"').value")
		p.typeInto(field, "a: b\nc")
		p.wait(contains(text(field+"-mistakes"), "Line 2: ") + " && document.getElementById('" + field + "').ariaInvalid === 'true' && " + text("mistakes") + " === ''")
		below := value[float64](p, "document.getElementById('"+field+"-mistakes').getBoundingClientRect().top - document.getElementById('"+field+"').getBoundingClientRect().bottom")
		if below < 0 || below > 20 {
			t.Errorf("the mistake is %v pixels below the field %s", below, field)
		}
		p.typeInto(field, was)
		p.wait(text(field+"-mistakes") + " === '' && document.getElementById('" + field + "').ariaInvalid === 'false'")
	}
}

// TestReasonLinks checks that each reason code is a link to its section, which opens beside the page.
func TestReasonLinks(t *testing.T) {
	sections, err := os.ReadFile(root + "/inject/README.md")
	if err != nil {
		t.Fatal(err)
	}
	p := open(t).evaluated()
	p.restore(map[string]string{"templates": agent, "manifest": pod("agent.pillion.dev/level: x"), "namespaceLabels": "pillion.dev/inject: enabled", "tab": "validating"})
	p.wait(contains(text("verdict"), "invalid_parameter"))
	links := value[[]string](p, "[...document.querySelectorAll('#decisions a, #verdict a')].map((a) => [a.href, a.innerText, a.target].join(' '))")
	for _, link := range links {
		parts := strings.Fields(link)
		if parts[0] != "https://github.com/pillion-dev/pillion/blob/main/inject/README.md#"+parts[1] || parts[2] != "_blank" || !strings.Contains(string(sections), "\n### "+parts[1]+"\n") {
			t.Errorf("a link is %s", link)
		}
	}
	if len(links) != 2 {
		t.Errorf("the links are %q", links)
	}
}

// TestParts checks that a narrow window shows one part at a time, and that the tabs say what the others have.
func TestParts(t *testing.T) {
	p := open(t, chromedp.EmulateViewport(390, 844)).evaluated()
	const visible = "['result', 'templates', 'manifest', 'fields'].filter((n) => document.getElementById('part-' + n).checkVisibility()).join()"
	if got := value[string](p, visible); got != "result" {
		t.Errorf("first, the page shows %s", got)
	}
	p.wait(textOf("view-result") + " === 'Result +33 added lines'")
	for _, part := range []string{"templates", "manifest", "fields"} {
		p.run(click("#view-" + part))
		if got := value[string](p, visible); got != part {
			t.Errorf("the tab %s shows %s", part, got)
		}
		if role := value[string](p, "document.getElementById('part-"+part+"').role"); role != "tabpanel" {
			t.Errorf("the part %s has the role %s", part, role)
		}
	}
	p.typeInto("namespaceLabels", "a")
	p.wait(textOf("view-fields") + " === 'Namespace 1 problem'")
	p.run(click("#view-result"))
	p.wait(contains(text("legend"), "There is a mistake in the labels and annotations."))
	p.run(click("#view-templates"))
	p.run(do("document.querySelector('#tour li:nth-child(2) button').click()"))
	p.wait(visible + " === 'result' && " + contains(text("decisions"), "mesh: injected"))
	p.run(chromedp.EmulateViewport(1200, 800))
	p.wait(visible + " === 'result,templates,manifest,fields'")
}

// textOf returns an expression for the words of an element, also those for screen readers.
func textOf(id string) string {
	return "document.getElementById('" + id + "').textContent.replace(/\\s+/g, ' ').trim()"
}
