// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"
)

// TestAnswersAtURL checks how explain and status find out whether a server answers at a URL.
func TestAnswersAtURL(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{
		{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://" + listener.Addr().String() + "/mutate")}},
	}}
	answers := func(apiServer string) (problem, unsure string) {
		l := &podLister{Client: &Client{config: &rest.Config{Host: apiServer}}}
		return l.checkAnswers(t.Context(), own)
	}
	if problem, unsure := answers("https://127.0.0.1:6443"); problem+unsure != "" {
		t.Errorf("a server listens: %q %q", problem, unsure)
	}
	if problem, unsure := answers("https://cluster.example"); problem != "" || !strings.Contains(unsure, "the API server's own machine") {
		t.Errorf("a loopback address of another machine: %q %q", problem, unsure)
	}
	listener.Close()
	if problem, unsure := answers("https://127.0.0.1:6443"); !strings.Contains(problem, "Nothing listens at") || unsure != "" {
		t.Errorf("no server listens: %q %q", problem, unsure)
	}
}
