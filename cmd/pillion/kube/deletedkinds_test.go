// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
)

// definitions is an API server with the definition of a kind.
type definitions struct {
	mu     sync.Mutex
	code   int
	going  bool
	asked  int
	during func() // called while it is asked
}

func (d *definitions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if d.during != nil {
		d.during()
	}
	metadata := map[string]any{"name": "sidecartemplates.pillion.dev"}
	if d.going {
		metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sidecartemplates.pillion.dev" {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	if d.code != http.StatusOK {
		w.WriteHeader(d.code)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

func (d *definitions) set(code int, going bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.code, d.going = code, going
}

// TestKeep checks that templates that users delete are dropped, and that those whose kind is deleted stay, whether the API server
// reports that as single deletions or as an empty list, and also when the kind is there again, until users create them again.
func TestKeep(t *testing.T) {
	t.Parallel()
	api := &definitions{code: http.StatusOK}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	client, err := NewRESTClient(&rest.Config{Host: server.URL})
	clitest.Must(t, err)
	c := NewCatalog(NewLimits(), client, false, func([]types.NamespacedName) {})
	k := c.Kinds(func(*Kind, error) {})[1]
	lost := make(chan int, 100)
	k.Keep(func(n int) { lost <- n })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.store.keeper.run(ctx, c.dropDeleted) })
	t.Cleanup(func() { cancel(); running.Wait() })

	object := func(name, uid string) *Entry {
		e, err := c.Read(fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"shop","uid":%q,"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{}}`, name, uid))
		clitest.Must(t, err)
		return e
	}
	names := func() (all []string) {
		for _, e := range c.Entries() {
			all = append(all, e.Name+string(e.UID))
		}
		slices.Sort(all)
		return all
	}
	want := func(what string, all ...string) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for !slices.Equal(names(), all) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: there are %q, want %q", what, names(), all)
			}
			<-time.After(time.Millisecond)
		}
	}
	clitest.Must(t, k.store.Replace([]any{object("a", "1"), object("b", "1"), object("c", "1"), object("d", "1")}, ""))
	clitest.Must(t, k.store.Delete(object("a", "1")))
	want("a user deletes a template", "b1", "c1", "d1")
	clitest.Must(t, k.store.Replace([]any{object("b", "1"), object("c", "1")}, ""))
	want("a user has deleted a template while the watch was interrupted", "b1", "c1")

	api.set(http.StatusForbidden, false)
	clitest.Must(t, k.store.Delete(object("c", "1")))
	want("without the right to read the definition, a template is dropped", "b1")
	clitest.Must(t, k.store.Add(object("c", "2")))
	api.set(http.StatusInternalServerError, false)
	if err := k.store.Replace([]any{object("b", "1")}, ""); err == nil {
		t.Error("a list is used although the reason for a lack is unknown")
	}
	clitest.Must(t, k.store.Delete(object("c", "2")))
	clitest.Must(t, k.store.Add(object("c", "3"))) // while the reason is unknown
	api.set(http.StatusOK, false)
	want("a template that a user created again", "b1", "c3")

	api.set(http.StatusOK, true)
	clitest.Must(t, k.store.Delete(object("b", "1")))
	clitest.Must(t, k.store.Delete(object("c", "3")))
	if n := <-lost; n != 2 {
		t.Errorf("%d templates are kept", n)
	}
	want("the kind is being deleted", "b1", "c3")
	clitest.Must(t, k.store.Replace(nil, ""))
	api.set(http.StatusNotFound, false)
	clitest.Must(t, k.store.Replace(nil, ""))
	want("the kind is gone", "b1", "c3")
	api.set(http.StatusOK, false)
	clitest.Must(t, k.store.Replace([]any{object("e", "1")}, ""))
	want("the kind is there again", "b1", "c3", "e1")
	if n := c.Kept(); n != 2 {
		t.Errorf("%d templates are kept", n)
	}
	clitest.Must(t, k.store.Add(object("b", "2")))
	want("a template is created again", "b2", "c3", "e1")
	clitest.Must(t, k.store.Delete(object("b", "2")))
	want("and deleted", "c3", "e1")
}

// TestKeepAsksOnce checks that very many deletions at a time need few requests for the definition.
func TestKeepAsksOnce(t *testing.T) {
	t.Parallel()
	const n = 2000
	api := &definitions{code: http.StatusOK}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	client, err := NewRESTClient(&rest.Config{Host: server.URL})
	clitest.Must(t, err)
	dropped := make(chan struct{}, n)
	k := newKeeper(client, "sidecartemplates.pillion.dev", nil)
	all := make([]Entry, n)
	api.during = func() { // the rest comes during the first request
		if api.asked == 1 {
			for i := range n - 1 {
				k.noteDeletion(&all[i])
			}
		}
	}
	k.noteDeletion(&all[0])
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.run(ctx, func(deletedTemplate) { dropped <- struct{}{} }) })
	for range n {
		<-dropped
	}
	cancel()
	running.Wait()
	if api.asked != 2 {
		t.Errorf("%d deletions need %d requests", n, api.asked)
	}
}
