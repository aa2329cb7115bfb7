// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"
)

// leeway is the largest expected difference between the clocks of the API server and of this
// machine.
const leeway = 30 * time.Second

// Webhook identifies the webhook that is called.
type Webhook string

// The webhooks. Advising is optional; it checks workloads.
const (
	Mutating   Webhook = "MutatingWebhookConfiguration"
	Validating Webhook = "ValidatingWebhookConfiguration"
	Advising   Webhook = "ValidatingWebhookConfiguration for workloads"
)

// everyGroup is the attestation for reviews of all API groups. Pods are in the core group,
// whose name is empty, so no other attestation includes it.
const everyGroup = "*"

// ServiceAccounts accepts ServiceAccount tokens.
//
// It accepts a token that is bound to a webhook configuration (KEP-6060, Kubernetes 1.37) for
// the webhook of that kind, if the configuration has the right name and the token attests
// every API group. Only clients that may attest get such a token, so its subject is checked
// only if there are Subjects. Any other token must have one of the Subjects.
type ServiceAccounts struct {
	Issuer    string
	Audiences []string // a token needs one of them
	Subjects  []string // system:serviceaccount:NAMESPACE:NAME
	// Configuration is the name of the webhook configurations; for [Advising], it is followed by
	// -advise.
	Configuration string
	// Keys are the issuer's; without them, no token is accepted.
	Keys *Keys
	// Missed is called if a token names an unknown key. It must not block.
	Missed func()
}

// claims are the private claims of a ServiceAccount token, see
// k8s.io/kubernetes/pkg/serviceaccount.
type claims struct {
	Kubernetes struct {
		Mutating     *named              `json:"mutatingwebhookconfiguration"`
		Validating   *named              `json:"validatingwebhookconfiguration"`
		Attestations map[string][]string `json:"attestations"`
	} `json:"kubernetes.io"`
}

type named struct {
	Name string `json:"name"`
}

func (s *ServiceAccounts) checkToken(token string, webhook Webhook, now time.Time) *Rejection {
	parsed, err := jwt.ParseSigned(token, signatureAlgorithms())
	if err != nil {
		return wrongToken()
	}
	keys := s.Keys.withID(parsed.Headers[0].KeyID)
	if len(keys) == 0 {
		s.Missed()
		return &Rejection{Reason: UnknownKey, Sentence: "the token is signed with an unknown key"}
	}
	var public jwt.Claims
	var private claims
	verified := slices.ContainsFunc(keys, func(key any) bool { return parsed.Claims(key, &public, &private) == nil })
	if !verified {
		return &Rejection{Reason: WrongSignature, Sentence: "the token's signature is wrong"}
	}
	if wrong := s.checkPublic(&public, now); wrong != nil {
		return wrong
	}
	bound := private.Kubernetes.Mutating != nil || private.Kubernetes.Validating != nil
	if bound && !s.isFor(webhook, &public, &private) {
		return &Rejection{Reason: WrongBinding, Sentence: fmt.Sprintf(
			"the token is not bound to the %s %q, or not for all API groups", webhook, s.nameOf(webhook))}
	}
	if (!bound || len(s.Subjects) > 0) && !slices.Contains(s.Subjects, public.Subject) {
		return &Rejection{Reason: WrongSubject, Sentence: fmt.Sprintf("the token is for %q, which is not allowed to call", public.Subject)}
	}
	return nil
}

// checkPublic checks the claims of RFC 7519. It rejects a token without an expiration time.
func (s *ServiceAccounts) checkPublic(public *jwt.Claims, now time.Time) *Rejection {
	err := public.ValidateWithLeeway(jwt.Expected{Issuer: s.Issuer, AnyAudience: s.Audiences, Time: now}, leeway)
	switch {
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return &Rejection{Reason: WrongIssuer, Sentence: fmt.Sprintf("the token is from the issuer %q, not from %q", public.Issuer, s.Issuer)}
	case errors.Is(err, jwt.ErrInvalidAudience):
		return &Rejection{Reason: WrongAudience, Sentence: fmt.Sprintf("the token is for the audiences %q, not for %q", public.Audience, s.Audiences)}
	case err != nil || public.Expiry == nil:
		return &Rejection{Reason: ExpiredToken, Sentence: "the token has expired, or is not valid yet"}
	}
	return nil
}

// isFor follows the steps of KEP-6060: the token has one audience, is bound to one
// configuration of this kind and name, and attests the group of the reviewed resource.
func (s *ServiceAccounts) isFor(webhook Webhook, public *jwt.Claims, private *claims) bool {
	bound, other := private.Kubernetes.Mutating, private.Kubernetes.Validating
	if webhook != Mutating {
		bound, other = other, bound
	}
	return len(public.Audience) == 1 && other == nil && bound != nil && bound.Name == s.nameOf(webhook) &&
		slices.Contains(private.Kubernetes.Attestations["admissionReviewAPIGroups"], everyGroup)
}

func (s *ServiceAccounts) nameOf(webhook Webhook) string {
	if webhook == Advising {
		return s.Configuration + "-advise"
	}
	return s.Configuration
}

// signatureAlgorithms returns the signature algorithms that an issuer of ServiceAccount tokens may use.
// It contains no symmetric algorithm, and not "none".
func signatureAlgorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512}
}

// Keys are an issuer's public keys by ID.
type Keys struct{ byID map[string][]any }

// ParseKeys parses a JSON Web Key Set (RFC 7517), for example from an API server's
// /openid/v1/jwks. It ignores keys that are not RSA or ECDSA keys for signatures.
func ParseKeys(content []byte) (*Keys, error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, errors.New("it is not a JSON Web Key Set")
	}
	keys := &Keys{map[string][]any{}}
	for _, key := range set.Keys {
		if !key.Valid() || key.KeyID == "" || key.Use != "" && key.Use != "sig" {
			continue
		}
		switch key.Key.(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey:
			keys.byID[key.KeyID] = append(keys.byID[key.KeyID], key.Key)
		}
	}
	if len(keys.byID) == 0 {
		return nil, errors.New("it has no RSA or ECDSA key for signatures with an id")
	}
	return keys, nil
}

func (k *Keys) withID(id string) []any {
	if k == nil || id == "" {
		return nil
	}
	return k.byID[id]
}
