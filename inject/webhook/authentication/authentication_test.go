// SPDX-License-Identifier: Apache-2.0

package authentication_test

import (
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/inject/webhook/authentication"
)

func basic(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }

func tokens(t testing.TB, content string) *authentication.Credentials {
	t.Helper()
	return &authentication.Credentials{Tokens: must[*authentication.Tokens](t)(authentication.ParseTokens([]byte(content)))}
}

// TestTokens checks which headers with a bearer token are accepted, and the reason for the others.
func TestTokens(t *testing.T) {
	guard := newGuard(true, tokens(t, "first-token\r\n\nother.token~+/-_=="))
	for name, c := range map[string]struct {
		headers []string
		want    string
	}{
		"right":              {[]string{"Bearer first-token"}, "token"},
		"the other one":      {[]string{"Bearer other.token~+/-_=="}, "token"},
		"case of the scheme": {[]string{"bEARER first-token"}, "token"},
		"spaces":             {[]string{"Bearer   first-token  "}, "token"},
		"wrong":              {[]string{"Bearer second-token"}, "wrong_token"},
		"case":               {[]string{"Bearer First-token"}, "wrong_token"},
		"cut":                {[]string{"Bearer first-toke"}, "wrong_token"},
		"longer":             {[]string{"Bearer first-tokens"}, "wrong_token"},
		"with its line end":  {[]string{"Bearer first-token\r"}, "malformed"},
		"missing":            {nil, "missing"},
		"no value":           {[]string{""}, "malformed"},
		"no scheme":          {[]string{"first-token"}, "malformed"},
		"no token":           {[]string{"Bearer "}, "malformed"},
		"two tokens":         {[]string{"Bearer first-token other"}, "malformed"},
		"two headers":        {[]string{"Bearer first-token", "Bearer first-token"}, "malformed"},
		"huge":               {[]string{"Bearer " + strings.Repeat("a", 20<<10)}, "malformed"},
		"another scheme":     {[]string{"Digest first-token"}, "unsupported"},
		"basic":              {[]string{basic("first-token:")}, "unsupported"},
	} {
		t.Run(name, func(t *testing.T) {
			rejected := wantWay(t, guard, request(t, nil, c.headers...), c.want)
			if rejected == nil {
				return
			}
			if !slices.Equal(rejected.Challenges, []string{`Bearer realm="pillion"`}) {
				t.Errorf("the challenges are %q", rejected.Challenges)
			}
			if strings.Contains(rejected.Sentence, "second-token") {
				t.Errorf("the sentence holds the credential: %s", rejected.Sentence)
			}
		})
	}
}

// TestClockJumps checks that a credential is valid if it is valid by the clock before a jump, or by the clock
// after it.
func TestClockJumps(t *testing.T) {
	known := newAuthority(t, nil)
	certificates := must[*authentication.Certificates](t)(authentication.ParseCertificates(known.pem, []string{"apiserver"}))
	for _, c := range []struct {
		wall, steady time.Duration // after today
		want         string
	}{
		{0, 0, "certificate"},
		{100 * 365 * 24 * time.Hour, 0, "certificate"},
		{-100 * 365 * 24 * time.Hour, 0, "certificate"},
		{0, 100 * 365 * 24 * time.Hour, "certificate"},
		{100 * 365 * 24 * time.Hour, 100 * 365 * 24 * time.Hour, "expired_certificate"},
		{100 * 365 * 24 * time.Hour, 99 * 365 * 24 * time.Hour, "expired_certificate"},
	} {
		guard := authentication.NewGuard(true, &authentication.Credentials{Certificates: certificates},
			func() (wall, steady time.Time) { return today.Add(c.wall), today.Add(c.steady) })
		wantWay(t, guard, request(t, []*x509.Certificate{known.client(t, "apiserver")}), c.want)
	}
}

