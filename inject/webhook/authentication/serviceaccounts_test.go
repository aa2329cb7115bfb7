// SPDX-License-Identifier: Apache-2.0

package authentication_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/pillion-dev/pillion/inject/webhook/authentication"
)

func accounts(t testing.TB, signer issuer) *authentication.ServiceAccounts {
	t.Helper()
	return &authentication.ServiceAccounts{
		Issuer: "https://issuer.example", Audiences: []string{"pillion", "https://pillion.pillion-system.svc:443/mutate"},
		Subjects: []string{"system:serviceaccount:shop:apiserver"}, Configuration: "pillion",
		Keys: signer.keys(t), Missed: func() {},
	}
}

// TestServiceAccounts checks which tokens of ServiceAccounts are accepted, and the reason for the others.
func TestServiceAccounts(t *testing.T) {
	signer := issuer{must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048)), "one"}
	guard := newGuard(true, &authentication.Credentials{ServiceAccounts: accounts(t, signer)})
	for name, c := range map[string]struct {
		claims map[string]any
		want   string
	}{
		"right":                    {nil, "service_account"},
		"one of several audiences": {map[string]any{"aud": []string{"x", "pillion"}}, "service_account"},
		"the audience as a string": {map[string]any{"aud": "pillion"}, "service_account"},
		"another audience":         {map[string]any{"aud": []string{"https://kubernetes.default.svc"}}, "wrong_audience"},
		"no audience":              {map[string]any{"aud": nil}, "wrong_audience"},
		"another issuer":           {map[string]any{"iss": "https://issuer.example/"}, "wrong_issuer"},
		"no issuer":                {map[string]any{"iss": nil}, "wrong_issuer"},
		"another subject":          {map[string]any{"sub": "system:serviceaccount:shop:stranger"}, "wrong_subject"},
		"no subject":               {map[string]any{"sub": nil}, "wrong_subject"},
		"expired":                  {map[string]any{"exp": today.Add(-31 * time.Second).Unix()}, "expired_token"},
		"expired just now":         {map[string]any{"exp": today.Add(-29 * time.Second).Unix()}, "service_account"},
		"without an end":           {map[string]any{"exp": nil}, "expired_token"},
		"not yet":                  {map[string]any{"nbf": today.Add(31 * time.Second).Unix()}, "expired_token"},
		"from the future":          {map[string]any{"iat": today.Add(31 * time.Second).Unix()}, "expired_token"},
		"soon":                     {map[string]any{"nbf": today.Add(29 * time.Second).Unix()}, "service_account"},
		"claims of another shape":  {map[string]any{"kubernetes.io": 1}, "wrong_signature"},
	} {
		t.Run(name, func(t *testing.T) {
			token := signer.sign(t, jose.RS256, claimsOf(c.claims))
			wantWay(t, guard, request(t, nil, "Bearer "+token), c.want)
		})
	}
}

