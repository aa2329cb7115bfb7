// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
)

// replica is an Authority whose steps a test takes by hand.
type replica struct {
	*Authority
	hand *handClock
	log  *bytes.Buffer
}

func newReplica(t *testing.T, client *fakeCluster, identity string) *replica {
	t.Helper()
	serving, _, _ := newTestServing()
	r := &replica{hand: &handClock{wallNow: noon()}, log: &bytes.Buffer{}}
	r.Authority = NewAuthority(AuthorityOptions{
		Client: client, Namespace: "pillion-system", Name: "pillion-tls", Configuration: "pillion", Identity: identity,
		Policy: testPolicy(), Serving: serving, Log: slog.New(slog.NewTextHandler(r.log, nil)),
	})
	r.clock, serving.clock = r.hand.clock(), r.hand.clock()
	r.Trust(Mutating, nil) // there are none yet
	r.Trust(Validating, nil)
	return r
}

// see gives the replica what the watches would report.
func (r *replica) see(t *testing.T, client *fakeCluster) *corev1.Secret {
	t.Helper()
	found, err := client.secrets().Get(t.Context(), "pillion-tls", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.observeSecret(nil)
		return nil
	}
	must(t, err)
	secret := &corev1.Secret{}
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, secret))
	r.observeSecret(secret)
	return secret
}

