// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Serving holds the key pair in use. Sources offer it newer pairs, and report the
// caBundles that API servers trust. [choosePair] decides when to switch.
type Serving struct {
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate] // the only field that handshakes read
	first   chan struct{}                   // closed when there is a pair

	mu         sync.Mutex // of the following fields, which handshakes do not use
	clock      *clock
	pending    *Pending
	trusted    []trust
	awaited    map[Configuration]bool // configurations that were not reported yet
	await      time.Duration          // when Serving stops waiting for them
	blind      map[Configuration]blind
	rejected   *Rejected
	rejections map[string]int
}

// Pending is a pair that is not served yet.
type Pending struct {
	Leaf  *x509.Certificate
	Since time.Time
	Code  string // not_trusted, not_known, settling, expired or not_yet_valid
	Why   string

	pair    *tls.Certificate
	allowed *time.Duration // since when only [Advising] does not trust the pair
}

// Rejected describes the last offered pair, if it was invalid.
type Rejected struct {
	Since time.Time
	Err   error
}

// blind is the reason that a configuration cannot be watched.
type blind struct {
	at  time.Duration
	err error
}

// blindFor is longer than the pause between two attempts to watch.
const blindFor = 90 * time.Second

// awaitFor is longer than an API server takes to list the configurations.
const awaitFor = time.Minute

// The reasons for rejecting a pair.
const (
	ReasonUnreadable  = "unreadable"
	ReasonNoPair      = "no_pair"
	ReasonExpired     = "expired"
	ReasonNotYetValid = "not_yet_valid"
)

// RejectionReasons returns all of them.
func RejectionReasons() []string {
	return []string{ReasonUnreadable, ReasonNoPair, ReasonExpired, ReasonNotYetValid}
}

// NewServing returns a Serving without a pair.
func NewServing(log *slog.Logger) *Serving {
	return &Serving{
		log: log, clock: newClock(), first: make(chan struct{}),
		awaited: map[Configuration]bool{}, blind: map[Configuration]blind{}, rejections: map[string]int{},
	}
}

var errNone = errors.New("there is no serving certificate yet")

// GetCertificate implements the field of [tls.Config]. It takes no lock, and reads no file and no clock.
func (s *Serving) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := s.current.Load(); pair != nil {
		return pair, nil
	}
	return nil, errNone
}

// Ready returns a channel that is closed when there is a pair to serve. From then on there always is one.
func (s *Serving) Ready() <-chan struct{} { return s.first }

// Offer reports the newest pair of a source.
func (s *Serving) Offer(pair *tls.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejected = nil
	switch {
	case sameChain(pair, s.current.Load()):
		s.pending = nil
	case s.pending == nil || !sameChain(pair, s.pending.pair):
		s.pending = &Pending{Leaf: pair.Leaf, Since: s.clock.now().wall, pair: pair}
	}
	s.switchIfTrusted()
}

// OfferPEM parses a pair and calls Offer. It rejects an invalid pair as [Serving.Reject]
// does, and returns the error.
func (s *Serving) OfferPEM(cert, key []byte) error {
	pair, err := ParsePair(cert, key)
	if err != nil {
		s.Reject(ReasonNoPair, err)
		return err
	}
	s.Offer(pair)
	return nil
}

// Reject reports that the pair of a source is invalid, so the pair in use stays. The
// reason is one of [RejectionReasons].
func (s *Serving) Reject(reason string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rejected != nil && s.rejected.Err.Error() == err.Error() {
		return
	}
	s.rejected = &Rejected{Since: s.clock.now().wall, Err: err}
	s.rejections[reason]++
	if s.current.Load() != nil {
		s.log.Warn("the certificate cannot be reloaded, the last valid one stays in use", "reason", reason, "error", err)
	}
}

// Await announces that Trust will be called for these configurations. Until then,
// Serving switches to no newer pair. It waits for a limited time only, because the
// permission to watch them may be granted late.
func (s *Serving) Await(all ...Configuration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.await = s.clock.running() + awaitFor
	for _, c := range all {
		s.awaited[c] = true
	}
}

// Trust reports the caBundles with which API servers call the webhooks of a
// configuration. Without bundles, they call none.
func (s *Serving) Trust(c Configuration, bundles []CABundle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.blind, c)
	delete(s.awaited, c)
	now := s.clock.running()
	before := map[string]trust{}
	s.trusted = slices.DeleteFunc(s.trusted, func(t trust) bool {
		if t.configuration == c {
			before[t.webhook] = t
		}
		return t.configuration == c
	})
	for _, a := range bundles {
		t := before[a.Webhook]
		delete(before, a.Webhook)
		t.configuration, t.webhook, t.gone = c, a.Webhook, nil
		s.trusted = append(s.trusted, t.withBundle(a, now))
	}
	// A configuration that is deleted and created again trusts the same CAs as before.
	for _, name := range slices.Sorted(maps.Keys(before)) {
		t := before[name]
		if t.gone == nil {
			t.gone = &now
		}
		s.trusted = append(s.trusted, t)
	}
	slices.SortStableFunc(s.trusted, func(a, b trust) int { return strings.Compare(string(a.configuration), string(b.configuration)) })
	s.switchIfTrusted()
}

