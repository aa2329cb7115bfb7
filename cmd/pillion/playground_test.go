// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/templates"
)

// TestPlaygroundPage checks that only requests with the token, for this host, get the page.
func TestPlaygroundPage(t *testing.T) {
	p := newPage("127.0.0.1:1234", fstest.MapFS{"index.html": {Data: []byte("page")}, "examples.json": {Data: []byte("theirs")}}, []byte("mine"))
	for _, c := range []struct {
		method, host, path string
		code               int
		body               string
	}{
		{"GET", p.host, "/" + p.token + "/", http.StatusOK, "page"},
		{"GET", p.host, "/" + p.token + "/examples.json", http.StatusOK, "mine"},
		{"GET", p.host, "/", http.StatusNotFound, ""},
		{"GET", p.host, "/index.html", http.StatusNotFound, ""},
		{"GET", p.host, "/" + strings.Repeat("A", len(p.token)) + "/", http.StatusNotFound, ""},
		{"GET", p.host, "/" + p.token + "/../../etc/passwd", http.StatusNotFound, ""},
		{"GET", "evil.example:1234", "/" + p.token + "/", http.StatusNotFound, ""},
		{"POST", p.host, "/" + p.token + "/", http.StatusMethodNotAllowed, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, "/", nil)
		r.Host, r.URL.Path = c.host, c.path
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != c.code || c.body != "" && w.Body.String() != c.body {
			t.Errorf("%s %s%s: %d %s", c.method, c.host, c.path, w.Code, w.Body)
		}
		if w.Header().Get("Referrer-Policy") != "no-referrer" {
			t.Error("the token may leak in the header Referer")
		}
	}
	if other := newPage("x", nil, nil); other.token == p.token || len(p.token) < 26 {
		t.Errorf("the token %s is not random", p.token)
	}
}

// TestPlaygroundTemplates checks that the page begins with the templates of --templates.
func TestPlaygroundTemplates(t *testing.T) {
	set, err := cli.LoadTemplates(nil, []string{"../../templates/library", "../../examples/templates"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := textOfTemplates(strings.NewReader(""), []string{"../../templates/library", "../../examples/templates/log-agent.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := templates.Compile(templates.File{Path: "x", Data: []byte(text)})
	if err != nil || again.Revision != set.Revision {
		t.Errorf("the files give the revision %v, not %s: %v", again, set.Revision, err)
	}
	file := t.TempDir() + "/examples.json"
	must(t, os.WriteFile(file, []byte(`[{"name": "a", "manifest": "m", "namespaceLabels": "l"}]`), 0o600))
	data, err := withOwn(file, "mine")
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]string
	must(t, json.Unmarshal(data, &all))
	if len(all) != 2 || all[0]["templates"] != "mine" || all[0]["manifest"] != "m" {
		t.Errorf("the menu has %v", all)
	}
}

// TestPlaygroundCluster checks that the page begins with the templates of a cluster.
func TestPlaygroundCluster(t *testing.T) {
	o, cmd := &playgroundOptions{}, &cobra.Command{}
	o.cluster.Flags(cmd)
	file, err := os.ReadFile("../../examples/templates/log-agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	api := clitest.API{templateObjects: templateList("one"), "/api/v1/namespaces/pillion-system/configmaps/pillion-templates": corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "pillion-templates"}, Data: map[string]string{"a.yaml": string(file)},
	}}
	must(t, cmd.Flags().Set("kubeconfig", clitest.Kubeconfig(t, api)))
	text, err := o.ownTemplates(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	set, err := templates.Compile(templates.File{Path: "x", Data: []byte(text)})
	if err != nil || len(set.Templates) != 2 || set.Templates[0].Name != "log-agent" || set.Templates[1].Name != "one" {
		t.Errorf("the templates are %s: %v", text, err)
	}
	api[templateObjects] = nil
	must(t, cmd.Flags().Set("kubeconfig", clitest.Kubeconfig(t, api)))
	if text, err := o.ownTemplates(t.Context(), nil); err == nil {
		t.Errorf("without the right to read templates, these are %q", text)
	}
}
