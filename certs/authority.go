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

// AuthorityOptions configures an [Authority].
type AuthorityOptions struct {
	Client dynamic.Interface

	Namespace, Name string // of the Secret
	Configuration   string // name of the webhook configurations, see [Configuration.Named]
	Identity        string // unique for each replica
	Policy          Policy
	Serving         *Serving
	Log             *slog.Logger
}

// Authority issues the serving certificate of all replicas if no other source does. The CA and
// the certificate are in one Secret that the replicas share. The first replica creates it. An
// elected replica renews its content, and keeps the caBundles of the webhook configurations
// equal to it.
type Authority struct {
	AuthorityOptions
	clock *clock
	calm  map[Configuration]flowcontrol.RateLimiter // of writes of caBundles, if another client keeps changing them
	kick  chan struct{}

	mu     sync.Mutex
	view   authorityView
	status AuthorityStatus

	agreedOn *x509.Certificate // the CA that all API servers are known to trust, ignoring [Advising]
	agreed   time.Duration     // since when
	made     *made             // used by step only
}

// authorityView is what the Authority knows about the cluster.
type authorityView struct {
	known   bool           // whether the Secret's state is known
	secret  *corev1.Secret // nil: it does not exist
	missed  time.Duration  // since when it is missing
	held    material       // the Secret's content
	last    material       // the last content that had a CA
	bundles map[Configuration][]CABundle
	applied map[Configuration]string // the caBundles applied since then
	leading bool
}

// AuthorityStatus describes the state of an Authority.
type AuthorityStatus struct {
	Leading bool
	CA      *x509.Certificate // the issuing CA; nil: none yet
	Failed  int               // failed attempts to write
	Problem error             // error of the last attempt
}

// NewAuthority returns an Authority that does nothing until Run is called.
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

// Run issues and renews certificates until ctx is done.
func (a *Authority) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { followObject(ctx, a.secretClient(), a.Name, a.observeSecret, a.reportUnwatchable) })
	wg.Go(func() { a.runElection(ctx) })
	failures := 0
	for {
		next, err := a.performStep(ctx)
		if err == nil {
			failures = 0
		} else {
			next = min(time.Second<<min(failures, 5), 30*time.Second)
			failures++
		}
		if ctx.Err() != nil {
			return
		}
		a.recordProblem(err)
		select {
		case <-ctx.Done():
			return
		case <-a.kick:
		case <-time.After(next):
		}
	}
}

func (a *Authority) requestStep() {
	select {
	case a.kick <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// observeSecret stores the Secret's new state and offers its pair to Serving.
func (a *Authority) observeSecret(secret *corev1.Secret) {
	a.mu.Lock()
	if secret == nil && (!a.view.known || a.view.secret != nil) {
		a.view.missed = a.clock.running()
	}
	a.view.setSecret(secret)
	if ca := a.view.last.ca; ca != nil {
		a.status.CA = ca.cert
	}
	a.mu.Unlock()
	if secret != nil {
		_ = a.Serving.OfferPEM(secret.Data[keyLeaf], secret.Data[keyLeafKey]) // OfferPEM logs the error
	}
	a.requestStep()
}

// reportUnwatchable reports that the Secret cannot be watched.
func (a *Authority) reportUnwatchable(err error) { a.Serving.Reject(ReasonUnreadable, err) }

// Trust reports the caBundles that API servers use, as [Serving.Trust] does.
func (a *Authority) Trust(c Configuration, bundles []CABundle) {
	a.mu.Lock()
	a.view.bundles[c] = bundles
	delete(a.view.applied, c)
	a.mu.Unlock()
	a.requestStep()
}

// setLeading records whether this replica is the elected one.
func (a *Authority) setLeading(leading bool) {
	a.mu.Lock()
	changed := leading != a.view.leading
	a.view.leading, a.status.Leading = leading, leading
	a.mu.Unlock()
	if changed {
		a.requestStep()
	}
}

func (a *Authority) recordProblem(err error) {
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

// Status returns a snapshot.
func (a *Authority) Status() AuthorityStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// snapshotView returns a snapshot of the view.
func (a *Authority) snapshotView() authorityView {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.view
	v.bundles, v.applied = maps.Clone(a.view.bundles), maps.Clone(a.view.applied)
	return v
}

// isCATrusted reports whether every API server trusts the CA, because the configurations have
// contained it for long enough. A configuration that does not exist does not count: API
// servers do not call its webhooks. It waits for [Advising] only for a limited time.
func (a *Authority) isCATrusted(ca *x509.Certificate, v authorityView) bool {
	holds := func(n CABundle) bool { return containsCertificate(parseCertificates(n.Bundle), ca) }
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

// yieldsToOthers reports whether this replica should let another one create the Secret. For a moment,
// it lets a replica go first that may know the CA that API servers trust.
func (a *Authority) yieldsToOthers(v authorityView) bool {
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

// setSecret updates the view with the Secret (nil: it does not exist). The CA of a deleted Secret
// stays in use, so that clients can still verify what is served; its certificate is issued
// again. The same holds for a Secret that lost its bundle.
func (v *authorityView) setSecret(secret *corev1.Secret) {
	v.known, v.secret = true, secret
	if secret == nil {
		v.held = material{ca: v.last.ca, bundle: v.last.bundle}
		return
	}
	v.held = parseMaterial(secret.Data)
	if len(parseCertificates(secret.Data[keyCABundle])) == 0 {
		for _, c := range v.last.bundle {
			if !containsCertificate(v.held.bundle, c) {
				v.held.bundle = append(v.held.bundle, c)
			}
		}
	}
	if v.held.ca != nil {
		v.last = v.held
	}
}