// TestSignatures checks that a signature must be by one of the issuer's keys, with an asymmetric
// algorithm.
func TestSignatures(t *testing.T) {
	signer := issuer{newKey(t), "one"}
	set := accounts(t, signer)
	missed := 0
	set.Missed = func() { missed++ }
	credentials := tokens(t, "static")
	credentials.ServiceAccounts = set
	guard := newGuard(true, credentials)
	right := signer.sign(t, jose.ES256, claimsOf(nil))
	parts := strings.Split(right, ".")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	other := issuer{newKey(t), "one"}
	public := must[[]byte](t)(x509.MarshalPKIXPublicKey(signer.key.Public()))
	shared := must[jose.Signer](t)(jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: public, KeyID: "one"}}, nil))
	hmac := must[string](t)(must[*jose.JSONWebSignature](t)(shared.Sign(must[[]byte](t)(json.Marshal(claimsOf(nil))))).CompactSerialize())
	unnamed := issuer{signer.key, ""}
	for name, c := range map[string]struct{ token, want string }{
		"right":            {right, "service_account"},
		"a static token":   {"static", "token"},
		"none":             {encode(`{"alg":"none","kid":"one"}`) + "." + parts[1] + ".", "wrong_token"},
		"none, signed":     {encode(`{"alg":"none","kid":"one"}`) + "." + parts[1] + "." + parts[2], "wrong_token"},
		"a shared key":     {hmac, "wrong_token"},
		"another key":      {other.sign(t, jose.ES256, claimsOf(nil)), "wrong_signature"},
		"another alg":      {encode(`{"alg":"RS256","kid":"one"}`) + "." + parts[1] + "." + parts[2], "wrong_signature"},
		"other claims":     {parts[0] + "." + encode(`{"iss":"https://issuer.example"}`) + "." + parts[2], "wrong_signature"},
		"cut":              {parts[0] + "." + parts[1], "wrong_token"},
		"no signature":     {parts[0] + "." + parts[1] + ".", "wrong_signature"},
		"its own key":      {encode(`{"alg":"ES256","kid":"x","jwk":{"kty":"EC"}}`) + "." + parts[1] + "." + parts[2], "wrong_token"},
		"an unknown crit":  {encode(`{"alg":"ES256","kid":"one","crit":["x"],"x":1}`) + "." + parts[1] + "." + parts[2], "wrong_signature"},
		"no id of the key": {unnamed.sign(t, jose.ES256, claimsOf(nil)), "unknown_key"},
		"another id":       {issuer{signer.key, "two"}.sign(t, jose.ES256, claimsOf(nil)), "unknown_key"},
	} {
		t.Run(name, func(t *testing.T) {
			before := missed
			rejected := wantWay(t, guard, request(t, nil, "Bearer "+c.token), c.want)
			if (missed > before) != (c.want == "unknown_key") {
				t.Error("it is missed what is there, or not missed what is not")
			}
			if rejected != nil && strings.Contains(rejected.Sentence, parts[2]) {
				t.Errorf("the sentence holds the credential: %s", rejected.Sentence)
			}
		})
	}
}

// TestKeyRotation checks that a new key of the issuer is valid once it is published,
// and the old key until it is removed.
func TestKeyRotation(t *testing.T) {
	one, two := issuer{newKey(t), "one"}, issuer{newKey(t), "two"}
	set := accounts(t, one)
	credentials := &authentication.Credentials{ServiceAccounts: set}
	guard := newGuard(true, credentials)
	with := func(keys *authentication.Keys) {
		next := *set
		next.Keys = keys
		guard.Use(&authentication.Credentials{ServiceAccounts: &next})
	}
	want := func(first, second string) {
		t.Helper()
		wantWay(t, guard, request(t, nil, "Bearer "+one.sign(t, jose.ES256, claimsOf(nil))), first)
		wantWay(t, guard, request(t, nil, "Bearer "+two.sign(t, jose.ES256, claimsOf(nil))), second)
	}
	want("service_account", "unknown_key")
	both := two.set(t, jose.JSONWebKey{Key: one.key.Public(), KeyID: "one"}, jose.JSONWebKey{Key: []byte("a shared key"), KeyID: "two"})
	with(must[*authentication.Keys](t)(authentication.ParseKeys(both)))
	want("service_account", "service_account")
	with(two.keys(t))
	want("unknown_key", "service_account")
	with(nil)
	want("unknown_key", "unknown_key")
}