// TestPasswords checks which users and passwords are accepted, and the reason for the others.
func TestPasswords(t *testing.T) {
	passwords := must[*authentication.Passwords](t)(authentication.ParsePasswords([]byte("apiserver:a pass:word\nother:ü\n")))
	guard := newGuard(true, &authentication.Credentials{Passwords: passwords})
	for name, c := range map[string]struct{ header, want string }{
		"right":            {basic("apiserver:a pass:word"), "password"},
		"the other one":    {basic("other:ü"), "password"},
		"the other's":      {basic("apiserver:ü"), "wrong_password"},
		"another user":     {basic("stranger:a pass:word"), "wrong_password"},
		"no password":      {basic("apiserver:"), "wrong_password"},
		"no user":          {basic(":a pass:word"), "malformed"},
		"no pair":          {basic("apiserver"), "malformed"},
		"control":          {basic("apiserver:a pass:word\n"), "malformed"},
		"no base64":        {"Basic apiserver:a", "malformed"},
		"loose base64":     {"Basic YTpi\r\n", "malformed"},
		"trailing bits":    {"Basic b3RoZXI6w7x=", "malformed"},
		"a bearer's token": {"Bearer YXBpc2VydmVy", "unsupported"},
	} {
		t.Run(name, func(t *testing.T) {
			rejected := wantWay(t, guard, request(t, nil, c.header), c.want)
			if rejected != nil && !slices.Equal(rejected.Challenges, []string{`Basic realm="pillion", charset="UTF-8"`}) {
				t.Errorf("the challenges are %q", rejected.Challenges)
			}
		})
	}
}

// TestCertificates checks which client certificates are accepted, and the reason for the others.
func TestCertificates(t *testing.T) {
	known, unknown := newAuthority(t, nil), newAuthority(t, nil)
	between := newAuthority(t, known)
	certificates := must[*authentication.Certificates](t)(authentication.ParseCertificates(
		append(newAuthority(t, nil).pem, known.pem...), []string{"apiserver", "apiserver.example", "spiffe://example/apiserver"}))
	guard := newGuard(true, &authentication.Credentials{Certificates: certificates})
	uri := must[*url.URL](t)(url.Parse("spiffe://example/apiserver"))
	for name, c := range map[string]struct {
		chain []*x509.Certificate
		want  string
	}{
		"right":        {[]*x509.Certificate{known.client(t, "apiserver")}, "certificate"},
		"by DNS name":  {[]*x509.Certificate{known.client(t, "", func(c *x509.Certificate) { c.DNSNames = []string{"x", "apiserver.example"} })}, "certificate"},
		"by URI":       {[]*x509.Certificate{known.client(t, "", func(c *x509.Certificate) { c.URIs = []*url.URL{uri} })}, "certificate"},
		"intermediate": {[]*x509.Certificate{between.client(t, "apiserver"), between.certificate}, "certificate"},
		"no chain":     {[]*x509.Certificate{between.client(t, "apiserver")}, "unknown_certificate"},
		"another name": {[]*x509.Certificate{known.client(t, "system:node:worker-1")}, "wrong_name"},
		"no name":      {[]*x509.Certificate{known.client(t, "")}, "wrong_name"},
		"a part of it": {[]*x509.Certificate{known.client(t, "apiserver.example.com")}, "wrong_name"},
		"as an organization": {[]*x509.Certificate{known.client(t, "x", func(c *x509.Certificate) {
			c.Subject.Organization = []string{"apiserver"}
		})}, "wrong_name"},
		"wildcard":   {[]*x509.Certificate{known.client(t, "", func(c *x509.Certificate) { c.DNSNames = []string{"*.example"} })}, "wrong_name"},
		"another CA": {[]*x509.Certificate{unknown.client(t, "apiserver")}, "unknown_certificate"},
		"the other CA in the chain": {
			[]*x509.Certificate{unknown.client(t, "apiserver"), unknown.certificate}, "unknown_certificate",
		},
		"expired": {[]*x509.Certificate{known.client(t, "apiserver", func(c *x509.Certificate) { c.NotAfter = today.Add(-1) })}, "expired_certificate"},
		"not yet": {[]*x509.Certificate{known.client(t, "apiserver", func(c *x509.Certificate) { c.NotBefore = today.AddDate(0, 0, 1) })}, "expired_certificate"},
		"for servers": {[]*x509.Certificate{known.client(t, "apiserver", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		})}, "unknown_certificate"},
		"missing": {nil, "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			if rejected := wantWay(t, guard, request(t, c.chain), c.want); rejected != nil && rejected.Challenges != nil {
				t.Errorf("the challenges are %q", rejected.Challenges)
			}
		})
	}
	wantWay(t, guard, request(t, nil, "Bearer token"), "unsupported")
	plain := request(t, nil)
	plain.TLS = nil
	wantWay(t, guard, plain, "missing")
}

