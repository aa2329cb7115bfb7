// SPDX-License-Identifier: Apache-2.0

package authentication_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/pillion-dev/pillion/inject/webhook/authentication"
)

// today is when these tests take place.
var today = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// authority is a CA.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	return must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
}

// newAuthority returns a CA that the issuer signs, or a self-signed one if the issuer is nil.
func newAuthority(t testing.TB, issuer *authority) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, NotBefore: today.AddDate(-1, 0, 0), NotAfter: today.AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	parent, key := template, a.key
	if issuer != nil {
		parent, key = issuer.certificate, issuer.key
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, parent, a.key.Public(), key))
	a.certificate = must[*x509.Certificate](t)(x509.ParseCertificate(der))
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// client returns a certificate for clients, after edits.
func (a *authority) client(t testing.TB, name string, edits ...func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: today.AddDate(0, -1, 0), NotAfter: today.AddDate(0, 1, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, edit := range edits {
		edit(template)
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, a.certificate, newKey(t).Public(), a.key))
	return must[*x509.Certificate](t)(x509.ParseCertificate(der))
}

// issuer signs tokens.
type issuer struct {
	key crypto.Signer
	id  string
}

func (i issuer) set(t testing.TB, more ...jose.JSONWebKey) []byte {
	t.Helper()
	keys := append(more, jose.JSONWebKey{Key: i.key.Public(), KeyID: i.id, Use: "sig"})
	return must[[]byte](t)(json.Marshal(jose.JSONWebKeySet{Keys: keys}))
}

func (i issuer) keys(t testing.TB) *authentication.Keys {
	t.Helper()
	return must[*authentication.Keys](t)(authentication.ParseKeys(i.set(t)))
}

func (i issuer) sign(t testing.TB, algorithm jose.SignatureAlgorithm, claims map[string]any) string {
	t.Helper()
	key := jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: i.key, KeyID: i.id}}
	signer := must[jose.Signer](t)(jose.NewSigner(key, nil))
	return must[string](t)(jwt.Signed(signer).Claims(claims).Serialize())
}

// claimsOf returns the claims of a token as an API server issues it, after edits.
func claimsOf(changes map[string]any) map[string]any {
	claims := map[string]any{
		"iss": "https://issuer.example", "sub": "system:serviceaccount:shop:apiserver", "aud": []string{"pillion"},
		"iat": today.Unix(), "nbf": today.Unix(), "exp": today.Add(10 * time.Minute).Unix(), "jti": "1",
		"kubernetes.io": map[string]any{"namespace": "shop", "serviceaccount": map[string]any{"name": "apiserver", "uid": "2"}},
	}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

func request(t testing.TB, chain []*x509.Certificate, authorization ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mutate", http.NoBody)
	r.TLS = &tls.ConnectionState{PeerCertificates: chain}
	for _, value := range authorization {
		r.Header.Add("Authorization", value)
	}
	return r
}

func newGuard(required bool, credentials *authentication.Credentials) *authentication.Guard {
	return authentication.NewGuard(required, credentials, func() (wall, steady time.Time) { return today, today })
}

// wantWay checks whether a caller is authenticated: want is a way, or the reason for the rejection.
func wantWay(t testing.TB, guard *authentication.Guard, r *http.Request, want string) *authentication.Rejection {
	t.Helper()
	way, rejected := guard.Check(r, authentication.Mutating)
	switch {
	case rejected == nil && string(way) != want:
		t.Errorf("let in by %s, want %s", way, want)
	case rejected != nil && string(rejected.Reason) != want:
		t.Errorf("rejected for %s (%s), want %s", rejected.Reason, rejected.Sentence, want)
	case rejected != nil && (rejected.Sentence == "" || way != "" && way != authentication.ByPassword && way != authentication.ByServiceAccount):
		t.Errorf("rejected for %s without a sentence, or let in by %q at the same time", rejected.Reason, way)
	}
	return rejected
}
