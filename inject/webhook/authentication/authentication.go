// SPDX-License-Identifier: Apache-2.0

// Package authentication authenticates the callers of the webhooks. By default, an
// API server sends no credentials (see AdmissionConfiguration,
// apiserver.config.k8s.io/v1), so other clients can call the webhooks too.
//
// There are four kinds of credentials: client certificates, bearer tokens, user names
// with passwords, and ServiceAccount tokens. A caller needs one of the enabled kinds.
// All are checked in memory: this package reads no file, makes no request and takes no
// lock. Its user reads the files and replaces the credentials.
//
// It supports tokens and passwords from files because an API server's kubeconfig for webhooks can contain these.
// k8s.io/apiserver no longer authenticates passwords, and it reads a file of tokens only once.
package authentication

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Way is how a caller was authenticated.
type Way string

// The ways.
const (
	ByCertificate    Way = "certificate"
	ByToken          Way = "token"
	ByPassword       Way = "password"
	ByServiceAccount Way = "service_account"
	// Unknown means that the caller has no credential and needs none.
	Unknown Way = "unknown"
)

// Reason is the reason code of a rejection; a metric counts them.
type Reason string

// The reasons.
const (
	Missing            Reason = "missing"             // no credential
	Malformed          Reason = "malformed"           // an invalid Authorization header
	Unsupported        Reason = "unsupported"         // a kind of credential that is not enabled
	UnknownCertificate Reason = "unknown_certificate" // not from the CAs, or not for clients
	ExpiredCertificate Reason = "expired_certificate"
	WrongName          Reason = "wrong_name" // of a certificate
	WrongToken         Reason = "wrong_token"
	WrongPassword      Reason = "wrong_password" // or user
	UnknownKey         Reason = "unknown_key"    // of the token's signature
	WrongSignature     Reason = "wrong_signature"
	WrongIssuer        Reason = "wrong_issuer"
	WrongAudience      Reason = "wrong_audience"
	WrongSubject       Reason = "wrong_subject"
	WrongBinding       Reason = "wrong_binding" // of a token to a webhook configuration
	ExpiredToken       Reason = "expired_token" // or not yet valid
)

// Rejection is the error for a caller that is not authenticated.
type Rejection struct {
	Reason Reason
	// Sentence reports what is wrong. It may contain verified names, but never a credential.
	Sentence string
	// Challenges are the values of WWW-Authenticate (RFC 9110, section 11.6.1).
	// There is none for client certificates.
	Challenges []string
}

// Credentials contains the accepted credentials. It does not change while it is in
// use. A nil field means that this kind of credential is not enabled.
type Credentials struct {
	Certificates    *Certificates
	Tokens          *Tokens
	Passwords       *Passwords
	ServiceAccounts *ServiceAccounts
}

// Guard authenticates callers. It is safe for concurrent use.
type Guard struct {
	required bool
	now      func() (wall, steady time.Time)
	current  atomic.Pointer[Credentials]
}

// NewGuard returns a guard that rejects wrong credentials and, if credentials are
// required, callers without any.
//
// Certificates and tokens expire, so this is the only code on the request path that
// reads a clock. The function now returns the time of the wall clock, and the time
// that it would show if it had not been set since the start. If the wall clock
// jumps, valid credentials are still accepted.
func NewGuard(required bool, credentials *Credentials, now func() (wall, steady time.Time)) *Guard {
	g := &Guard{required: required, now: now}
	g.Use(credentials)
	return g
}

// Use replaces the credentials.
func (g *Guard) Use(credentials *Credentials) { g.current.Store(credentials) }

// Credentials returns the credentials in use.
func (g *Guard) Credentials() *Credentials { return g.current.Load() }

// Check authenticates the caller of a webhook. It returns how the caller
// authenticated, or a rejection. It reads only the connection and the Authorization
// header; Impersonate-* headers have no effect.
//
// A client certificate belongs to the connection, but Check verifies it for each
// request, so that removing a CA takes effect immediately.
func (g *Guard) Check(r *http.Request, webhook Webhook) (Way, *Rejection) {
	wall, steady := g.now()
	way, rejected := g.checkAt(r, webhook, wall)
	if rejected != nil && !steady.Equal(wall) {
		if by, wrong := g.checkAt(r, webhook, steady); wrong == nil {
			return by, nil
		}
	}
	return way, rejected
}

func (g *Guard) checkAt(r *http.Request, webhook Webhook, now time.Time) (Way, *Rejection) {
	credentials := g.current.Load()
	var rejected *Rejection
	if credentials.Certificates != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		if rejected = credentials.Certificates.verifyChain(r.TLS.PeerCertificates, now); rejected == nil {
			return ByCertificate, nil
		}
	}
	if headers := r.Header.Values("Authorization"); len(headers) > 0 {
		way, wrong := credentials.checkHeader(headers, webhook, now)
		if wrong == nil {
			return way, nil
		}
		rejected = wrong // more specific: clients may send a certificate to every server
	}
	if rejected == nil && !g.required {
		return Unknown, nil
	}
	if rejected == nil {
		rejected = &Rejection{Reason: Missing, Sentence: "callers must authenticate with a " + credentials.describeKinds()}
	}
	rejected.Challenges = credentials.challenges()
	return "", rejected
}

// checkHeader authenticates by the Authorization header.
func (c *Credentials) checkHeader(headers []string, webhook Webhook, now time.Time) (Way, *Rejection) {
	scheme, value, ok := parseAuthorization(headers)
	switch {
	case !ok:
		return "", &Rejection{Reason: Malformed, Sentence: "the Authorization header is malformed"}
	case scheme == schemeBasic && c.Passwords != nil:
		return ByPassword, c.Passwords.checkPassword(value)
	case scheme == schemeBearer && c.Tokens != nil && c.Tokens.hasSecret(value):
		return ByToken, nil
	case scheme == schemeBearer && c.ServiceAccounts != nil:
		return ByServiceAccount, c.ServiceAccounts.checkToken(value, webhook, now)
	case scheme == schemeBearer && c.Tokens != nil:
		return "", wrongToken()
	}
	return "", &Rejection{Reason: Unsupported, Sentence: "this kind of Authorization header is not supported; use a " + c.describeKinds()}
}

func wrongToken() *Rejection {
	return &Rejection{Reason: WrongToken, Sentence: "the bearer token is unknown"}
}

// describeKinds returns the names of the enabled kinds of credentials.
func (c *Credentials) describeKinds() string {
	text := ""
	for _, way := range []struct {
		inUse bool
		name  string
	}{
		{c.Certificates != nil, "client certificate"},
		{c.Tokens != nil, "bearer token"},
		{c.Passwords != nil, "user name and password"},
		{c.ServiceAccounts != nil, "ServiceAccount token"},
	} {
		if way.inUse && text != "" {
			text += " or "
		}
		if way.inUse {
			text += way.name
		}
	}
	return text
}

func (c *Credentials) challenges() []string {
	var all []string
	if c.Tokens != nil || c.ServiceAccounts != nil {
		all = append(all, `Bearer realm="pillion"`)
	}
	if c.Passwords != nil {
		all = append(all, `Basic realm="pillion", charset="UTF-8"`)
	}
	return all
}