// TestSeveral checks that all ways to authenticate can be used at the same time. One valid
// credential is enough.
func TestSeveral(t *testing.T) {
	ca := newAuthority(t, nil)
	credentials := tokens(t, "token")
	credentials.Certificates = must[*authentication.Certificates](t)(authentication.ParseCertificates(ca.pem, []string{"apiserver"}))
	credentials.Passwords = must[*authentication.Passwords](t)(authentication.ParsePasswords([]byte("user:password")))
	right, wrong := []*x509.Certificate{ca.client(t, "apiserver")}, []*x509.Certificate{ca.client(t, "kubelet")}
	for _, c := range []struct {
		chain              []*x509.Certificate
		header             string
		required, optional string
	}{
		{nil, "", "missing", "unknown"},
		{right, "", "certificate", "certificate"},
		{right, "Bearer wrong", "certificate", "certificate"},
		{wrong, "", "wrong_name", "wrong_name"},
		{wrong, "Bearer token", "token", "token"},
		{wrong, basic("user:password"), "password", "password"},
		{wrong, "Bearer wrong", "wrong_token", "wrong_token"},
		{nil, basic("user:wrong"), "wrong_password", "wrong_password"},
		{nil, "Negotiate x", "unsupported", "unsupported"},
	} {
		r := request(t, c.chain)
		if c.header != "" {
			r = request(t, c.chain, c.header)
		}
		wantWay(t, newGuard(false, credentials), r, c.optional)
		rejected := wantWay(t, newGuard(true, credentials), r, c.required)
		if rejected != nil && len(rejected.Challenges) != 2 {
			t.Errorf("the challenges are %q", rejected.Challenges)
		}
		if c.required == "missing" && rejected.Sentence != "callers must authenticate with a client certificate or bearer token or user name and password" {
			t.Errorf("the sentence is %q", rejected.Sentence)
		}
	}
}

// TestImpersonation checks that a client that only claims a name is not authenticated.
func TestImpersonation(t *testing.T) {
	r := request(t, nil)
	for _, name := range []string{"Impersonate-User", "Impersonate-Group", "X-Remote-User", "Proxy-Authorization", "X-Forwarded-Client-Cert"} {
		r.Header.Set(name, "Bearer token")
	}
	wantWay(t, newGuard(true, tokens(t, "token")), r, "missing")
	wantWay(t, newGuard(false, tokens(t, "token")), r, "unknown")
}

// TestRotation checks that new credentials count at once, also on open connections.
func TestRotation(t *testing.T) {
	before, after := newAuthority(t, nil), newAuthority(t, nil)
	load := func(content string, ca []byte) *authentication.Credentials {
		credentials := tokens(t, content)
		credentials.Certificates = must[*authentication.Certificates](t)(authentication.ParseCertificates(ca, []string{"apiserver"}))
		return credentials
	}
	guard := newGuard(true, load("first", before.pem))
	// The connections stay open.
	old, renewed := request(t, []*x509.Certificate{before.client(t, "apiserver")}), request(t, []*x509.Certificate{after.client(t, "apiserver")})
	want := func(first, second, oldOne, newOne string) {
		t.Helper()
		wantWay(t, guard, request(t, nil, "Bearer first"), first)
		wantWay(t, guard, request(t, nil, "Bearer second"), second)
		wantWay(t, guard, old, oldOne)
		wantWay(t, guard, renewed, newOne)
	}
	want("token", "wrong_token", "certificate", "unknown_certificate")
	guard.Use(load("first\nsecond", append(after.pem, before.pem...)))
	want("token", "token", "certificate", "certificate")
	guard.Use(load("second", after.pem))
	want("wrong_token", "token", "unknown_certificate", "certificate")
}

