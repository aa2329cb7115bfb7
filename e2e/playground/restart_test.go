// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"
)

// intercept calls handle for each request for a file of the page, which waits until handle has answered or continued it.
func intercept(file string, handle func(ctx context.Context, target *chromedp.Target, id fetch.RequestID)) action {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		err := chromedp.Listen(ctx, func(event any) {
			if e, ok := event.(*fetch.EventRequestPaused); ok {
				go handle(ctx, target, e.RequestID)
			}
		})
		if err != nil {
			return chromedp.Void{}, err
		}
		_, err = cdp.Call(ctx, target, fetch.Enable, fetch.EnableParams{Patterns: []*fetch.RequestPattern{{URLPattern: "*" + file}}})
		return chromedp.Void{}, err
	}
}

// serving answers requests for a file of the page.
func serving(file string, code int, contentType, body string) action {
	return intercept(file, func(ctx context.Context, target *chromedp.Target, id fetch.RequestID) {
		_, _ = cdp.Call(ctx, target, fetch.FulfillRequest, fetch.FulfillRequestParams{
			RequestID: id, ResponseCode: int64(code), Body: []byte(body),
			ResponseHeaders: []*fetch.HeaderEntry{{Name: "Content-Type", Value: contentType}},
		})
	})
}

// holdRequests lets requests for a file of the page wait until release is closed.
func holdRequests(file string, release <-chan struct{}) action {
	return intercept(file, func(ctx context.Context, target *chromedp.Target, id fetch.RequestID) {
		<-release
		_, _ = cdp.Call(ctx, target, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: id})
	})
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

const loadingRest = "Loading the rest of the engine…"

// TestStarter checks that the page evaluates its example before the complete module is there, and inputs that need no more. One that
// needs more waits for it.
func TestStarter(t *testing.T) {
	release := make(chan struct{})
	p := open(t, holdRequests("complete.wasm.gz", release)).evaluated()
	p.run(click("#tab-policy"))
	p.wait(contains(text("status"), loadingRest))
	p.run(click("#tab-result"))
	p.wait(contains(text("status"), "Evaluated in"))
	p.run(click("#tab-policy"))
	p.wait(contains(text("status"), loadingRest))
	close(release)
	p.wait(contains(text("panel-policy"), "kind: MutatingAdmissionPolicy") + " && " + contains(text("status"), "Evaluated in"))
	p.wait("document.body.dataset.hinted > 0")
}

// TestNoComplete checks that the page evaluates what the starter can if the complete module is missing or of another build, and says so
// otherwise.
func TestNoComplete(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		body string
		why  string
	}{
		"missing":       {503, "no", "complete.wasm.gz: 503"},
		"another build": {200, otherBuild(t), "the server has another version now, so reload the page"},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, serving("complete.wasm.gz", c.code, "application/gzip", c.body)).evaluated()
			p.errors = true // the browser logs the 503
			for range 2 {
				p.run(click("#tab-policy"))
				p.wait(contains(text("status"), "The rest of the engine cannot be loaded: "+c.why+". Change the input to try again."))
				p.run(click("#tab-result"))
				p.wait(contains(text("status"), "Evaluated in"))
			}
		})
	}
}

// otherBuild returns the complete module with the name of another starter.
func otherBuild(t *testing.T) string {
	t.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(must(os.ReadFile(page + "/complete.wasm.gz"))))
	if err != nil {
		t.Fatal(err)
	}
	module := must(io.ReadAll(packed))
	_, after, _ := bytes.Cut(module, []byte(`{"build":"`))
	build, _, found := bytes.Cut(after, []byte(`"`))
	if !found || bytes.Count(module, build) != 1 {
		t.Fatalf("the module has the build %q", build)
	}
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	if _, err := writer.Write(bytes.ReplaceAll(module, build, bytes.Repeat([]byte("0"), len(build)))); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
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
