// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// kubeAPI is as much of a Kubernetes API as has namespaces.
type kubeAPI struct {
	release chan struct{}   // closed when it may answer
	events  chan watchEvent // of the watch, which one without a type ends
	forbids atomic.Bool     // from reporting more
}

type watchEvent struct {
	Type   string         `json:"type"`
	Object map[string]any `json:"object"`
}

func namespaceObject(name, rv string, labels, annotations map[string]string) map[string]any {
	return map[string]any{
		"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
		"metadata": map[string]any{"name": name, "resourceVersion": rv, "labels": labels, "annotations": annotations},
	}
}

func (k *kubeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/apis/pillion.dev/") {
		http.NotFound(w, r) // the kinds of templates are not installed
		return
	}
	<-k.release
	if k.forbids.Load() {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	first := namespaceObject("shop", "1", nil, nil)
	q := r.URL.Query()
	if q.Get("watch") == "" {
		_ = encoder.Encode(map[string]any{
			"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
			"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{first},
		})
		return
	}
	if q.Get("sendInitialEvents") == "true" {
		_ = encoder.Encode(watchEvent{"ADDED", first})
		_ = encoder.Encode(watchEvent{"BOOKMARK", namespaceObject("", "1", nil, map[string]string{"k8s.io/initial-events-end": "true"})})
	}
	for {
		w.(http.Flusher).Flush()
		select {
		case e := <-k.events:
			if e.Type == "" {
				return
			}
			_ = encoder.Encode(e)
		case <-r.Context().Done():
			return
		}
	}
}

func TestServeNamespaces(t *testing.T) {
	t.Parallel()
	api := &kubeAPI{release: make(chan struct{}), events: make(chan watchEvent)}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	server := &http.Server{Handler: api, ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, kubeconfig, "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x}}]\n"+
		"clusters: [{name: x, cluster: {server: 'http://"+listener.Addr().String()+"'}}]\n")
	s := startServe(t, "--kubeconfig", kubeconfig, "--tls-self-signed", "--templates", "testdata/templates")

	s.ready(t, http.StatusServiceUnavailable, "[-]namespaces failed: ")
	close(api.release)
	s.ready(t, 200, "[+]namespaces ok: 1 known")
	if r := s.mutate(t); !bytes.Contains(r.Patch, []byte("--level=info")) {
		t.Errorf("the API server's call is not taken for the opt-in: %v", r.AuditAnnotations)
	}
	api.events <- watchEvent{"DELETED", namespaceObject("shop", "2", nil, nil)}
	until(t, "a namespace that is not known is asked for again", func() (bool, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhook+"/mutate?timeout=10s", strings.NewReader(reviewBody()))
		must(t, err)
		r.Header.Set("Content-Type", "application/json")
		response, err := s.client.Do(r)
		must(t, err)
		response.Body.Close()
		return response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") == "1" && response.Close, response.Status
	})
	api.events <- watchEvent{"ADDED", namespaceObject("shop", "3",
		map[string]string{"pillion.dev/inject": "enabled"}, map[string]string{"log-agent.pillion.dev/level": "debug"})}
	until(t, "the namespace's label and annotation count", func() (bool, string) {
		r := s.mutate(t)
		return bytes.Contains(r.Patch, []byte("--level=debug")), fmt.Sprint(r.AuditAnnotations)
	})
	api.forbids.Store(true)
	api.events <- watchEvent{}
	until(t, "it is told that there is no news", func() (bool, string) {
		status, body := s.get(t, s.admin+"/readyz?verbose")
		return status == http.StatusOK && strings.Contains(body, "[+]namespaces ok: 1 known, and changes cannot be read: "), body
	})
	api.forbids.Store(false)
	s.ready(t, http.StatusOK, "[+]namespaces ok: 1 known\n")
	if code := s.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
