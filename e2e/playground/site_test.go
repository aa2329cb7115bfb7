// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// The site, and the program that finds what users of screen readers and keyboards cannot use.
const (
	siteFolder = root + "/bin/site"
	axe        = root + "/manifests/site/node_modules/axe-core/axe.min.js"
)

// sitePages are the kinds of pages that are examined in all sizes and colors.
func sitePages() []string {
	return []string{"index.html", "template-tutorial.html", "template-fields.html", "reason-codes.html", "pages.html", "opting-in.html", "try.html"}
}

var buildSite = sync.OnceValue(func() error {
	out, err := exec.Command("make", "-C", root, "site").CombinedOutput()
	if err != nil {
		return fmt.Errorf("make site: %w\n%s", err, out)
	}
	return nil
})

// serveSite builds the site and returns its address.
func serveSite(t *testing.T) string {
	t.Helper()
	if err := buildSite(); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(siteFolder)))
	t.Cleanup(server.Close)
	return server.URL + "/"
}

// siteFiles returns the pages of the site.
func siteFiles(t *testing.T) (names []string) {
	t.Helper()
	if err := buildSite(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(siteFolder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if name := entry.Name(); filepath.Ext(name) == ".html" && name != "404.html" {
			names = append(names, name)
		}
	}
	return names
}

// openSite opens a page of the site and waits until its scripts run. At the end of the test, there may be no error in the
// console and no request to another host.
func openSite(t *testing.T, at, name string, before ...action) *tab {
	t.Helper()
	p := openAt(t, at, name, before...)
	p.wait("document.querySelector('#app')?.__vue_app__ && !document.querySelector('pre.picture')")
	return p
}

// TestSitePages opens each page of the site. All links lead to a page with that heading.
func TestSitePages(t *testing.T) {
	at := serveSite(t)
	names := siteFiles(t)
	anchors, links := map[string][]string{}, map[string][]string{}
	for _, name := range names {
		p := openSite(t, at, name)
		anchors[name] = value[[]string](p, "[...document.querySelectorAll('[id]')].map((e) => e.id)")
		links[name] = value[[]string](p, "[...document.querySelectorAll('a[href]')].map((a) => a.href)")
		if wide := value[int](p, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
			t.Errorf("%s is %d pixels wider than the window", name, wide)
		}
	}
	n := 0
	for name, targets := range links {
		for _, target := range targets {
			within, ok := strings.CutPrefix(target, at)
			if !ok {
				continue
			}
			path, hash, _ := strings.Cut(within, "#")
			if path == "" {
				path = "index.html"
			}
			n++
			if hash, err := url.PathUnescape(hash); anchors[path] == nil || err != nil || hash != "" && !slices.Contains(anchors[path], hash) {
				t.Errorf("%s: the link to %s leads to nothing", name, within)
			}
		}
	}
	if len(names) < 45 || n < 1000 {
		t.Errorf("there are only %d pages and %d links", len(names), n)
	}
}

// TestSiteSearch checks that the search finds each page by its title.
func TestSiteSearch(t *testing.T) {
	at := serveSite(t)
	p := openSite(t, at, "index.html")
	titles := map[string]string{}
	for _, name := range siteFiles(t) {
		if name == "index.html" || name == "try.html" {
			continue // the search has no entry for them
		}
		text, err := os.ReadFile(filepath.Join(siteFolder, name))
		if err != nil {
			t.Fatal(err)
		}
		_, title, _ := strings.Cut(string(text), "<title>")
		titles[name], _, _ = strings.Cut(title, " | Pillion</title>")
	}
	p.run(click(".DocSearch-Button"))
	p.wait("document.querySelector('.search-input')")
	for name, title := range titles {
		p.run(do(`{const e = document.querySelector('.search-input'); e.value = ` + quoted(title) + `; e.dispatchEvent(new Event('input'))}`))
		p.wait(`[...document.querySelectorAll('.result')].some((a) => a.getAttribute('href').split('#')[0] === '/` + name + `')`)
	}
}

// TestSiteAccess runs axe on pages of each kind, wide and narrow, light and dark, and checks that no column of a table is out of view. It
// also takes a picture of each, in the
// folder that SITE_PICTURES names.
func TestSiteAccess(t *testing.T) {
	at := serveSite(t)
	program, err := os.ReadFile(axe)
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{1400, 390} {
		for _, colors := range []string{"light", "dark"} {
			for _, name := range sitePages() {
				t.Run(fmt.Sprintf("%d %s %s", width, colors, name), func(t *testing.T) {
					p := openSite(t, at, name, chromedp.EmulateViewport(int64(width), 900), scheme(colors))
					p.checkAccess(string(program))
					if n := value[int](p, "[...document.querySelectorAll('.vp-doc table')].filter((t) => t.scrollWidth > t.clientWidth + 1).length"); n > 0 {
						t.Errorf("%d tables are wider than the text", n)
					}
					p.savePicture(fmt.Sprintf("%d-%s-%s.png", width, colors, strings.TrimSuffix(name, ".html")))
				})
			}
		}
	}
}

// TestSiteSearchAccess runs axe on the results of a search.
func TestSiteSearchAccess(t *testing.T) {
	at := serveSite(t)
	program, err := os.ReadFile(axe)
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{1400, 390} {
		p := openSite(t, at, "opting-in.html", chromedp.EmulateViewport(int64(width), 900))
		p.run(click(".DocSearch-Button"))
		p.wait("document.querySelector('.search-input')")
		p.run(do(`{const e = document.querySelector('.search-input'); e.value = 'canary share'; e.dispatchEvent(new Event('input'))}`))
		p.wait("document.querySelectorAll('.result').length > 2")
		p.checkAccess(string(program))
		p.savePicture(fmt.Sprintf("%d-light-search.png", width))
	}
}

// TestPlaygroundAccess runs axe on the playground: with a result, with an earlier one beside a mistake, and with a conflict.
func TestPlaygroundAccess(t *testing.T) {
	if err := buildSite(); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(axe)
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{1400, 390} {
		for _, colors := range []string{"light", "dark"} {
			p := open(t, chromedp.EmulateViewport(int64(width), 900), scheme(colors)).evaluated()
			look := func(name string) {
				p.checkAccess(string(program))
				p.savePicture(fmt.Sprintf("%d-%s-playground-%s.png", width, colors, name))
			}
			p.wait("document.body.dataset.hinted > 0")
			look("result")
			p.typeInto("namespaceLabels", "pillion.dev/inject")
			look("mistake")
			if width == 390 {
				p.run(click("#view-fields"))
				look("fields")
				p.run(click("#view-templates"))
				look("templates")
			}
			for i, name := range []string{"mesh", "secrets", "canary", "conflict"} {
				before := value[string](p, "document.body.dataset.evaluated")
				p.run(click(fmt.Sprintf("#tour li:nth-child(%d) button", i+2)))
				p.wait("document.body.dataset.evaluated > " + before)
				look(name)
			}
		}
	}
}

// checkAccess fails if axe finds something that is serious or critical.
func (p *tab) checkAccess(program string) {
	p.Helper()
	p.run(do(program + "; undefined"))
	if wide := value[int](p, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
		p.Errorf("the page is %d pixels wider than the window", wide)
	}
	found := value[[]string](p, `axe.run(document, {iframes: false}).then(({violations}) => violations.filter((v) => ['serious', 'critical'].includes(v.impact))
		.flatMap((v) => v.nodes.slice(0, 3).map((n) => v.id + ': ' + v.help + ': ' + n.html.slice(0, 200) + ' ' + (n.any[0]?.message ?? ''))))`)
	for _, finding := range found {
		p.Error(finding)
	}
}

// savePicture writes a screenshot into the folder that SITE_PICTURES names.
func (p *tab) savePicture(name string) {
	p.Helper()
	folder := os.Getenv("SITE_PICTURES")
	if folder == "" {
		return
	}
	shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name), shot, 0o600)
	}
	if err != nil {
		p.Fatal(err)
	}
}