func (r *replica) mustStep(t *testing.T) {
	t.Helper()
	if _, err := r.performStep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// trustAll gives the webhooks of both configurations this caBundle.
func (r *replica) trustAll(bundle []byte) {
	r.Trust(Mutating, []CABundle{{"m1.pillion.dev", testHost, bundle}, {"m2.pillion.dev", testHost, bundle}})
	r.Trust(Validating, []CABundle{{"v1.pillion.dev", testHost, bundle}})
}

// TestAuthorityRace checks that if two replicas find no Secret, one creates it, and both serve its
// content.
func TestAuthorityRace(t *testing.T) {
	client := newFake(t)
	a, b := newReplica(t, client, "a"), newReplica(t, client, "b")
	a.see(t, client)
	b.see(t, client)
	a.mustStep(t)
	b.mustStep(t) // it does not know yet
	secret := a.see(t, client)
	b.see(t, client)
	m := parseMaterial(secret.Data)
	wantServed(t, a.Serving, m.leaf, "the first replica")
	wantServed(t, b.Serving, m.leaf, "the second replica")
	if !strings.Contains(a.log.String(), "Secret made") || strings.Contains(b.log.String(), "Secret made") {
		t.Errorf("who made it?\n%s\n%s", a.log, b.log)
	}
	if secret.Type != corev1.SecretTypeTLS || len(secret.Data) != 5 {
		t.Errorf("the Secret is of type %s with %d keys", secret.Type, len(secret.Data))
	}
}

// TestAuthorityLateWatch checks that a late watch does not make a replica create the Secret again,
// with another CA.
func TestAuthorityLateWatch(t *testing.T) {
	client := newFake(t)
	a := newReplica(t, client, "a")
	a.see(t, client)
	a.mustStep(t)
	now := func() string {
		secret, err := a.Client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(a.Namespace).Get(t.Context(), a.Name, metav1.GetOptions{})
		must(t, err)
		return fmt.Sprint(secret.Object["data"])
	}
	first := now()
	a.mustStep(t)
	if now() != first || strings.Count(a.log.String(), "Secret made") != 1 {
		t.Errorf("it is made again: %s", a.log)
	}
}

// TestAuthorityFollower checks that only the elected replica changes existing objects.
func TestAuthorityFollower(t *testing.T) {
	client := newFake(t)
	a := newReplica(t, client, "a")
	a.see(t, client)
	a.mustStep(t)
	a.see(t, client)
	a.trustAll(nil)
	a.hand.pass(80 * day)
	client.ClearActions()
	a.mustStep(t)
	if n := len(client.Actions()); n != 0 {
		t.Errorf("a replica that was not elected writes: %v", client.Actions())
	}
	a.setLeading(true)
	a.mustStep(t)
	if n := len(client.Actions()); n == 0 {
		t.Error("the elected one writes nothing")
	}
	a.setLeading(false)
	if a.Status().Leading {
		t.Error("still elected")
	}
}

// TestAuthorityApplies checks that the replica applies only the caBundle of every webhook, by the
// webhook's name.
func TestAuthorityApplies(t *testing.T) {
	client := newFake(t)
	a := newReplica(t, client, "a")
	a.setLeading(true)
	a.see(t, client)
	a.mustStep(t)
	secret := a.see(t, client)
	a.trustAll(nil)
	client.ClearActions()
	a.mustStep(t)
	a.mustStep(t) // before the watch reports it
	bundle := secret.Data[keyCABundle]
	want := map[string]string{
		"mutatingwebhookconfigurations":   `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"pillion"},"webhooks":[{"clientConfig":{"caBundle":B},"name":"m1.pillion.dev"},{"clientConfig":{"caBundle":B},"name":"m2.pillion.dev"}]}`,
		"validatingwebhookconfigurations": `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"pillion"},"webhooks":[{"clientConfig":{"caBundle":B},"name":"v1.pillion.dev"}]}`,
	}
	quoted, err := json.Marshal(bundle)
	must(t, err)
	for _, action := range client.Actions() {
		p, ok := action.(clienttesting.PatchActionImpl)
		if !ok || p.PatchType != types.ApplyPatchType || p.PatchOptions.FieldManager != "pillion-certs" || p.PatchOptions.Force == nil || !*p.PatchOptions.Force {
			t.Fatalf("%+v is not a forced apply by pillion-certs", action)
		}
		resource := p.GetResource().Resource
		if got := strings.TrimSpace(strings.ReplaceAll(string(p.Patch), string(quoted), "B")); got != want[resource] {
			t.Errorf("%s: applies\n%s, want\n%s", resource, got, want[resource])
		}
		delete(want, resource)
	}
	if len(want) != 0 || len(client.Actions()) != 2 {
		t.Errorf("%d writes, not applied: %v", len(client.Actions()), want)
	}

	a.trustAll(bundle)
	client.ClearActions()
	a.mustStep(t)
	if len(client.Actions()) != 0 {
		t.Errorf("applied again: %v", client.Actions())
	}
	a.Trust(Validating, []CABundle{{"v1.pillion.dev", testHost, nil}}) // the bundle was cleared
	a.mustStep(t)
	if len(client.Actions()) != 1 {
		t.Errorf("not repaired: %v", client.Actions())
	}
}

// TestAuthorityStaysCalm checks that Pillion does not overwrite the caBundle forever if another
// writer changes it too.
func TestAuthorityStaysCalm(t *testing.T) {
	client := newFake(t)
	a := newReplica(t, client, "a")
	a.setLeading(true)
	a.see(t, client)
	a.mustStep(t)
	a.see(t, client)
	client.ClearActions()
	for range 1000 {
		a.Trust(Validating, []CABundle{{"v1.pillion.dev", testHost, []byte("theirs")}})
		a.mustStep(t)
	}
	if n := len(client.Actions()); n < 5 || n > 50 {
		t.Errorf("%d writes", n)
	}
}

// TestAuthorityDeleted checks that after the Secret is deleted, the CA and the bundle stay the
// same.
func TestAuthorityDeleted(t *testing.T) {
	client := newFake(t)
	a := newReplica(t, client, "a")
	a.see(t, client)
	a.mustStep(t)
	before := parseMaterial(a.see(t, client).Data)
	client.delete(t)
	a.see(t, client)
	wantServed(t, a.Serving, before.leaf, "while it is gone")
	a.mustStep(t)
	after := parseMaterial(a.see(t, client).Data)
	if !after.ca.cert.Equal(before.ca.cert) || !bytes.Equal(after.caBundle(), before.caBundle()) || sameChain(after.leaf, before.leaf) {
		t.Error("not the same CA, or the same certificate")
	}
	wantServed(t, a.Serving, after.leaf, "made again")
}

// TestAuthorityYields checks that if API servers trust a CA that a replica does not know, the
// replica waits a moment, so that a replica with that CA can create the Secret again.
func TestAuthorityYields(t *testing.T) {
	client := newFake(t)
	a, b := newReplica(t, client, "a"), newReplica(t, client, "b")
	a.see(t, client)
	a.mustStep(t)
	before := parseMaterial(a.see(t, client).Data)
	client.delete(t)
	for _, r := range []*replica{b, a} {
		r.trustAll(before.caBundle())
		r.see(t, client)
		r.mustStep(t)
	}
	after := parseMaterial(b.see(t, client).Data)
	if !after.ca.cert.Equal(before.ca.cert) {
		t.Error("the CA is another one")
	}

	c := newReplica(t, client, "c") // the CA is in no caBundle any more
	client.delete(t)
	c.trustAll(before.caBundle())
	c.see(t, client)
	c.mustStep(t)
	if c.see(t, client) != nil {
		t.Fatal("it does not wait for those that know the CA")
	}
	c.hand.pass(propagation)
	c.mustStep(t)
	if secret := c.see(t, client); secret == nil || parseMaterial(secret.Data).ca.cert.Equal(before.ca.cert) {
		t.Error("it waits for ever")
	}
}

// TestAuthorityBundle checks that the bundle in the Secret is always the bundle that API servers
// should trust.
func TestAuthorityBundle(t *testing.T) {
	other := newTestCA(t, "other", noon().Add(-day), noon().Add(day)).pem
	expired := newTestCA(t, "expired", noon().Add(-2*day), noon().Add(-day)).pem
	for what, row := range map[string]struct{ before, after string }{
		"garbage":                {"x", "good"},
		"nothing":                {"", "good"},
		"another CA instead":     {"other", "other good"},
		"one that has expired":   {"expired good", "good"},
		"what is no certificate": {"x good", "good"},
	} {
		t.Run(what, func(t *testing.T) {
			client := newFake(t)
			a := newReplica(t, client, "a")
			a.setLeading(true)
			a.see(t, client)
			a.mustStep(t)
			secret := a.see(t, client)
			texts := map[string][]byte{"x": []byte("-----BEGIN X-----\n-----END X-----\n"), "good": secret.Data[keyCABundle], "other": other, "expired": expired}
			spell := func(words string) (text []byte) {
				for word := range strings.FieldsSeq(words) {
					text = append(text, texts[word]...)
				}
				return text
			}
			a.trustAll(spell("good"))
			secret.Data[keyCABundle] = spell(row.before)
			client.update(t, secret)
			a.see(t, client)
			client.ClearActions()
			a.mustStep(t)
			for _, action := range client.Actions() {
				if action.GetVerb() == "patch" {
					t.Error("API servers are told before it is put right")
				}
			}
			if got, want := a.see(t, client).Data[keyCABundle], spell(row.after); !bytes.Equal(got, want) {
				t.Errorf("it is\n%s, want\n%s", got, want)
			}
		})
	}
}

// TestAuthorityRotates follows a rotation of the CA, from the lost key to the new certificate.
func TestAuthorityRotates(t *testing.T) {
	client := newFake(t)
	a := newReplica(t, client, "a")
	a.setLeading(true)
	a.see(t, client)
	a.mustStep(t)
	secret := a.see(t, client)
	old := parseMaterial(secret.Data)
	a.trustAll(old.caBundle())
	secret.Data["theirs"] = []byte("kept")
	delete(secret.Data, keyCAKey)
	delete(secret.Data, keyCABundle)
	client.update(t, secret)
	a.see(t, client)
	a.mustStep(t)
	secret = a.see(t, client)
	m := parseMaterial(secret.Data)
	if m.ca == nil || m.ca.cert.Equal(old.ca.cert) || len(m.bundle) != 2 || !sameChain(m.leaf, old.leaf) || string(secret.Data["theirs"]) != "kept" {
		t.Fatalf("the first step: %d CAs", len(m.bundle))
	}
	client.ClearActions()
	a.mustStep(t)
	if n := len(client.Actions()); n != 2 {
		t.Fatalf("the bundle is not applied to both: %v", client.Actions())
	}
	a.Trust(Mutating, []CABundle{{"m1.pillion.dev", testHost, m.caBundle()}, {"m2.pillion.dev", testHost, m.caBundle()}})
	a.hand.pass(time.Hour)
	a.mustStep(t)
	if !sameChain(parseMaterial(a.see(t, client).Data).leaf, old.leaf) {
		t.Fatal("issued while only one configuration trusts it")
	}
	a.trustAll(m.caBundle())
	a.mustStep(t)
	if !sameChain(parseMaterial(a.see(t, client).Data).leaf, old.leaf) {
		t.Fatal("issued before API servers can have it")
	}
	a.hand.pass(propagation)
	a.mustStep(t)
	now := parseMaterial(a.see(t, client).Data)
	if now.leaf.Leaf.CheckSignatureFrom(m.ca.cert) != nil {
		t.Fatal("not issued by the new CA")
	}
	wantServed(t, a.Serving, now.leaf, "at the end")
}

// TestAuthorityFailures checks that a conflict with a faster writer is not a failure. Any other
// problem is a failure and is logged once.
func TestAuthorityFailures(t *testing.T) {
	client := newFake(t)
	secrets := schema.GroupResource{Resource: "secrets"}
	var answer error
	client.PrependReactor("*", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return answer != nil && action.GetVerb() != "get", nil, answer
	})
	a := newReplica(t, client, "a")
	a.setLeading(true)
	a.see(t, client)
	answer = apierrors.NewConflict(secrets, "pillion-tls", errors.New("faster"))
	a.mustStep(t)
	answer = apierrors.NewForbidden(secrets, "pillion-tls", errors.New("no right"))
	for range 3 {
		_, err := a.performStep(t.Context())
		if err == nil || !strings.Contains(err.Error(), "creating the Secret pillion-system/pillion-tls: ") {
			t.Errorf("the error is %v", err)
		}
		a.recordProblem(err)
	}
	if s := a.Status(); s.Failed != 3 || s.Problem == nil || strings.Count(a.log.String(), "cannot be updated") != 1 {
		t.Errorf("%+v\n%s", s, a.log)
	}
	answer = nil
	a.mustStep(t)
	a.recordProblem(nil)
	a.see(t, client)
	a.hand.pass(80 * day)
	a.trustAll(a.view.last.caBundle())
	a.mustStep(t) // starts to trust it
	a.hand.pass(propagation)
	answer = apierrors.NewConflict(secrets, "pillion-tls", errors.New("faster"))
	client.ClearActions()
	a.mustStep(t)
	if n := len(client.Actions()); n != 1 || a.Status().Problem != nil {
		t.Errorf("%d writes, problem %v", n, a.Status().Problem)
	}
}
