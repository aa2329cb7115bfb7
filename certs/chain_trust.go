// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"
)

// filesFollow is more than the kubelet takes to update a mounted Secret.
const filesFollow = 5 * time.Minute

// checkTrust checks only the webhook configurations; pair is the Secret's pair, or nil.
func (c *Chain) checkTrust(r *ChainReport, pair *tls.Certificate) (problems []string) {
	var unread []string
	for _, w := range c.Configurations {
		name := w.Kind + "/" + w.Name
		if w.Unread {
			unread = append(unread, name)
			continue
		}
		if !w.Found {
			problems = append(problems, name+" does not exist, so API servers do not call Pillion; install Pillion again")
			continue
		}
		if r.Source == SourceCertManager && w.InjectFrom == "" {
			problems = append(problems, fmt.Sprintf("%s lacks the annotation %s, so cert-manager does not fill its caBundle; install Pillion again", name, injectAnnotation))
		}
		var empty, unusable, lost []string
		for _, a := range w.CABundles {
			trusted := parseCertificates(a.Bundle)
			t := TrustReport{Configuration: name, Webhook: a.Webhook, Certificates: []X509Report{}}
			for _, one := range trusted {
				t.Certificates = append(t.Certificates, reportX509(one))
			}
			r.Trust = append(r.Trust, t)
			switch {
			case len(a.Bundle) == 0:
				empty = append(empty, a.Webhook)
			case len(trusted) == 0:
				unusable = append(unusable, a.Webhook)
			case pair != nil && c.verifyPair(pair, a) != nil:
				lost = append(lost, a.Webhook)
			}
		}
		problems = append(problems, c.trustProblems(r, name, empty, unusable, lost)...)
	}
	if len(unread) > 0 {
		r.Unseen = append(r.Unseen, "certs cannot see what API servers trust; ask for the right to read "+strings.Join(unread, " and "))
		problems = append(problems, r.Unseen...)
	}
	return problems
}

func (c *Chain) trustProblems(r *ChainReport, name string, empty, unusable, lost []string) (problems []string) {
	add := func(webhooks []string, what string) {
		if len(webhooks) > 0 {
			problems = append(problems, fmt.Sprintf("%s: the caBundle of %s %s; %s", name, strings.Join(webhooks, ", "), what, whoTrusts(r.Source)))
		}
	}
	if r.Secret != nil || c.Secret != nil || len(r.Problems) == 0 { // otherwise, there is no certificate
		add(empty, "is empty, so API servers cannot verify Pillion")
	}
	add(unusable, "holds no certificate")
	add(lost, "does not verify the certificate of the Secret "+c.SecretName)
	return problems
}

func whoTrusts(source string) string {
	switch source {
	case SourceCertManager:
		return "cert-manager's cainjector fills it; check that it runs, and read its log"
	case SourceSelfManaged:
		return "Pillion fills it; check that one of its pods runs, and read its log"
	}
	return "put the certificate of the CA into it"
}

// verifyPair returns an error if an API server would reject the pair, ignoring its validity
// period.
func (c *Chain) verifyPair(pair *tls.Certificate, a CABundle) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Bundle)
	return verifyPair(pair, a.Host, roots, c.Now)
}

// checkServed checks the certificates that the endpoints present. If no endpoint was reached,
// it checks the Secret's.
func (c *Chain) checkServed(r *ChainReport, pair *tls.Certificate) (problems []string) {
	asked := 0
	for _, e := range c.Served {
		s := ServedReport{From: e.Address}
		if e.Err != nil {
			s.Error = e.Err.Error()
			r.Served = append(r.Served, s)
			continue
		}
		asked++
		presented := asPair(e.Chain)
		s.Certificate = new(reportX509(presented.Leaf))
		problem := c.comparePresented(r, presented, pair, e.Address)
		s.Verified = c.isVerified(presented)
		r.Served = append(r.Served, s)
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	switch {
	case asked > 0:
		return problems
	case c.Deserted != "":
		return []string{fmt.Sprintf("the Service %s has no ready endpoint, so no pod of Pillion answers API servers; run `kubectl -n %s get pods`",
			c.Deserted, namespaceOf(c.Deserted))}
	case pair != nil:
		r.Notes = append(r.Notes, "certs could not connect to an endpoint from here, so it checks the certificate of the Secret instead")
		r.Served = append(r.Served, ServedReport{From: "Secret/" + c.SecretName, Certificate: new(reportX509(pair.Leaf)), Verified: c.isVerified(pair)})
	case len(r.Problems) == 0:
		unseen := "certs cannot see which certificate is served; name an endpoint that you can reach with --endpoint, or ask for the right to read the Secret " + c.SecretName
		r.Unseen = append(r.Unseen, unseen)
		return []string{unseen}
	}
	return nil
}

// comparePresented compares a presented certificate with the one in the Secret. The report already
// covers the Secret's own problems.
func (c *Chain) comparePresented(r *ChainReport, presented, pair *tls.Certificate, address string) string {
	if sameChain(presented, pair) {
		return ""
	}
	if problem := c.checkTime(presented.Leaf, address, r.Source); problem != "" {
		return problem
	}
	for _, w := range c.Configurations {
		for _, a := range w.CABundles {
			if err := c.verifyPair(presented, a); err != nil && len(a.Bundle) > 0 {
				return fmt.Sprintf("%s presents a certificate that the caBundle of %s does not verify (%v); read /readyz?verbose of that pod", address, a.Webhook, err)
			}
		}
	}
	switch {
	case pair == nil:
	case c.Now.Sub(pair.Leaf.NotBefore) < filesFollow, !c.isVerified(pair):
		r.Notes = append(r.Notes, address+" still serves an older certificate than the Secret has, and API servers trust it")
	default:
		return fmt.Sprintf("%s does not serve the certificate of the Secret %s, although it had time to load it; read /readyz?verbose of that pod", address, c.SecretName)
	}
	return ""
}

// isVerified reports whether every API server can call a server that presents the pair now.
func (c *Chain) isVerified(pair *tls.Certificate) bool {
	var bundles []CABundle
	for _, w := range c.Configurations {
		bundles = append(bundles, w.CABundles...)
	}
	rejected := func(a CABundle) bool { return len(a.Bundle) == 0 || c.verifyPair(pair, a) != nil }
	return len(bundles) > 0 && !slices.ContainsFunc(bundles, rejected) && c.checkTime(pair.Leaf, "", "") == ""
}
