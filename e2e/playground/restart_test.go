// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"
)

// serving answers requests for a file of the page.
func serving(file string, code int, contentType, body string) action {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		err := chromedp.Listen(ctx, func(event any) {
			if e, ok := event.(*fetch.EventRequestPaused); ok {
				go func() {
					_, _ = cdp.Call(ctx, target, fetch.FulfillRequest, fetch.FulfillRequestParams{
						RequestID: e.RequestID, ResponseCode: int64(code), Body: []byte(body),
						ResponseHeaders: []*fetch.HeaderEntry{{Name: "Content-Type", Value: contentType}},
					})
				}()
			}
		})
		if err != nil {
			return chromedp.Void{}, err
		}
		_, err = cdp.Call(ctx, target, fetch.Enable, fetch.EnableParams{Patterns: []*fetch.RequestPattern{{URLPattern: "*" + file}}})
		return chromedp.Void{}, err
	}
}

// holding lets requests for a file of the page wait until hold is closed. It closes load with the first one.
func holding(file string, load, hold chan struct{}) action {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		err := chromedp.Listen(ctx, func(event any) {
			if e, ok := event.(*fetch.EventRequestPaused); ok {
				close(load)
				go func() {
					<-hold
					_, _ = cdp.Call(ctx, target, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID})
				}()
			}
		})
		if err != nil {
			return chromedp.Void{}, err
		}
		_, err = cdp.Call(ctx, target, fetch.Enable, fetch.EnableParams{Patterns: []*fetch.RequestPattern{{URLPattern: "*" + file}}})
		return chromedp.Void{}, err
	}
}

// TestPanic checks that the page starts the engine again after a panic. Without an argument, the engine panics.
func TestPanic(t *testing.T) {
	worker, err := os.ReadFile(page + "/worker.js")
	if err != nil {
		t.Fatal(err)
	}
	const panics = `
		let run;
		Object.defineProperty(globalThis, 'pillion', {
			set: (f) => run = f,
			get: () => (input) => input.includes('panic') ? run() : run(input),
		});`
	p := open(t, serving("worker.js", 200, "text/javascript", string(worker)+panics)).evaluated()
	p.errors = true // Go writes the panic to the console
	for range 2 {
		p.run(do("location.hash = " + quoted(p.link(map[string]string{"manifest": "panic"}))))
		p.wait(contains(text("status"), "The engine does not run: the engine ended. Change the input to start it again."))
		p.restore(map[string]string{"templates": agent, "manifest": pod(""), "namespaceLabels": "pillion.dev/inject: enabled"})
		p.wait(contains(text("decisions"), "agent: injected"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !strings.Contains(strings.Join(p.wrong, "\n"), "panic: ") {
		t.Errorf("the engine did not panic: %q", p.wrong)
	}
}

// TestThrow checks that the page starts a worker again that fails to start, and one that throws.
func TestThrow(t *testing.T) {
	const worker = `
		postMessage({running: true});
		onmessage = ({data}) => {
			if (!data.input) return;
			if (data.input.manifest.includes('throw')) throw new Error('thrown');
			postMessage({id: data.id, took: 1, output: {problems: [], mistakes: [], hints: [], result: data.input.manifest, added: [], objects: [], verdicts: []}});
		};`
	p := open(t, serving("worker.js", 200, "text/javascript", worker)).evaluated()
	p.errors = true // the exception
	p.run(do("location.hash = " + quoted(p.link(map[string]string{"manifest": "throw"}))))
	p.wait(contains(text("status"), "thrown"))
	p.restore(map[string]string{"manifest": "after"})
	p.wait(contains(content("result"), "after"))
}

// TestNoEngine checks that the page shows the result of the first example without the engine.
func TestNoEngine(t *testing.T) {
	p := open(t, serving("starter.wasm.gz", 503, "text/plain", "no"))
	p.errors = true // the browser logs the 503
	p.wait(contains(text("decisions"), "log-agent: injected"))
	p.wait(contains(content("result"), "registry.example/log-agent:1.4.2"))
	p.wait(contains(text("status"), "The engine does not run: Error: starter.wasm.gz: 503. Change the input to start it again."))
}

// TestStarter checks that the page evaluates its example before the complete module is there. An input that needs more waits for it.
func TestStarter(t *testing.T) {
	load, hold := make(chan struct{}), make(chan struct{})
	p := open(t, holding("complete.wasm.gz", load, hold)).evaluated()
	<-load
	p.run(click("#tab-policy"))
	p.wait(contains(text("status"), "Loading the rest of the engine…"))
	close(hold)
	p.wait(contains(text("panel-policy"), "kind: MutatingAdmissionPolicy") + " && " + contains(text("status"), "Evaluated in"))
}

// TestNoComplete checks that the page evaluates what the starter can if the complete module is missing, and says so otherwise.
func TestNoComplete(t *testing.T) {
	p := open(t, serving("complete.wasm.gz", 503, "text/plain", "no")).evaluated()
	p.errors = true // the browser logs the 503
	p.run(click("#tab-policy"))
	p.wait(contains(text("status"), "The engine does not run: Error: complete.wasm.gz: 503. Change the input to start it again."))
	before := value[string](p, "document.body.dataset.evaluated")
	p.run(click("#tab-result"))
	p.wait("document.body.dataset.evaluated > " + before + " && " + contains(text("status"), "Evaluated in"))
}

// TestNoExamples checks that the page works without its examples, and says so.
func TestNoExamples(t *testing.T) {
	p := open(t, serving("examples.json", 503, "text/plain", "no"))
	p.errors = true // the browser logs the 503
	p.evaluated()
	p.wait(contains(text("trouble"), "There are no examples, because examples.json cannot be loaded: the server answers 503."))
	p.restore(map[string]string{"templates": agent, "manifest": pod(""), "namespaceLabels": "pillion.dev/inject: enabled"})
	p.wait(contains(text("decisions"), "agent: injected"))
}
