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

// Configuration is a webhook configuration of Pillion's.
type Configuration string

// The configurations. Advising is optional: without it, only warnings are lost.
const (
	Mutating   Configuration = "mutating"
	Validating Configuration = "validating"
	Advising   Configuration = "advising"
)

// AllConfigurations returns all configurations.
func AllConfigurations() []Configuration { return []Configuration{Mutating, Validating, Advising} }

// Named returns the configuration's name in a cluster in which the first two have the given
// name.
func (c Configuration) Named(name string) string {
	if c == Advising {
		return name + "-advise"
	}
	return name
}

// Kind returns the configuration's Kubernetes kind.
func (c Configuration) Kind() string {
	if c == Mutating {
		return "MutatingWebhookConfiguration"
	}
	return "ValidatingWebhookConfiguration"
}

// CABundle is what API servers use to verify Pillion when they call one webhook.
type CABundle struct {
	Webhook string // its name in the configuration
	Host    string // the name that the certificate must contain
	Bundle  []byte // the caBundle in PEM, or empty
}

// propagation is how long an API server may still use a replaced caBundle. Each API server
// watches the configurations by itself.
const propagation = 5 * time.Second

// patience is how long a rotation waits for [Advising] alone.
const patience = time.Minute

// trust is a CABundle with its history.
type trust struct {
	configuration Configuration
	webhook       string
	empty         bool  // the caBundle has been emptied; view has its previous content
	view          *view // nil: it has always been empty
	replaced      []replaced
	gone          *time.Duration // when its webhook was removed; nil: it exists
}

// isOptional reports whether a rotation may ignore this webhook.
func (t trust) isOptional() bool { return t.configuration == Advising }

// view is the configuration that an API server uses.
type view struct {
	host   string
	bundle string
	roots  *x509.CertPool
}

// replaced is a view that some API servers may still use.
type replaced struct {
	view
	at time.Duration // when it was replaced
}

func newView(a CABundle) *view {
	v := &view{host: a.Host, bundle: string(a.Bundle), roots: x509.NewCertPool()}
	v.roots.AppendCertsFromPEM(a.Bundle) // a bundle without certificates verifies nothing
	return v
}

func (v *view) verifiesPair(pair *tls.Certificate, now moment) bool {
	return v != nil && now.verifyPair(pair, v.host, v.roots) == nil
}

// withBundle returns the trust in one webhook after a change. An emptied caBundle is ignored,
// because it is never intentional: the previous content still counts.
func (t trust) withBundle(a CABundle, at time.Duration) trust {
	t.replaced = slices.DeleteFunc(slices.Clone(t.replaced), func(r replaced) bool { return at-r.at >= propagation })
	t.empty = len(a.Bundle) == 0
	if t.empty || t.view != nil && t.view.bundle == string(a.Bundle) && t.view.host == a.Host {
		return t
	}
	if t.view != nil {
		t.replaced = append(t.replaced, replaced{*t.view, at})
	}
	t.view = newView(a)
	return t
}

// choice reports whether to serve the offered pair, or why not yet.
type choice struct {
	serve bool
	code  string // as in [Pending]
	why   string
}

// choosePair decides between the served pair (nil: none) and a newer one.
//
// The rule: an API server that can call Pillion now must never lose it. The newer pair is
// served if every caBundle that verifies the served pair verifies it too, and at least one
// verifies it or none is known. Recently replaced caBundles count too, unless a webhook that the
// served pair lacks verifies the newer one.
//
// There are two exceptions for a newer pair that expires later. It is served if the served pair
// has expired. From [switchDeadline] on, it is served if some caBundle verifies it, or if none verifies
// the served pair.
func choosePair(served, offered *tls.Certificate, trusted []trust, now moment, running time.Duration) choice {
	if served == nil {
		return choice{serve: true}
	}
	if v := chooseByTime(served.Leaf, offered.Leaf, now.wall); v.code != "" {
		return v
	}
	var lost, gained []string
	known, some, old := false, false, false
	for _, t := range trusted {
		now, then := t.view.verifiesPair(offered, now), t.view.verifiesPair(served, now)
		known, some, old = known || t.view != nil, some || now, old || then
		switch {
		case then && !now:
			lost = append(lost, t.webhook)
		case now && !then:
			gained = append(gained, t.webhook)
		}
	}
	longer := offered.Leaf.NotAfter.After(served.Leaf.NotAfter)
	switch {
	case longer && now.isPast(served.Leaf.NotAfter), longer && now.isPast(switchDeadline(served.Leaf)) && (some || !old):
		return choice{serve: true}
	case len(lost) > 0:
		return choice{code: "not_trusted", why: "the caBundle of " + strings.Join(lost, ", ") + " does not verify it"}
	case known && !some:
		return choice{code: "not_trusted", why: "no caBundle verifies it"}
	case len(gained) == 0 && isSettling(served, offered, trusted, now, running):
		return choice{code: "settling", why: "API servers may not have the new caBundle yet"}
	}
	return choice{serve: true}
}

// chooseByTime returns the choice about an offered pair that is not valid now. It ignores a clock by
// which the served pair would be invalid too.
func chooseByTime(served, offered *x509.Certificate, now time.Time) choice {
	const layout = time.RFC3339
	switch {
	case now.After(offered.NotAfter) && !now.After(served.NotAfter):
		return choice{code: "expired", why: "it expired at " + offered.NotAfter.UTC().Format(layout)}
	case now.Before(offered.NotBefore) && !now.Before(served.NotBefore):
		return choice{code: "not_yet_valid", why: "it is not valid before " + offered.NotBefore.UTC().Format(layout)}
	}
	return choice{}
}

// isSettling reports whether an API server may still use a replaced caBundle that verifies the
// served pair and not the offered one.
func isSettling(served, offered *tls.Certificate, trusted []trust, now moment, running time.Duration) bool {
	for _, t := range trusted {
		for _, r := range t.replaced {
			if running-r.at < propagation && r.verifiesPair(served, now) && !r.verifiesPair(offered, now) {
				return true
			}
		}
	}
	return false
}

// switchDeadline returns the moment after which a newer certificate that only some API servers trust
// is better than c. By then a new certificate is due.
func switchDeadline(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-min(time.Hour, c.NotAfter.Sub(c.NotBefore)/10))
}

// findMismatches returns the webhooks that an API server cannot call now, each with the reason, by
// configuration. If nothing is served, these are only the webhooks without a caBundle.
func findMismatches(served *tls.Certificate, trusted []trust, now moment) map[Configuration][]string {
	all := map[Configuration][]string{}
	for _, t := range trusted {
		why := ""
		switch {
		case t.gone != nil:
			continue
		case t.empty || t.view == nil:
			why = "is empty"
		case served == nil:
			continue
		default:
			if err := now.verifyPair(served, t.view.host, t.view.roots); err != nil {
				why = fmt.Sprintf("does not verify the certificate: %v", err)
			}
		}
		if why != "" {
			all[t.configuration] = append(all[t.configuration], "the caBundle of "+t.webhook+" "+why)
		}
	}
	return all
}
