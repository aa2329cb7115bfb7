// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/manifests"
)

// TestServeConfigMaps checks that serve reports why it has no ConfigMaps, is not ready and keeps trying while
// the API server does not send them.
func TestServeConfigMaps(t *testing.T) {
	t.Parallel()
	api := newPagedAPI(0)
	const path = "/api/v1/namespaces/pillion-system/configmaps?" + manifests.TemplateSelector
	api.forbids[path] = 3
	m := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "pillion-system"}, Data: map[string]string{"one.yaml": template("one")}}
	api.objects[path] = corev1.ConfigMapList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.ConfigMap{m},
	}
	s := startServe(t, "--kubeconfig", api.kubeconfig(t), "--tls-self-signed", "--template-configmaps", manifests.TemplateSelector)
	s.ready(t, http.StatusServiceUnavailable, "[-]templates failed: the ConfigMaps of templates are not loaded yet: ")
	if line := s.logged(t, "the ConfigMaps of templates cannot be read, trying again"); line["namespace"] != "pillion-system" || line["selector"] != manifests.TemplateSelector {
		t.Errorf("logged %v", line)
	}
	until(t, "the ConfigMaps have come", func() (bool, string) {
		_, body := s.get(t, s.admin+"/readyz?verbose")
		return strings.Contains(body, "[+]templates ok: revision ") && strings.Contains(body, ", 1 in use\n"), body
	})
}
