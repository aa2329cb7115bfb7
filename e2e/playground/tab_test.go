// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/cmd/pillion/playground"
)

// within is how long a test may take. The conditions that it waits for usually hold within a second.
const within = time.Minute

// tab is a tab of the browser with the page.
type tab struct {
	*testing.T

	ctx context.Context
	url string

	mu     sync.Mutex
	wrong  []string // errors in the console, exceptions, and requests to other hosts
	errors bool     // whether the test expects such errors
}

// open opens the page. At the end of the test, no error may be in the console.
func open(t *testing.T, before ...action) *tab {
	t.Helper()
	server := httptest.NewServer(http.FileServer(http.Dir(page)))
	t.Cleanup(server.Close)
	return openAt(t, server.URL+"/", "", before...)
}

func openAt(t *testing.T, at, fragment string, before ...action) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, within)
	t.Cleanup(cancel)
	p := &tab{T: t, ctx: ctx, url: at}
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	p.run(call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}), call(runtime.Enable, cdp.Empty{}),
		call(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}))
	p.run(before...)
	p.run(chromedp.Navigate(at + fragment))
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.wrong) > 0 && !p.errors {
			t.Errorf("the browser reports:\n%s", strings.Join(p.wrong, "\n"))
		}
	})
	return p
}

func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		p.wrong = append(p.wrong, string(e.Entry.Level)+": "+e.Entry.Text+" "+e.Entry.URL)
	case *runtime.EventConsoleAPICalled:
		message := "console." + string(e.Type)
		for _, arg := range e.Args {
			message += " " + string(arg.Value) + describe(arg)
		}
		p.wrong = append(p.wrong, message)
	case *runtime.EventExceptionThrown:
		p.wrong = append(p.wrong, e.ExceptionDetails.Text+" "+describe(e.ExceptionDetails.Exception))
	case *network.EventRequestWillBeSent:
		if of, err := url.Parse(e.Request.URL); err == nil && of.Scheme != "data" && !strings.HasPrefix(e.Request.URL, p.url) {
			p.wrong = append(p.wrong, "a request to "+e.Request.URL)
		}
	}
}

func describe(thrown *runtime.RemoteObject) string {
	if thrown == nil {
		return ""
	}
	return thrown.Description
}

func (p *tab) run(actions ...action) {
	p.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.Fatal(err)
	}
}

type action = chromedp.Action[chromedp.Void]

func click(selector string) action { return chromedp.Click(chromedp.CSS(selector)) }

// ctrl presses a key together with Ctrl.
func ctrl(key string) action {
	return chromedp.KeyEvent(key, chromedp.KeyModifiers(chromedp.ModifierCtrl))
}

// call is a command of the protocol.
func call[P, R any](command cdp.Command[P, R], params P) action {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, command, params)
		return chromedp.Void{}, err
	}
}

func insert(text string) action { return call(input.InsertText, input.InsertTextParams{Text: text}) }

// do evaluates an expression.
func do(expression string) action {
	return chromedp.Evaluate[chromedp.Void](expression, chromedp.EvalAwaitPromise)
}

// value returns the value of an expression.
func value[V any](p *tab, expression string) V {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[V](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return v
}

// wait waits until an expression is true. The poll of chromedp needs eval, which the page forbids.
func (p *tab) wait(expression string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, within/2)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`new Promise((done, failed) => {
		const look = () => {
			try {
				if (`+expression+`) done(true); else setTimeout(look, 20);
			} catch (e) {
				failed(e);
			}
		};
		look();
	})`, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("%s: %v\n%s\n%s", expression, err, value[string](p, "document.body.innerText"), strings.Join(p.wrong, "\n"))
	}
}

// text is an expression for the text of an element.
func text(id string) string { return "document.getElementById('" + id + "').innerText" }

// content is an expression for the text of an editor.
func content(id string) string {
	return "document.getElementById('" + id + "').shadowRoot.querySelector('.cm-content').innerText"
}

// contains is an expression.
func contains(in, part string) string { return in + ".includes(" + quoted(part) + ")" }

func quoted(s string) string {
	text, _ := json.Marshal(s) // cannot fail
	return string(text)
}

// evaluated waits for the first result.
func (p *tab) evaluated() *tab {
	p.Helper()
	p.wait("document.body.dataset.evaluated > 0")
	return p
}

// focus focuses the content of an editor.
func (p *tab) focus(editor string) {
	p.Helper()
	p.run(do("document.getElementById('" + editor + "').shadowRoot.querySelector('.cm-content').focus()"))
}

// link returns the fragment for a state, made by the page's own function.
func (p *tab) link(state map[string]string) string {
	p.Helper()
	text := quoted(string(must(json.Marshal(state))))
	return value[string](p, `(async () => {
		const stream = new Blob([`+text+`]).stream().pipeThrough(new CompressionStream('deflate-raw'));
		const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
		return '#s=' + btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join('')).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
	})()`)
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// example is an item of the menu.
type example struct {
	Name   string `json:"name"`
	Tour   string `json:"tour"`   // its name in the tour, or ""
	About  string `json:"about"`  // what it shows, and what to try
	Output string `json:"output"` // of the engine, as JSON; only the first example has one
	playground.Input
}

func examples(t *testing.T) (all []example) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(page, "examples.json"))
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil || len(all) < 10 {
		t.Fatalf("%d examples: %v", len(all), err)
	}
	return all
}

// metadata returns the labels and annotations of a case as the page has them.
func metadata(data []byte) (labels, annotations string) {
	var m struct{ Labels, Annotations map[string]string }
	if err := yaml.Unmarshal(data, &m); err != nil {
		panic(err)
	}
	return string(must(yaml.Marshal(m.Labels))), string(must(yaml.Marshal(m.Annotations)))
}

// restore gives the page a state by a link.
func (p *tab) restore(state map[string]string) {
	p.Helper()
	before := value[string](p, "document.body.dataset.evaluated")
	p.run(do("location.hash = " + quoted(p.link(state))))
	p.wait("document.body.dataset.evaluated > " + before)
}

// typeInto replaces the text of a field and waits for the result.
func (p *tab) typeInto(field, text string) {
	p.Helper()
	before := value[string](p, "document.body.dataset.evaluated")
	p.run(do("{const e = document.getElementById('" + field + "'); e.value = " + quoted(text) + "; e.dispatchEvent(new Event('input'))}"))
	p.wait("document.body.dataset.evaluated > " + before)
}

func jsonOf(v any) ([]byte, error) { return json.Marshal(v) }
