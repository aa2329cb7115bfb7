// SPDX-License-Identifier: Apache-2.0

package main

import (
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

// TestServeTemplateObjects checks that serve reports why it has no templates, is not ready and keeps trying while
// the API server does not send them.
func TestServeTemplateObjects(t *testing.T) {
	t.Parallel()
	api := newPagedAPI(0)
	api.forbids[templateObjects] = 3
	api.objects[templateObjects] = templateList("one")
	s := startServe(t, "--kubeconfig", api.kubeconfig(t), "--tls-self-signed")
	s.ready(t, http.StatusServiceUnavailable, "[-]templates failed: the clustersidecartemplates are not loaded yet: ")
	if line := s.logged(t, "the templates cannot be read, trying again"); line["resource"] != "clustersidecartemplates" {
		t.Errorf("logged %v", line)
	}
	until(t, "the templates have come", func() (bool, string) {
		_, body := s.get(t, s.admin+"/readyz?verbose")
		return strings.Contains(body, "[+]templates ok: revision ") && strings.Contains(body, ", 1 in use\n"), body
	})
}
