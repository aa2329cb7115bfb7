// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// API is a Kubernetes API with these objects by path. Access to nil objects is forbidden. A
// list for a label selector is at PATH?SELECTOR, or at PATH. A string is an answer that is no object.
type API map[string]any

// Failure is an answer with a code that is no object.
type Failure struct {
	Code int
	Text string
}

// Answer is in place of an object that depends on the request.
type Answer func(*http.Request) any

// ServeHTTP implements [http.Handler].
func (a API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	object, ok := a[r.URL.Path+"?"+r.URL.Query().Get("labelSelector")]
	if !ok {
		object, ok = a[r.URL.Path]
	}
	if answer, depends := object.(Answer); depends {
		object = answer(r)
	}
	switch plain := object.(type) {
	case string:
		_, _ = w.Write([]byte(plain))
		return
	case Failure:
		w.WriteHeader(plain.Code)
		_, _ = w.Write([]byte(plain.Text))
		return
	}
	const certManager = "/apis/cert-manager.io/v1"
	switch {
	case !ok && strings.HasPrefix(r.URL.Path, certManager+"/") && a[certManager] == nil:
		http.NotFound(w, r) // there is no such resource type
		return
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		object = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}
	case object == nil:
		w.WriteHeader(http.StatusForbidden)
		object = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
	}
	_ = json.NewEncoder(w).Encode(Named(object))
}

// Named returns the object with its kind, the name of its Go type. A map has its kind already.
func Named(object any) any {
	if _, ok := object.(map[string]any); ok {
		return object
	}
	text, _ := json.Marshal(object)
	var all map[string]any
	_ = json.Unmarshal(text, &all)
	kind := reflect.TypeOf(object).Name()
	all["kind"], all["apiVersion"] = kind, "v1"
	if items, ok := all["items"].([]any); ok {
		for _, item := range items {
			item.(map[string]any)["kind"], item.(map[string]any)["apiVersion"] = strings.TrimSuffix(kind, "List"), "v1"
		}
	}
	return all
}

// Kubeconfig serves an API during the test and returns the path of its kubeconfig.
func Kubeconfig(t *testing.T, api http.Handler) string {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	Write(t, path, `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],`+
		`"clusters":[{"name":"c","cluster":{"server":"`+server.URL+`"}}]}`)
	return path
}