// TestBinding follows the verification of KEP-6060.
func TestBinding(t *testing.T) {
	signer := issuer{newKey(t), "one"}
	listed, unlisted := accounts(t, signer), accounts(t, signer)
	unlisted.Subjects = nil
	bound := func(edits map[string]any) map[string]any {
		kubernetes := map[string]any{
			"namespace":                    "shop",
			"mutatingwebhookconfiguration": map[string]any{"name": "pillion", "uid": "1"},
			"attestations":                 map[string]any{"admissionReviewAPIGroups": []string{"*"}},
		}
		maps.Copy(kubernetes, edits)
		return map[string]any{"kubernetes.io": kubernetes, "aud": []string{"pillion"}}
	}
	named := func(name string) map[string]any { return map[string]any{"name": name, "uid": "1"} }
	groups := func(all ...string) map[string]any {
		return map[string]any{"attestations": map[string]any{"admissionReviewAPIGroups": all}}
	}
	stranger := bound(nil)
	stranger["sub"] = "system:serviceaccount:kube-system:apiserver"
	two := bound(nil)
	two["aud"] = []string{"pillion", "x"}
	for name, c := range map[string]struct {
		claims            map[string]any
		webhook           authentication.Webhook
		listed, unlisted_ string
	}{
		"right":                 {bound(nil), authentication.Mutating, "", ""},
		"another's subject":     {stranger, authentication.Mutating, "wrong_subject", ""},
		"not bound":             {nil, authentication.Mutating, "", "wrong_subject"},
		"the other webhook":     {bound(nil), authentication.Validating, "wrong_binding", "wrong_binding"},
		"another configuration": {bound(map[string]any{"mutatingwebhookconfiguration": named("other")}), authentication.Mutating, "wrong_binding", "wrong_binding"},
		"both":                  {bound(map[string]any{"validatingwebhookconfiguration": named("pillion")}), authentication.Mutating, "wrong_binding", "wrong_binding"},
		"another group":         {bound(groups("apps")), authentication.Mutating, "wrong_binding", "wrong_binding"},
		"the core group":        {bound(groups("")), authentication.Mutating, "wrong_binding", "wrong_binding"},
		"no group":              {bound(groups()), authentication.Mutating, "wrong_binding", "wrong_binding"},
		"no attestation":        {bound(map[string]any{"attestations": nil}), authentication.Mutating, "wrong_binding", "wrong_binding"},
		"two audiences":         {two, authentication.Mutating, "wrong_binding", "wrong_binding"},
		"validating": {bound(map[string]any{
			"mutatingwebhookconfiguration": nil, "validatingwebhookconfiguration": named("pillion"),
		}), authentication.Validating, "", ""},
		"advising": {bound(map[string]any{
			"mutatingwebhookconfiguration": nil, "validatingwebhookconfiguration": named("pillion-advise"),
		}), authentication.Advising, "", ""},
		"advising by another's": {bound(map[string]any{
			"mutatingwebhookconfiguration": nil, "validatingwebhookconfiguration": named("pillion"),
		}), authentication.Advising, "wrong_binding", "wrong_binding"},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(t, nil, "Bearer "+signer.sign(t, jose.ES256, claimsOf(c.claims)))
			for _, s := range []struct {
				set  *authentication.ServiceAccounts
				want string
			}{{listed, c.listed}, {unlisted, c.unlisted_}} {
				_, rejected := newGuard(true, &authentication.Credentials{ServiceAccounts: s.set}).Check(r, c.webhook)
				if got := reasonOf(rejected); got != s.want {
					t.Errorf("with the subjects %q rejected for %q, want %q", s.set.Subjects, got, s.want)
				}
			}
		})
	}
}

func reasonOf(rejected *authentication.Rejection) string {
	if rejected == nil {
		return ""
	}
	return string(rejected.Reason)
}

func BenchmarkCheck(b *testing.B) {
	ca, signer := newAuthority(b, nil), issuer{newKey(b), "one"}
	rsaSigner := issuer{must[*rsa.PrivateKey](b)(rsa.GenerateKey(rand.Reader, 2048)), "two"}
	credentials := tokens(b, "token")
	credentials.Certificates = must[*authentication.Certificates](b)(authentication.ParseCertificates(ca.pem, []string{"apiserver"}))
	credentials.ServiceAccounts = accounts(b, signer)
	keys := slices.Concat(rsaSigner.set(b, jose.JSONWebKey{Key: signer.key.Public(), KeyID: "one"}))
	credentials.ServiceAccounts.Keys = must[*authentication.Keys](b)(authentication.ParseKeys(keys))
	guard := newGuard(true, credentials)
	for name, r := range map[string]struct {
		chain  []*x509.Certificate
		header string
	}{
		"certificate":           {[]*x509.Certificate{ca.client(b, "apiserver")}, ""},
		"token":                 {nil, "Bearer token"},
		"service account ES256": {nil, "Bearer " + signer.sign(b, jose.ES256, claimsOf(nil))},
		"service account RS256": {nil, "Bearer " + rsaSigner.sign(b, jose.RS256, claimsOf(nil))},
	} {
		b.Run(name, func(b *testing.B) {
			req := request(b, r.chain, r.header)
			if r.header == "" {
				req = request(b, r.chain)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, rejected := guard.Check(req, authentication.Mutating); rejected != nil {
					b.Fatal(rejected.Sentence)
				}
			}
		})
	}
}
