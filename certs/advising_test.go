// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"errors"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// TestServingAdvising checks that a new pair waits for the webhook that only warns, as it does for
// the others, but only for a short time.
func TestServingAdvising(t *testing.T) {
	w := newWorld(t)
	advising := func(s *Serving, bundle []byte) {
		s.Trust(Advising, []CABundle{{Webhook: "advising", Host: testHost, Bundle: bundle}})
	}
	s, hand, _ := newTestServing()
	s.Offer(w.first)
	trustBoth(s, w.oldCA)
	advising(s, w.oldCA.pem)
	s.Offer(w.second)
	hand.pass(time.Hour) // this does not count, because the others do not verify it either
	trustBoth(s, w.oldCA, w.newCA)
	hand.pass(propagation)
	s.tick()
	wantServed(t, s, w.first, "while one can still come")
	if p := s.Status().Pending; p == nil || p.Code != "not_trusted" || p.Why != "the caBundle of advising does not verify it" {
		t.Errorf("pending is %+v", p)
	}
	hand.pass(patience)
	s.tick()
	wantServed(t, s, w.second, "rather than to wait for ever")
	if detail, _ := s.Status().Detail(); !strings.Contains(detail, "the caBundle of advising does not verify the certificate") {
		t.Errorf("the detail is %q", detail)
	}

	s, hand, _ = newTestServing()
	s.Offer(w.first)
	trustBoth(s, w.oldCA, w.newCA)
	advising(s, w.oldCA.pem)
	hand.pass(time.Hour)
	s.Offer(w.second)
	advising(s, append(w.oldCA.pem, w.newCA.pem...))
	wantServed(t, s, w.first, "right after the caBundle")
	hand.pass(propagation)
	s.tick()
	wantServed(t, s, w.second, "once all trust it")

	s, _, _ = newTestServing()
	s.Offer(w.first)
	trustBoth(s, w.oldCA)
	advising(s, nil)
	s.Offer(w.another)
	wantServed(t, s, w.another, "an empty caBundle holds nothing up")
}

// TestAuthorityAdvising checks that the third configuration gets the caBundle as soon as it exists.
// If another writer fights for it, or Pillion has no right to change it, the other configurations
// are unaffected, and a rotation is delayed only briefly.
func TestAuthorityAdvising(t *testing.T) {
	client := newFake(t)
	a := newReplica(t, client, "a")
	a.setLeading(true)
	a.see(t, client)
	a.mustStep(t)
	secret := a.see(t, client)
	old := parseMaterial(secret.Data)
	a.trustAll(old.caBundle())
	a.Trust(Advising, nil)
	client.ClearActions()
	a.mustStep(t)
	if n := len(client.Actions()); n != 0 {
		t.Errorf("there is none, and it is written: %v", client.Actions())
	}
	var applied string
	client.PrependReactor("patch", "validatingwebhookconfigurations", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, _ := action.(clienttesting.PatchAction)
		applied = patch.GetName()
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "validatingwebhookconfigurations"}, applied, errors.New("no right"))
		return applied == "pillion-advise", nil, forbidden
	})
	for range 100 {
		a.Trust(Advising, []CABundle{{"a1.pillion.dev", testHost, []byte("theirs")}})
		if _, err := a.performStep(t.Context()); err != nil && !strings.Contains(err.Error(), "of the ValidatingWebhookConfiguration pillion-advise: ") {
			t.Fatal(err)
		}
	}
	a.trustAll(nil)
	_, _ = a.performStep(t.Context())
	if n := len(client.Actions()); n < 12 || n > 50 || applied != "pillion" {
		t.Errorf("%d writes, the last one of %s", n, applied)
	}

	delete(secret.Data, keyCAKey)
	client.update(t, secret)
	a.see(t, client)
	_, _ = a.performStep(t.Context())
	a.trustAll(parseMaterial(a.see(t, client).Data).caBundle())
	for after, issued := range map[time.Duration]bool{0: false, propagation: false, patience: true} {
		a.agreedOn, a.agreed = nil, 0
		v := a.snapshotView()
		a.isCATrusted(v.held.ca.cert, v)
		a.hand.pass(after)
		if got := a.isCATrusted(v.held.ca.cert, v); got != issued {
			t.Errorf("after %s it issues: %t", after, got)
		}
	}
	a.Trust(Advising, []CABundle{{"a1.pillion.dev", testHost, a.snapshotView().held.caBundle()}})
	v := a.snapshotView()
	a.agreedOn = nil
	a.isCATrusted(v.held.ca.cert, v)
	a.hand.pass(propagation)
	if !a.isCATrusted(v.held.ca.cert, v) {
		t.Error("all trust it, and it does not issue")
	}
}

// TestCABundleOf checks for which host a webhook needs a certificate: that of its Service, or that of its URL.
func TestCABundleOf(t *testing.T) {
	service := &admissionregistrationv1.ServiceReference{Namespace: "pillion-system", Name: "pillion"}
	for _, row := range []struct {
		config admissionregistrationv1.WebhookClientConfig
		want   string
	}{
		{admissionregistrationv1.WebhookClientConfig{Service: service}, testHost},
		{admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:8443/mutate")}, "127.0.0.1"},
		{admissionregistrationv1.WebhookClientConfig{URL: new("https://[::1]:8443/mutate")}, "::1"},
		{admissionregistrationv1.WebhookClientConfig{URL: new("https://example.com/mutate")}, "example.com"},
	} {
		if got := CABundleOf("a", row.config); got.Host != row.want {
			t.Errorf("%q, want %q", got.Host, row.want)
		}
	}
}
