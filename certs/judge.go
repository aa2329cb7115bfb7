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

// Configuration is one of the webhook configurations.
type Configuration string

// The configurations. Advising is of the component advise: it may be missing, and
// without it warnings are lost, and nothing else.
const (
	Mutating   Configuration = "mutating"
	Validating Configuration = "validating"
	Advising   Configuration = "advising"
)

// AllConfigurations are all of them.
func AllConfigurations() []Configuration { return []Configuration{Mutating, Validating, Advising} }

// Named is the configuration's name in a cluster where the first two have this one.
func (c Configuration) Named(name string) string {
	if c == Advising {
		return name + "-advise"
	}
	return name
}

// Kind is its kind.
func (c Configuration) Kind() string {
	if c == Mutating {
		return "MutatingWebhookConfiguration"
	}
	return "ValidatingWebhookConfiguration"
}

// CABundle is what API servers use to verify Pillion when they call one webhook.
type CABundle struct {
	Webhook string // its name in the configuration
	Host    string // the name that the certificate must bear
	Bundle  []byte // caBundle: PEM, or nothing
}

// propagation is how long an API server may go by a caBundle that has been
// replaced. It follows the configurations by a watch of its own; if there are
// several, each by its own.
const propagation = 5 * time.Second

// patience is how long a rotation waits for [Advising] alone.
const patience = time.Minute

// trust is a CABundle with what led to it.
type trust struct {
	configuration Configuration
	webhook       string
	empty         bool  // it has been emptied; view is what was there before
	view          *view // nil: it was never anything but empty
	replaced      []replaced
	gone          *time.Duration // when its webhook was taken away; nil: it is there
}

// optional reports whether a rotation may lose it.
func (t trust) optional() bool { return t.configuration == Advising }

// view is what an API server goes by.
type view struct {
	host   string
	bundle string
	roots  *x509.CertPool
}

// replaced is a view that some API servers may still have.
type replaced struct {
	view
	at time.Duration // when
}

func newView(a CABundle) *view {
	v := &view{host: a.Host, bundle: string(a.Bundle), roots: x509.NewCertPool()}
	v.roots.AppendCertsFromPEM(a.Bundle) // what is no certificate verifies nothing
	return v
}

func (v *view) verifies(pair *tls.Certificate, now moment) bool {
	return v != nil && now.verify(pair, v.host, v.roots) == nil
}

// update is the trust in one webhook after what is said of it now. A caBundle
// that is emptied says nothing, since nobody means that: what it was still counts.
func (t trust) update(a CABundle, at time.Duration) trust {
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

// verdict reports whether the offered pair is to be served, or else why not yet.
type verdict struct {
	serve bool
	code  string // of [Pending]
	why   string
}

// judge decides between the served pair (nil: none) and a newer one.
//
// The rule is that no API server that can call us now may lose us: the newer pair
// is served when every caBundle that verifies the served one verifies it too, and
// so did those that were replaced a moment ago. One that no caBundle verifies is no
// better than the served one, until that has expired. When it is about to, a newer
// one that some API server trusts is better.
func judge(served, offered *tls.Certificate, trusted []trust, now moment, running time.Duration) verdict {
	if served == nil {
		return verdict{serve: true}
	}
	if v := judgeTime(served.Leaf, offered.Leaf, now.wall); v.code != "" {
		return v
	}
	var lost, gained []string
	known, some, old := false, false, false
	for _, t := range trusted {
		now, then := t.view.verifies(offered, now), t.view.verifies(served, now)
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
	case longer && now.passed(served.Leaf.NotAfter), longer && now.passed(deadline(served.Leaf)) && (some || !old):
		return verdict{serve: true}
	case len(lost) > 0:
		return verdict{code: "not_trusted", why: "the caBundle of " + strings.Join(lost, ", ") + " does not verify it"}
	case known && !some:
		return verdict{code: "not_trusted", why: "no caBundle verifies it"}
	case len(gained) == 0 && unsettled(served, offered, trusted, now, running):
		return verdict{code: "settling", why: "API servers may not have the new caBundle yet"}
	}
	return verdict{serve: true}
}

// judgeTime finds that the offered pair is not valid now. A clock by which the
// served pair is not valid either says nothing.
func judgeTime(served, offered *x509.Certificate, now time.Time) verdict {
	const layout = time.RFC3339
	switch {
	case now.After(offered.NotAfter) && !now.After(served.NotAfter):
		return verdict{code: "expired", why: "it expired at " + offered.NotAfter.UTC().Format(layout)}
	case now.Before(offered.NotBefore) && !now.Before(served.NotBefore):
		return verdict{code: "not_yet_valid", why: "it is not valid before " + offered.NotBefore.UTC().Format(layout)}
	}
	return verdict{}
}

// unsettled reports whether an API server that is a moment behind could lose us.
func unsettled(served, offered *tls.Certificate, trusted []trust, now moment, running time.Duration) bool {
	for _, t := range trusted {
		for _, r := range t.replaced {
			if running-r.at < propagation && r.verifies(served, now) && !r.verifies(offered, now) {
				return true
			}
		}
	}
	return false
}

// deadline is the moment from which a newer certificate that only some API
// servers trust is better than c, and a new one is due at the latest.
func deadline(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-min(time.Hour, c.NotAfter.Sub(c.NotBefore)/10))
}

// mismatches are the webhooks that an API server cannot call now, each with why.
func mismatches(served *tls.Certificate, trusted []trust, now moment) map[Configuration][]string {
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
			if err := now.verify(served, t.view.host, t.view.roots); err != nil {
				why = fmt.Sprintf("does not verify the certificate: %v", err)
			}
		}
		if why != "" {
			all[t.configuration] = append(all[t.configuration], "the caBundle of "+t.webhook+" "+why)
		}
	}
	return all
}
