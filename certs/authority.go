// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/x509"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"
)

// AuthorityOptions are what an [Authority] needs.
type AuthorityOptions struct {
	Client dynamic.Interface

	Namespace, Name string // of the Secret
	Configuration   string // the name of the webhook configurations, see [Configuration.Named]
	Identity        string // of this replica, unlike the others'
	Policy          Policy
	Serving         *Serving
	Log             *slog.Logger
}

// Authority issues the certificates of all replicas where nobody else does. CA and
// certificate are in one Secret that the replicas share. The first one makes it;
// one of them, elected, renews what is in it, and has the caBundles of the webhook
// configurations say the same.
type Authority struct {
	AuthorityOptions
	clock *clock
	calm  map[Configuration]flowcontrol.RateLimiter // of writes of caBundles: somebody may fight for them
	kick  chan struct{}

	mu     sync.Mutex
	view   authorityView
	status AuthorityStatus

	agreedOn *x509.Certificate // the CA that all API servers are seen to trust, [Advising] aside
	agreed   time.Duration     // since when
	made     *made             // for step alone
}

// authorityView is what the Authority sees of the cluster.
type authorityView struct {
	known   bool           // whether there is a Secret
	secret  *corev1.Secret // nil: there is none
	missed  time.Duration  // since when
	held    material       // what is in it
	last    material       // the last of these that had a CA
	bundles map[Configuration][]CABundle
	applied map[Configuration]string // the caBundle that was applied since then
	leading bool
}

// AuthorityStatus is what there is to say about an Authority.
type AuthorityStatus struct {
	Leading bool
	CA      *x509.Certificate // that issues; nil: none yet
	Failed  int               // attempts to write something
	Problem error             // of the last attempt
}

// NewAuthority does nothing until it is run.
func NewAuthority(o AuthorityOptions) *Authority {
	a := &Authority{
		AuthorityOptions: o,
		clock:            newClock(),
		calm:             map[Configuration]flowcontrol.RateLimiter{},
		kick:             make(chan struct{}, 1),
		view:             authorityView{bundles: map[Configuration][]CABundle{}, applied: map[Configuration]string{}},
	}
	for _, c := range AllConfigurations() {
		a.calm[c] = flowcontrol.NewTokenBucketRateLimiter(0.5, 10)
	}
	return a
}

// Run issues and renews until ctx is done.
func (a *Authority) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { follow(ctx, a.secrets(), a.Name, a.observe, a.blind) })
	wg.Go(func() { a.elect(ctx) })
	failures := 0
	for {
		next, err := a.step(ctx)
		if err == nil {
			failures = 0
		} else {
			next = min(time.Second<<min(failures, 5), 30*time.Second)
			failures++
		}
		if ctx.Err() != nil {
			return
		}
		a.tell(err)
		select {
		case <-ctx.Done():
			return
		case <-a.kick:
		case <-time.After(next):
		}
	}
}

func (a *Authority) wake() {
	select {
	case a.kick <- struct{}{}:
	default: // it will look anyway
	}
}

// observe takes note of the Secret, and offers what is in it.
func (a *Authority) observe(secret *corev1.Secret) {
	a.mu.Lock()
	if secret == nil && (!a.view.known || a.view.secret != nil) {
		a.view.missed = a.clock.running()
	}
	a.view.see(secret)
	if ca := a.view.last.ca; ca != nil {
		a.status.CA = ca.cert
	}
	a.mu.Unlock()
	if secret != nil {
		_ = a.Serving.OfferPEM(secret.Data[keyLeaf], secret.Data[keyLeafKey]) // which tells it
	}
	a.wake()
}

// blind is told that the Secret cannot be watched.
func (a *Authority) blind(err error) { a.Serving.Reject(ReasonUnreadable, err) }

// Trust is told what API servers go by, as [Serving] is.
func (a *Authority) Trust(c Configuration, bundles []CABundle) {
	a.mu.Lock()
	a.view.bundles[c] = bundles
	delete(a.view.applied, c)
	a.mu.Unlock()
	a.wake()
}

// lead takes note of being the elected one or not.
func (a *Authority) lead(leading bool) {
	a.mu.Lock()
	changed := leading != a.view.leading
	a.view.leading, a.status.Leading = leading, leading
	a.mu.Unlock()
	if changed {
		a.wake()
	}
}

func (a *Authority) tell(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.status.Problem
	a.status.Problem = err
	if err == nil {
		return
	}
	a.status.Failed++
	if before == nil || before.Error() != err.Error() {
		a.Log.Error("the certificates cannot be updated, trying again", "error", err)
	}
}

// Status is a snapshot.
func (a *Authority) Status() AuthorityStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// look is a snapshot of what is seen.
func (a *Authority) look() authorityView {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.view
	v.bundles, v.applied = maps.Clone(a.view.bundles), maps.Clone(a.view.applied)
	return v
}

// trusts reports whether every API server trusts the CA: the configurations said so
// for long enough. One that does not exist is called by nobody. [Advising] is
// waited for, but not for long.
func (a *Authority) trusts(ca *x509.Certificate, v authorityView) bool {
	holds := func(n CABundle) bool { return contains(parseCertificates(n.Bundle), ca) }
	lacks := func(c Configuration) bool {
		return slices.ContainsFunc(v.bundles[c], func(n CABundle) bool { return !holds(n) })
	}
	_, mutating := v.bundles[Mutating]
	_, validating := v.bundles[Validating]
	running := a.clock.running()
	switch {
	case !mutating || !validating || lacks(Mutating) || lacks(Validating):
		a.agreedOn = nil
		return false
	case a.agreedOn == nil || !a.agreedOn.Equal(ca):
		a.agreedOn, a.agreed = ca, running
	}
	return running-a.agreed >= propagation && !lacks(Advising) || running-a.agreed >= patience
}

// yields reports whether another replica should make the Secret: one that knows the CA
// which API servers trust, if there is one. For a moment, that is.
func (a *Authority) yields(v authorityView) bool {
	if v.last.ca != nil || a.clock.running()-v.missed >= propagation {
		return false
	}
	for _, c := range []Configuration{Mutating, Validating} {
		bundles, known := v.bundles[c]
		if !known || slices.ContainsFunc(bundles, func(n CABundle) bool { return len(n.Bundle) > 0 }) {
			return true
		}
	}
	return false
}

// see takes note of the Secret (nil: there is none). One that was deleted leaves
// its CA, so that nothing that is served stops verifying; its certificate is made
// anew. One that lost its bundle leaves that.
func (v *authorityView) see(secret *corev1.Secret) {
	v.known, v.secret = true, secret
	if secret == nil {
		v.held = material{ca: v.last.ca, bundle: v.last.bundle}
		return
	}
	v.held = parseMaterial(secret.Data)
	if len(parseCertificates(secret.Data[keyCABundle])) == 0 {
		for _, c := range v.last.bundle {
			if !contains(v.held.bundle, c) {
				v.held.bundle = append(v.held.bundle, c)
			}
		}
	}
	if v.held.ca != nil {
		v.last = v.held
	}
}