// Blind reports that a configuration cannot be watched. Serving keeps using its last known state.
func (s *Serving) Blind(c Configuration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, known := s.blind[c]; !known || before.err.Error() != err.Error() {
		s.log.Warn("the webhook configuration cannot be watched, so whether API servers trust a new certificate is unknown",
			"configuration", c, "error", err)
	}
	s.blind[c] = blind{s.clock.running(), err}
	s.switchIfTrusted()
}

// Run checks the pending pair again as time passes, until ctx is done. It does nothing
// if there is no pending pair.
func (s *Serving) Run(ctx context.Context) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		s.mu.Lock()
		s.switchIfTrusted()
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// switchIfTrusted switches to the pending pair if every API server trusts it.
func (s *Serving) switchIfTrusted() {
	now := s.clock.now()
	s.trusted = slices.DeleteFunc(s.trusted, func(t trust) bool { return t.gone != nil && s.clock.running()-*t.gone >= propagation })
	if s.pending == nil {
		return
	}
	p := *s.pending // Status returns pointers, so a pending pair is replaced, not changed
	served, running := s.current.Load(), s.clock.running()
	v := choosePair(served, p.pair, slices.DeleteFunc(slices.Clone(s.trusted), trust.isOptional), now, running)
	if !v.serve {
		p.allowed = nil
	} else if all := choosePair(served, p.pair, s.trusted, now, running); !all.serve {
		if p.allowed == nil {
			p.allowed = &running
		}
		if running-*p.allowed < patience {
			v = all
		}
	}
	if v.serve && served != nil && len(s.awaited) > 0 && running < s.await {
		v = choice{code: "not_known", why: "it is still unknown what API servers trust"}
	}
	if v.serve {
		s.pending = nil
		s.current.Store(p.pair)
		if served == nil {
			close(s.first)
		}
		s.log.Info("certificate in use", "names", p.Leaf.DNSNames, "expires", p.Leaf.NotAfter, "serial", fmt.Sprintf("%x", p.Leaf.SerialNumber))
		return
	}
	if v.code != p.Code {
		if v.code == ReasonExpired || v.code == ReasonNotYetValid {
			s.rejections[v.code]++
		}
		s.log.Warn("a new certificate waits, the last valid one stays in use", "reason", v.code, "error", v.why, "expires", p.Leaf.NotAfter)
	}
	p.Code, p.Why = v.code, v.why
	s.pending = &p
}

// Status describes the serving certificate.
type Status struct {
	Leaf       *x509.Certificate // of the pair in use; nil: none yet
	Pending    *Pending          // nil: none
	Rejected   *Rejected         // nil: the last offered pair was valid
	Rejections map[string]int    // count by reason

	// Mismatch has a sentence for every webhook that API servers cannot call,
	// because its caBundle does not verify the certificate in use.
	Mismatch map[Configuration][]string
	// Blind has the reasons that configurations cannot be watched.
	Blind map[Configuration]error

	// Invalid is set if the certificate in use has expired or is not valid yet. A clock
	// that jumped has no effect on it.
	Invalid error
}

// Status returns a snapshot.
func (s *Serving) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, served := s.clock.now(), s.current.Load()
	status := Status{
		Pending: s.pending, Rejected: s.rejected, Rejections: maps.Clone(s.rejections),
		Mismatch: findMismatches(served, s.trusted, now), Blind: map[Configuration]error{},
	}
	for c, b := range s.blind {
		if s.clock.running()-b.at < blindFor {
			status.Blind[c] = b.err
		}
	}
	if served == nil {
		status.Invalid = errNone
		return status
	}
	status.Leaf = served.Leaf
	switch {
	case now.isPast(served.Leaf.NotAfter):
		status.Invalid = errors.New("the certificate expired at " + formatTime(served.Leaf.NotAfter))
	case now.isFuture(served.Leaf.NotBefore):
		status.Invalid = errors.New("the certificate is not valid before " + formatTime(served.Leaf.NotBefore))
	}
	return status
}

// Detail returns the status as one line for users. It returns an error if the
// certificate in use is invalid.
func (s Status) Detail() (string, error) {
	var notes []string
	if s.Leaf != nil {
		notes = append(notes, "valid until "+formatTime(s.Leaf.NotAfter))
	}
	if p := s.Pending; p != nil {
		notes = append(notes, fmt.Sprintf("a new one waits since %s: %s", formatTime(p.Since), p.Why))
	}
	if r := s.Rejected; r != nil {
		notes = append(notes, fmt.Sprintf("a new one is rejected since %s: %v", formatTime(r.Since), r.Err))
	}
	for _, c := range AllConfigurations() {
		notes = append(notes, s.Mismatch[c]...)
		if err := s.Blind[c]; err != nil {
			notes = append(notes, fmt.Sprintf("the %s webhook configuration cannot be watched: %v", c, err))
		}
	}
	detail := strings.ReplaceAll(strings.Join(notes, "; "), "\n", " ")
	if s.Invalid != nil && detail != "" {
		return detail, fmt.Errorf("%w; %s", s.Invalid, detail)
	}
	return detail, s.Invalid
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
