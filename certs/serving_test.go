// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// world is a Serving with two CAs and pairs of theirs.
type world struct {
	oldCA, newCA           *testCA
	first, second, another *tls.Certificate // second is the new CA's, another the old one's
}

func newWorld(t *testing.T) *world {
	t.Helper()
	start := noon()
	w := &world{
		oldCA: newTestCA(t, "old", start.Add(-10*day), start.Add(1000*day)),
		newCA: newTestCA(t, "new", start.Add(-10*day), start.Add(1000*day)),
	}
	w.first = w.oldCA.issue(t, start.Add(-10*day), start.Add(80*day))
	w.second = w.newCA.issue(t, start.Add(-day), start.Add(89*day))
	w.another = w.oldCA.issue(t, start.Add(-day), start.Add(89*day))
	return w
}

// trustBoth has both configurations trust these.
func trustBoth(s *Serving, cas ...*testCA) {
	var bundle []byte
	for _, ca := range cas {
		bundle = append(bundle, ca.pem...)
	}
	for _, c := range []Configuration{Mutating, Validating} {
		s.Trust(c, []CABundle{{Webhook: string(c), Host: testHost, Bundle: bundle}})
	}
}

// TestServingNone checks that without a certificate, nothing is served, and Pillion is not ready and has the reason.
func TestServingNone(t *testing.T) {
	s, _, _ := newTestServing()
	if _, err := s.GetCertificate(nil); err == nil {
		t.Error("there is a certificate")
	}
	if _, err := s.Status().Detail(); err == nil {
		t.Error("it is ready without a certificate")
	}
	s.Reject(ReasonUnreadable, errors.New("no such file"))
	if _, err := s.Status().Detail(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("it does not say why: %v", err)
	}
}

// TestServingRotation rotates to another CA. Pillion serves the new pair when both caBundles verify
// it and API servers have had time to read them.
func TestServingRotation(t *testing.T) {
	w := newWorld(t)
	s, hand, log := newTestServing()
	s.Offer(w.first)
	trustBoth(s, w.oldCA)
	s.Offer(w.second)
	wantServed(t, s, w.first, "before an API server trusts the new CA")
	hand.pass(time.Hour)
	s.tick()
	status := s.Status()
	if p := status.Pending; p == nil || p.Code != "not_trusted" || !p.Since.Equal(noon()) || p.Leaf != w.second.Leaf {
		t.Fatalf("pending is %+v", p)
	}
	detail, err := status.Detail()
	want := "valid until 2030-08-20T12:00:00Z; a new one waits since 2030-06-01T12:00:00Z: the caBundle of mutating, validating does not verify it"
	if err != nil || detail != want {
		t.Errorf("the detail is\n%s (%v), want\n%s", detail, err, want)
	}
	trustBoth(s, w.oldCA, w.newCA)
	wantServed(t, s, w.first, "right after the caBundles")
	hand.pass(propagation - time.Second)
	s.tick()
	wantServed(t, s, w.first, "before API servers must have them")
	hand.pass(time.Second)
	s.tick()
	wantServed(t, s, w.second, "once they have them")
	if status := s.Status(); status.Pending != nil || len(status.Mismatch) != 0 {
		t.Errorf("left over: %+v", status)
	}
	if n := strings.Count(log.String(), "a new certificate waits"); n != 2 {
		t.Errorf("told %d times that it waits, want once for each reason:\n%s", n, log)
	}
}

// TestServingOffers checks that an offered pair can be taken back or replaced before it is served.
func TestServingOffers(t *testing.T) {
	w := newWorld(t)
	s, hand, _ := newTestServing()
	s.Offer(w.first)
	trustBoth(s, w.oldCA)
	s.Offer(w.second)
	s.Offer(w.first) // rolled back
	if p := s.Status().Pending; p != nil {
		t.Errorf("pending after it was taken back: %+v", p)
	}
	s.Offer(w.second)
	s.Offer(w.another) // replaced before it was served
	wantServed(t, s, w.another, "the newest")
	s.Trust(Mutating, nil)
	s.Trust(Validating, nil)
	s.Offer(w.second)
	wantServed(t, s, w.another, "a configuration that was just deleted may be back")
	trustBoth(s, w.oldCA)
	hand.pass(time.Hour)
	s.tick()
	wantServed(t, s, w.another, "it was back")
	s.Trust(Mutating, nil)
	s.Trust(Validating, nil)
	hand.pass(propagation)
	s.tick()
	wantServed(t, s, w.second, "nobody calls")
}

