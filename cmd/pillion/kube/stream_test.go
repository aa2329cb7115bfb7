// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/inject/testing/size"
)

// crowd is an API server with many templates. It makes each of them when it is read.
type crowd struct {
	t      *testing.T
	n      int
	object func(i int) string
	lists  bool // it answers with lists; otherwise, it streams them as watches
	twice  bool // after the list, each object changes
	most   uint64
	sent   int
	base   uint64
}

// RoundTrip answers requests for SidecarTemplates. There is no ClusterSidecarTemplate.
func (c *crowd) RoundTrip(r *http.Request) (*http.Response, error) {
	watches, initial := r.URL.Query().Get("watch") != "", r.URL.Query().Get("sendInitialEvents") != ""
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	n := c.n
	if strings.Contains(r.URL.Path, "clustersidecartemplates") {
		n = 0
	}
	var parts func(yield func(string) bool)
	switch {
	case initial && c.lists:
		answer.StatusCode = http.StatusUnprocessableEntity
		answer.Body = io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"sendInitialEvents is forbidden"}`))
		return answer, nil
	case watches:
		parts = c.events(r.Context(), n, initial)
	default:
		parts = c.list(n)
	}
	reader, writer := io.Pipe()
	go func() {
		for part := range parts {
			if _, err := io.WriteString(writer, part); err != nil {
				return
			}
		}
		writer.Close()
	}()
	answer.Body = reader
	return answer, nil
}

func (c *crowd) list(n int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		separator := `{"kind":"SidecarTemplateList","apiVersion":"pillion.dev/v1alpha1","metadata":{"resourceVersion":"7"},"items":[`
		for i := range n {
			if !yield(separator) || !yield(c.object(i)) {
				return
			}
			separator = ","
			c.measure()
		}
		if n == 0 {
			yield(separator)
		}
		yield(`]}`)
	}
}

func (c *crowd) events(ctx context.Context, n int, initial bool) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		send := func(kind string) {
			for i := range n {
				if !yield(`{"type":"` + kind + `","object":` + c.object(i) + "}\n") {
					return
				}
				c.measure()
			}
		}
		if initial {
			send("ADDED")
			yield(`{"type":"BOOKMARK","object":{"kind":"SidecarTemplate","apiVersion":"pillion.dev/v1alpha1","metadata":{"resourceVersion":"8","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n")
		}
		if c.twice {
			send("MODIFIED")
			yield(`{"type":"ADDED","object":{"kind":"SidecarTemplate","apiVersion":"pillion.dev/v1alpha1","metadata":{"namespace":"last","name":"last","uid":"1","resourceVersion":"9"},"spec":{}}}` + "\n")
		}
		<-ctx.Done()
	}
}

// measure collects garbage from time to time, and records how much memory is in use then.
func (c *crowd) measure() {
	if c.sent++; c.sent%(c.n/3) == 0 {
		c.most = max(c.most, heap())
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what has finalizers takes two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

const large = 122 << 10

func template(namespace string, i int, metadata, spec, status string) string {
	return fmt.Sprintf(`{"apiVersion":"pillion.dev/v1alpha1","kind":"SidecarTemplate","metadata":{"namespace":%q,"name":"t%05d","uid":"4f0c5f3e-8a44-4d1c-9c9e-%012d","resourceVersion":"7","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z"%s},"spec":{"pod":{"metadata":{"annotations":{"a.example.com/b":"`,
		namespace, i, i, metadata) + spec + `"}}}}` + status + `}`
}

// TestStreamMemory checks that the memory for templates does not depend on how many there are and on how large they are:
// neither for those that are read at the start, as a list or as a stream, nor for those that change later.
func TestStreamMemory(t *testing.T) {
	n, allowed := size.Choose(t, 90, 3000), 6<<20
	x := strings.Repeat("x", large)
	huge := x + x
	if n == 3000 {
		huge = strings.Repeat("x", 1<<20)
		allowed = 24 << 20
	}
	for what, object := range map[string]func(i int) string{
		"one namespace":   func(i int) string { return template("noisy", i, "", x, "") },
		"many namespaces": func(i int) string { return template(fmt.Sprint("n", i), i, "", x, "") },
		"too large":       func(i int) string { return template("noisy", i, "", huge, "") },
		"labels": func(i int) string {
			return template("noisy", i, `,"labels":{"a":"`+x+`"},"annotations":{"b":"`+x+x+`"}`, "", "")
		},
		"managed fields": func(i int) string {
			return template(fmt.Sprint("n", i%100), i, `,"managedFields":[{"manager":"a","fieldsV1":{"f:`+huge+`":{}}}]`, "", "")
		},
		"status": func(i int) string {
			return template(fmt.Sprint("n", i%100), i, "", "", `,"status":{"conditions":[{"type":"Ready","message":"`+x+`"},{"type":"X","message":"`+x+`"}]}`)
		},
		"deeply nested": func(i int) string {
			return template("noisy", i, `,"x":`+strings.Repeat(`{"a":`, 9998)+`"`+x+`"`+strings.Repeat(`}`, 9998), "", "")
		},
		"values of metadata": func(i int) string {
			return template("noisy", i, `,"finalizers":["`+x+`"],"ownerReferences":[{"name":"`+x+`"}]`, "", "")
		},
	} {
		for _, lists := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, lists: %t", what, lists), func(t *testing.T) {
				c := &crowd{t: t, n: n, object: object, lists: lists, twice: true, base: heap()}
				client, err := NewRESTClient(&rest.Config{Host: "https://api.example", Transport: c, QPS: -1})
				clitest.Must(t, err)
				last := make(chan struct{}, 1)
				catalog := NewCatalog(NewLimits(), client, true, func(names []types.NamespacedName) {
					for _, name := range names {
						if name.Namespace == "last" {
							last <- struct{}{}
						}
					}
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					catalog.Kinds(func(*Kind, error) {})[1].Run(ctx)
					close(done)
				}()
				select {
				case <-last:
				case <-time.After(5 * time.Minute):
					t.Fatal("the last change has not arrived")
				}
				most := max(c.most, heap())
				t.Logf("%d MiB in use, %d before", most>>20, c.base>>20)
				if what == "many namespaces" {
					most -= min(most, maxHeld)
				}
				if most > c.base+uint64(allowed) {
					t.Errorf("%d MiB are in use, and %d MiB before %d objects", most>>20, c.base>>20, n)
				}
				if got := len(catalog.All()); got != n+1 {
					t.Errorf("%d are known, want %d", got, n+1)
				}
				runtime.KeepAlive(catalog)
				cancel()
				<-done
			})
		}
	}
}

// TestEntryMemory checks how much memory a small template takes that is not used, with its status, when it is read and
// later: many times less than in the API server, which ends long before.
func TestEntryMemory(t *testing.T) {
	n := size.Choose(t, 10_000, 100_000)
	status := `,"status":{"conditions":[{"type":"Ready","status":"False","reason":"TooMany","observedGeneration":1,"lastTransitionTime":"2026-01-01T00:00:00Z","message":"` + strings.Repeat("No pod gets this template. ", 8) + `"}]}`
	var all []*Catalog // so that none becomes garbage while another one is measured
	for _, twice := range []bool{false, true} {
		for _, withStatus := range []bool{false, true} {
			c := &crowd{t: t, n: n, object: func(i int) string { return template("noisy", i, "", "x", status) }, twice: twice, base: heap()}
			client, err := NewRESTClient(&rest.Config{Host: "https://api.example", Transport: c, QPS: -1})
			clitest.Must(t, err)
			last := make(chan struct{}, 1)
			catalog := NewCatalog(NewLimits(), client, withStatus, func(names []types.NamespacedName) {
				if !twice && len(names) >= n || twice && names[0].Namespace == "last" {
					last <- struct{}{}
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				catalog.Kinds(func(*Kind, error) {})[1].Run(ctx)
				close(done)
			}()
			select {
			case <-last:
			case <-time.After(5 * time.Minute):
				t.Fatal("the templates have not arrived")
			}
			now := heap()
			most := (max(c.most, now) - c.base) / uint64(n)
			each := (now - c.base) / uint64(n)
			t.Logf("changed: %t, with status: %t: %d bytes for each of %d templates, %d at most", twice, withStatus, each, n, most)
			if each > 550 || most > 700 {
				t.Errorf("each of %d templates takes %d bytes, %d at most", n, each, most)
			}
			all = append(all, catalog)
			cancel()
			<-done
		}
	}
	runtime.KeepAlive(all)
}

// TestStreamErrors checks that no part of a list counts as all of it.
func TestStreamErrors(t *testing.T) {
	one := template("a", 1, "", "x", "")
	for text, want := range map[string]string{
		`{"metadata":{"resourceVersion":"7","continue":"c"},"items":[` + one + `]}`: "",
		`{"items":null,"metadata":{"resourceVersion":"7"}}`:                         "",
		`{"metadata":{},"items":[` + one:                                            "EOF",
		`{"metadata":{},"items":[` + one[:40]:                                       "unexpected EOF",
		`{"metadata":{},"items":[` + one + `]`:                                      "EOF",
		`{"metadata":{},"items":{}}`:                                                "the items are {",
		`[]`:                                                                        "[ in place of {",
		``:                                                                          "EOF",
		`{"items":[1]}`:                                                             "number",
	} {
		transport := roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r, Body: io.NopCloser(strings.NewReader(text))}, nil
		})
		client, err := NewRESTClient(&rest.Config{Host: "https://api.example", Transport: transport, QPS: -1})
		clitest.Must(t, err)
		catalog := NewCatalog(NewLimits(), client, false, func([]types.NamespacedName) {})
		err = catalog.List(t.Context(), TemplateResources()[1], "")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	transport := roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("it is gone") })
	client, err := NewRESTClient(&rest.Config{Host: "https://api.example", Transport: transport, QPS: -1})
	clitest.Must(t, err)
	catalog := NewCatalog(NewLimits(), client, false, func([]types.NamespacedName) {})
	if err := catalog.List(t.Context(), TemplateResources()[1], ""); err == nil || !strings.Contains(err.Error(), "it is gone") {
		t.Error(err)
	}
}

// TestEventErrors checks that nothing but an event counts as one. An event without an object has not that of the one before.
func TestEventErrors(t *testing.T) {
	added := `{"type":"ADDED","object":` + template("a", 1, "", "x", "") + `}`
	for text, want := range map[string]string{
		added:                                         "EOF",
		added + `{"type":"ADDED"}`:                    "unexpected end",
		added + `{"type":"DELETED","object":1}`:       "number",
		`{"items":[],"metadata":{}}`:                  `"" is no type of an event`,
		`{"type":"CHANGED","object":{"metadata":{}}}`: `"CHANGED" is no type of an event`,
		`{"object":{"metadata":{}}}`:                  `"" is no type of an event`,
		`[]`:                                          "[ in place of {",
	} {
		catalog := NewCatalog(NewLimits(), nil, false, func([]types.NamespacedName) {})
		e := &events{stream: &Stream{Read: func(text []byte) (k8sruntime.Object, error) { return catalog.Read(text) }}, decoder: json.NewDecoder(strings.NewReader(text))}
		var err error
		for err == nil {
			_, _, err = e.Decode()
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
