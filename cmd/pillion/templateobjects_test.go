// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/http"
	"strings"
	"testing"
)

const templateObjects = "/apis/pillion.dev/v1alpha1/clustersidecartemplates"

// templateList is a list with a template.
func templateList(name string) map[string]any {
	return map[string]any{
		"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplateList", "metadata": map[string]any{"resourceVersion": "1"},
		"items": []any{map[string]any{
			"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "metadata": map[string]any{"name": name, "uid": "1", "generation": 1},
			"spec": map[string]any{"default": true, "pod": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/" + name: "here"}}}},
		}},
	}
}

// TestServeTemplateObjects checks that serve reports why it has no templates, is not ready, accepts no connection
// and keeps trying while the API server does not send them. A replica that is not ready may be called: its container
// was started again, and its endpoint is not gone yet.
func TestServeTemplateObjects(t *testing.T) {
	t.Parallel()
	api := newPagedAPI(0)
	api.forbids[templateObjects] = 3
	api.objects[templateObjects] = templateList("one")
	address, admin := freeAddress(t), freeAddress(t)
	s := launchServe(t, "--kubeconfig", api.kubeconfig(t), "--tls-self-signed", "--listen", address, "--admin-listen", admin)
	s.admin = "http://" + admin
	s.ready(t, http.StatusServiceUnavailable, "[-]templates failed: the clustersidecartemplates are not loaded yet: ")
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); err == nil {
		if _, body := s.get(t, s.admin+"/readyz?verbose"); strings.Contains(body, "[-]templates") {
			t.Error("a connection is accepted before the templates are loaded")
		}
		conn.Close()
	}
	if line := s.logged(t, "the templates cannot be read, trying again"); line["resource"] != "clustersidecartemplates" {
		t.Errorf("logged %v", line)
	}
	until(t, "the templates have come", func() (bool, string) {
		_, body := s.get(t, s.admin+"/readyz?verbose")
		return strings.Contains(body, "[+]templates ok: revision ") && strings.Contains(body, ", 1 in use\n"), body
	})
}
