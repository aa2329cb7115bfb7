// SPDX-License-Identifier: Apache-2.0

// Package testwebhook implements another mutating webhook, which runs before or after Pillion.
// It adds or removes values, and records its calls.
package testwebhook

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// Operation is one operation of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Mutate returns the changes to a pod, or nil if there are none.
type Mutate func(pod *corev1.Pod) []Operation

// Call is one request to a webhook.
type Call struct {
	// Object is the pod in the API server's request.
	Object    json.RawMessage
	Pod       *corev1.Pod
	Namespace string
}

// Server serves any number of webhooks, one per path.
type Server struct {
	http *httptest.Server
	ca   []byte

	mu       sync.Mutex
	webhooks map[string]Mutate
	calls    map[string][]Call
}

// NewServer starts a server with a certificate of the authority.
func NewServer(authority *cluster.Authority) (*Server, error) {
	s := &Server{ca: authority.PEM, webhooks: map[string]Mutate{}, calls: map[string][]Call{}}
	config, err := authority.TLS()
	if err != nil {
		return nil, err
	}
	s.http = httptest.NewUnstartedServer(s)
	s.http.TLS = config
	s.http.EnableHTTP2 = true // as API servers require for a loopback URL
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.http.StartTLS()
	return s, nil
}

// Close stops the server.
func (s *Server) Close() { s.http.Close() }

// Webhook describes how the API server calls a Mutate.
type Webhook struct {
	// Name is the name of the configuration. The API server calls configurations in the order of
	// their names.
	Name string
	// Namespaces are the labels of the namespaces whose pods are sent.
	Namespaces map[string]string
	// Reinvocation is unset if empty.
	Reinvocation admissionregistrationv1.ReinvocationPolicyType
	Mutate       Mutate
	// Change changes the entry further, unless it is nil.
	Change func(*admissionregistrationv1.MutatingWebhook)
}

// Install registers the webhook with the server and the API server, which calls it a moment
// later.
func (s *Server) Install(ctx context.Context, client kubernetes.Interface, w Webhook) error {
	s.mu.Lock()
	s.webhooks["/"+w.Name] = w.Mutate
	s.mu.Unlock()
	_, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().
		Create(ctx, s.configuration(w), metav1.CreateOptions{})
	return err
}

// Uninstall deletes the webhook configuration.
func (s *Server) Uninstall(ctx context.Context, client kubernetes.Interface, name string) error {
	return client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})
}

func (s *Server) configuration(w Webhook) *admissionregistrationv1.MutatingWebhookConfiguration {
	var (
		url    = s.http.URL + "/" + w.Name
		none   = admissionregistrationv1.SideEffectClassNone
		fail   = admissionregistrationv1.Fail
		policy *admissionregistrationv1.ReinvocationPolicyType
	)
	if w.Reinvocation != "" {
		policy = &w.Reinvocation
	}
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:         "test.e2e.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: s.ca},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: w.Namespaces},
			FailurePolicy:           &fail,
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
			ReinvocationPolicy:      policy,
		}},
	}
	if w.Change != nil {
		w.Change(&configuration.Webhooks[0])
	}
	return configuration
}

// Calls returns the calls for the pod. A pod with a generated name had no name when the
// webhook was called, so it shares its calls with others of the same generateName.
func (s *Server) Calls(name string, pod *corev1.Pod) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var calls []Call
	for _, c := range s.calls["/"+name] {
		if c.Namespace == pod.Namespace && (c.Pod.Name == pod.Name || c.Pod.Name == "" && c.Pod.GenerateName == pod.GenerateName) {
			calls = append(calls, c)
		}
	}
	return calls
}

// ServeHTTP answers an AdmissionReview.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	review := admissionv1.AdmissionReview{}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(review.Request.Object.Raw, pod); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	mutate, ok := s.record(r.URL.Path, review.Request, pod)
	if !ok {
		http.Error(w, fmt.Sprintf("no webhook at %s", r.URL.Path), http.StatusNotFound)
		return
	}
	review.Response = respond(review.Request, mutate(pod))
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func (s *Server) record(path string, request *admissionv1.AdmissionRequest, pod *corev1.Pod) (Mutate, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := Call{Object: request.Object.Raw, Pod: pod.DeepCopy(), Namespace: request.Namespace}
	s.calls[path] = append(s.calls[path], call)
	mutate, ok := s.webhooks[path]
	return mutate, ok
}

func respond(request *admissionv1.AdmissionRequest, patch []Operation) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	if len(patch) > 0 {
		jsonPatch := admissionv1.PatchTypeJSONPatch
		response.PatchType = &jsonPatch
		response.Patch, _ = json.Marshal(patch) // plain values, cannot fail
	}
	return response
}