// TestFiles checks that the error about an invalid file has the place, and never the content.
func TestFiles(t *testing.T) {
	ca := string(newAuthority(t, nil).pem)
	parsers := map[string]func(string) error{
		"tokens":    func(s string) error { _, err := authentication.ParseTokens([]byte(s)); return err },
		"passwords": func(s string) error { _, err := authentication.ParsePasswords([]byte(s)); return err },
		"CAs":       func(s string) error { _, err := authentication.ParseCertificates([]byte(s), []string{"x"}); return err },
		"no name":   func(s string) error { _, err := authentication.ParseCertificates([]byte(s), nil); return err },
		"empty name": func(s string) error {
			_, err := authentication.ParseCertificates([]byte(s), []string{"x", ""})
			return err
		},
		"keys": func(s string) error { _, err := authentication.ParseKeys([]byte(s)); return err },
	}
	for _, c := range []struct{ parser, content, want string }{
		{"tokens", "", "it is empty: it must have one line for each of a token without spaces"},
		{"tokens", "\n\r\n\n", "it is empty: it must have one line for each of a token without spaces"},
		{"tokens", "fine\nsecret secret\n", "line 2 is not a token without spaces"},
		{"tokens", "# secret\n", "line 1 is not a token without spaces"},
		{"tokens", "\xef\xbb\xbfsecret\n", "line 1 is not a token without spaces"},
		{"tokens", "fine\n\nsecret\x00\n", "line 3 is not a token without spaces"},
		{"passwords", "\n", "it is empty: it must have one line for each of user:password"},
		{"passwords", "user:x\nsecret\n", "line 2 is not user:password"},
		{"passwords", ":secret\n", "line 1 is not user:password"},
		{"CAs", "", "it has no CA certificate: it must be PEM"},
		{"CAs", ca[:len(ca)/2], "it has no CA certificate: it must be PEM"},
		{"no name", ca, "a name for client certificates is required"},
		{"empty name", ca, "a name for client certificates is required"},
		{"keys", "", "it is not a JSON Web Key Set"},
		{"keys", "[]", "it is not a JSON Web Key Set"},
		{"keys", "{}", "it has no RSA or ECDSA key for signatures with an id"},
		{"keys", `{"keys":[{"kty":"oct","kid":"a","k":"c2VjcmV0"}]}`, "it has no RSA or ECDSA key for signatures with an id"},
	} {
		if err := parsers[c.parser](c.content); err == nil || err.Error() != c.want {
			t.Errorf("%s %q: %v, want %s", c.parser, c.content, err, c.want)
		}
	}
}

// TestConcurrency checks that requests continue while credentials are replaced.
func TestConcurrency(t *testing.T) {
	sets := []*authentication.Credentials{tokens(t, "first\nboth"), tokens(t, "second\nboth")}
	guard := newGuard(true, sets[0])
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				guard.Use(sets[i%2])
				if way, rejected := guard.Check(request(t, nil, "Bearer both"), authentication.Mutating); rejected != nil {
					t.Errorf("rejected between two sets that both have the token: %s %s", way, rejected.Sentence)
				}
			}
		})
	}
	wg.Wait()
}

// FuzzAuthorization checks that for any header, only credentials in the files authenticate a
// caller.
func FuzzAuthorization(f *testing.F) {
	for _, seed := range []string{
		"", "Bearer token", "bearer  token ", "Bearer", "Basic", basic("user:password"), basic("user"), basic(":"), "Basic dXNlcjpwYXNzd29yZA",
		"Bearer token\x00", "Bearer\ttoken", "Bearer eyJhbGciOiJub25lIn0.e30.", "Digest x", " Bearer token", "Bearer token, Basic x",
		"Bearer " + strings.Repeat("a.", 9000),
	} {
		f.Add(seed)
	}
	credentials := tokens(f, "token")
	credentials.Passwords = must[*authentication.Passwords](f)(authentication.ParsePasswords([]byte("user:password")))
	signer := issuer{newKey(f), "1"}
	credentials.ServiceAccounts = accounts(f, signer)
	guard := newGuard(false, credentials)
	f.Fuzz(func(t *testing.T, header string) {
		way, rejected := guard.Check(&http.Request{Header: http.Header{"Authorization": {header}}}, authentication.Mutating)
		scheme, value, _ := strings.Cut(header, " ")
		value = strings.Trim(value, " ")
		switch {
		case rejected != nil && (rejected.Reason == "" || rejected.Sentence == ""):
			t.Errorf("%q is rejected for no reason", header)
		case rejected != nil:
		case way == authentication.ByToken && strings.EqualFold(scheme, "bearer") && value == "token":
		case way == authentication.ByPassword && strings.EqualFold(scheme, "basic") && value == "dXNlcjpwYXNzd29yZA==":
		default:
			t.Errorf("%q is let in by %s", header, way)
		}
	})
}