// TestServingRejects checks that a pair that does not fit together is rejected, reported once, and not served.
func TestServingRejects(t *testing.T) {
	w := newWorld(t)
	s, _, log := newTestServing()
	s.Offer(w.first)
	cert, key := pemPair(t, w.another)
	_, otherKey := pemPair(t, w.first)
	for range 3 {
		if err := s.OfferPEM(cert, otherKey); err == nil {
			t.Error("a key that does not fit is no error")
		}
	}
	wantServed(t, s, w.first, "after a key that does not fit")
	detail, err := s.Status().Detail()
	if err != nil || !strings.Contains(detail, "a new one is rejected since 2030-06-01T12:00:00Z: certificate and key do not match") {
		t.Errorf("the detail is %q (%v)", detail, err)
	}
	if n := s.Status().Rejections[ReasonNoPair]; n != 1 {
		t.Errorf("rejected %d times, want once for all looks at the same pair", n)
	}
	if n := strings.Count(log.String(), "last valid one stays"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	must(t, s.OfferPEM(cert, key))
	wantServed(t, s, w.another, "after it was put right")
	if s.Status().Rejected != nil {
		t.Error("a rejection is left over")
	}

	s.Offer(w.oldCA.issue(t, noon().Add(-90*day), noon().Add(-day)))
	wantServed(t, s, w.another, "after an expired one")
	s.Offer(w.oldCA.issue(t, noon().Add(day), noon().Add(90*day)))
	wantServed(t, s, w.another, "after one of tomorrow")
	if r := s.Status().Rejections; r[ReasonExpired] != 1 || r[ReasonNotYetValid] != 1 {
		t.Errorf("rejections are %v", r)
	}
}

// TestServingTomorrow checks that a pair that becomes valid tomorrow is served tomorrow.
func TestServingTomorrow(t *testing.T) {
	w := newWorld(t)
	s, hand, _ := newTestServing()
	s.Offer(w.first)
	trustBoth(s, w.oldCA)
	tomorrow := w.oldCA.issue(t, noon().Add(day), noon().Add(90*day))
	s.Offer(tomorrow)
	hand.pass(day)
	s.tick()
	wantServed(t, s, tomorrow, "tomorrow")
}

// TestServingDeadline checks that a pair that is not trusted is served only when the pair in use expires.
func TestServingDeadline(t *testing.T) {
	w := newWorld(t)
	s, hand, _ := newTestServing()
	s.Offer(w.first)
	trustBoth(s, w.oldCA)
	s.Offer(w.second)
	for i := range 80 * 24 {
		wantServed(t, s, w.first, "before its end")
		if t.Failed() {
			t.Fatal(i)
		}
		if i == 80*24-1 {
			break
		}
		hand.pass(time.Hour)
		s.tick()
	}
	hand.pass(time.Minute)
	s.tick()
	wantServed(t, s, w.first, "a moment before its end, which an API server trusts")
	hand.pass(time.Hour)
	s.tick()
	wantServed(t, s, w.second, "at its end")
}

// TestServingClockJumps checks that if the clock of the machine jumps, the pair and readiness stay.
// If the clock keeps the new time, Pillion uses it.
func TestServingClockJumps(t *testing.T) {
	w := newWorld(t)
	for _, by := range []time.Duration{1000 * day, -1000 * day} {
		s, hand, _ := newTestServing()
		s.Offer(w.first)
		trustBoth(s, w.oldCA)
		s.tick()
		s.Status() // reads the clock while it is right
		hand.jump(by)
		s.tick()
		wantServed(t, s, w.first, "after a jump")
		status := s.Status()
		if _, err := status.Detail(); err != nil || len(status.Mismatch) != 0 {
			t.Errorf("%v: not ready, or mismatched: %v %v", by, err, status.Mismatch)
		}
		s.Offer(w.second)
		wantServed(t, s, w.first, "after a jump, and a pair that nobody trusts")
		hand.jump(-by)
		s.tick()
		wantServed(t, s, w.first, "after the jump back")
		hand.jump(by)
		s.tick()
		hand.pass(2 * believed)
		s.tick()
		if _, err := s.Status().Detail(); err == nil {
			t.Errorf("%v: a clock that goes on saying so is not believed", by)
		}
	}
}

// TestServingMismatch checks that the status names each webhook whose CA bundle does not verify the certificate.
func TestServingMismatch(t *testing.T) {
	w := newWorld(t)
	s, _, _ := newTestServing()
	s.Offer(w.first)
	s.Trust(Mutating, []CABundle{{Webhook: "a", Host: testHost, Bundle: w.oldCA.pem}, {Webhook: "b", Host: testHost}})
	s.Trust(Validating, []CABundle{{Webhook: "c", Host: "example.com", Bundle: w.oldCA.pem}, {Webhook: "d", Host: testHost, Bundle: []byte("x")}})
	status := s.Status()
	if len(status.Mismatch[Mutating]) != 1 || len(status.Mismatch[Validating]) != 2 {
		t.Errorf("mismatches are %q", status.Mismatch)
	}
	detail, err := status.Detail()
	for _, want := range []string{"the caBundle of b is empty", "the caBundle of c does not verify the certificate: ", "the caBundle of d does not"} {
		if !strings.Contains(detail, want) || err != nil {
			t.Errorf("the detail lacks %q: %s (%v)", want, detail, err)
		}
	}
}

// TestServingBlind checks that a new pair is served if the configurations cannot be watched, so that Pillion does not know who
// trusts it.
func TestServingBlind(t *testing.T) {
	w := newWorld(t)
	s, hand, log := newTestServing()
	s.Offer(w.first)
	for range 3 {
		s.Blind(Mutating, errors.New("forbidden"))
	}
	if detail, err := s.Status().Detail(); err != nil || !strings.Contains(detail, "the mutating webhook configuration cannot be watched: forbidden") {
		t.Errorf("the detail is %q (%v)", detail, err)
	}
	s.Offer(w.second)
	wantServed(t, s, w.second, "nothing is known")
	if n := strings.Count(log.String(), "cannot be watched"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	hand.pass(blindFor)
	if len(s.Status().Blind) != 0 {
		t.Error("still blind, though nobody says so")
	}
}

// TestServingAwaits checks the time right after the start, when it is unknown what API servers
// trust. The first pair does not wait for that. A newer pair waits, but not forever.
func TestServingAwaits(t *testing.T) {
	w := newWorld(t)
	for what, told := range map[string]struct {
		event func(*Serving, *handClock)
		want  *tls.Certificate
	}{
		"nothing":                 {func(*Serving, *handClock) {}, w.first},
		"one of both":             {func(s *Serving, _ *handClock) { s.Trust(Mutating, nil) }, w.first},
		"that there are none":     {func(s *Serving, _ *handClock) { s.Trust(Mutating, nil); s.Trust(Validating, nil) }, w.second},
		"that they do not trust":  {func(s *Serving, _ *handClock) { trustBoth(s, w.oldCA) }, w.first},
		"that they trust":         {func(s *Serving, _ *handClock) { trustBoth(s, w.oldCA, w.newCA) }, w.second},
		"that it cannot be known": {func(s *Serving, _ *handClock) { s.Trust(Mutating, nil); s.Blind(Validating, errors.New("x")) }, w.first},
		"the same, for long": {func(s *Serving, h *handClock) {
			s.Blind(Validating, errors.New("x"))
			h.pass(awaitFor)
		}, w.second},
		"nothing for long": {func(_ *Serving, h *handClock) { h.pass(awaitFor) }, w.second},
	} {
		s, hand, _ := newTestServing()
		s.Await(Mutating, Validating)
		s.Offer(w.first)
		wantServed(t, s, w.first, "the first")
		s.Offer(w.second)
		wantServed(t, s, w.first, "before anything is told")
		told.event(s, hand)
		s.tick()
		wantServed(t, s, told.want, what)
	}
}

// TestFiles checks that a pair is read from files, and that invalid files change nothing.
func TestFiles(t *testing.T) {
	w := newWorld(t)
	s, _, _ := newTestServing()
	dir := t.TempDir()
	f := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), Serving: s}
	if err := f.Load(); err == nil || s.Status().Rejections[ReasonUnreadable] != 1 {
		t.Errorf("no files: %v", err)
	}
	cert, key := pemPair(t, w.first)
	newCert, newKey := pemPair(t, w.another)
	write(t, f.Cert, cert)
	write(t, f.Key, key)
	must(t, f.Load())
	wantServed(t, s, w.first, "the first")
	for what, bad := range map[string][2][]byte{
		"half of the new certificate": {newCert[:len(newCert)/2], key},
		"the old key":                 {newCert, key},
		"half of the new key":         {newCert, newKey[:len(newKey)/2]},
		"no key":                      {newCert, nil},
		"garbage":                     {[]byte("x"), []byte("y")},
	} {
		write(t, f.Cert, bad[0])
		write(t, f.Key, bad[1])
		if err := f.Load(); err == nil {
			t.Errorf("%s: no error", what)
		}
		wantServed(t, s, w.first, what)
	}
	write(t, f.Cert, newCert)
	write(t, f.Key, newKey)
	must(t, f.Load())
	wantServed(t, s, w.another, "the new one")
	if s.Status().Rejected != nil {
		t.Error("a rejection is left over")
	}
}

// TestServingConcurrently checks that connections get a certificate while pairs are offered.
func TestServingConcurrently(t *testing.T) {
	w := newWorld(t)
	s, _, _ := newTestServing()
	s.Offer(w.first)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				if pair, err := s.GetCertificate(nil); pair == nil || err != nil {
					t.Error("no certificate", err)
				}
			}
		})
	}
	for range 50 {
		trustBoth(s, w.oldCA, w.newCA)
		s.Offer(w.second)
		s.Offer(w.another)
		s.Reject(ReasonNoPair, errors.New("x"))
		s.Status()
	}
	wg.Wait()
	wantServed(t, s, w.another, "the last one offered")
}

func BenchmarkGetCertificate(b *testing.B) {
	s := NewServing(nil)
	s.current.Store(&tls.Certificate{})
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			_, _ = s.GetCertificate(nil)
		}
	})
}
