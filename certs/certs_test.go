// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"testing"
	"time"
)

const testHost = "pillion.pillion-system.svc"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	must(t, os.WriteFile(path, data, 0o600))
}

// testCA signs what a test needs.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newTestCA(t *testing.T, name string, from, to time.Time) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	pair, err := signPair(template, template, key, key)
	must(t, err)
	return &testCA{pair.Leaf, key, pemOf(pair.Certificate[0])}
}

// issue makes a serving certificate; edits change it before it is signed.
func (ca *testCA) issue(t *testing.T, from, to time.Time, edits ...func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := leafTemplate(from, to.Sub(from), []string{testHost})
	template.NotBefore = from
	for _, edit := range edits {
		edit(template)
	}
	pair, err := signPair(template, ca.cert, key, ca.key)
	must(t, err)
	return pair
}

func pemOf(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pemPair is a pair as files hold it.
func pemPair(t *testing.T, pair *tls.Certificate) (cert, key []byte) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	must(t, err)
	return pemOf(pair.Certificate[0]), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// handClock is a clock that tests set: by passing time, or by a jump.
type handClock struct {
	wallNow time.Time
	ran     time.Duration
}

func (h *handClock) clock() *clock {
	return &clock{wall: func() time.Time { return h.wallNow }, running: func() time.Duration { return h.ran }}
}

func (h *handClock) pass(d time.Duration) { h.wallNow, h.ran = h.wallNow.Add(d), h.ran+d }
func (h *handClock) jump(d time.Duration) { h.wallNow = h.wallNow.Add(d) }

// noon is when the tests begin.
func noon() time.Time { return time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC) }

// newTestServing is a Serving by a clock of the test's, which starts at noon.
func newTestServing() (*Serving, *handClock, *bytes.Buffer) {
	log := &bytes.Buffer{}
	s, hand := NewServing(slog.New(slog.NewTextHandler(log, nil))), &handClock{wallNow: noon()}
	s.clock = hand.clock()
	return s, hand, log
}

// tick is what Run does now and then.
func (s *Serving) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.switchIfTrusted()
}

// wantServed reports which pair a handshake gets.
func wantServed(t *testing.T, s *Serving, want *tls.Certificate, what string) {
	t.Helper()
	if got, err := s.GetCertificate(nil); err != nil || !sameChain(got, want) {
		t.Errorf("%s: another pair is served (%v)", what, err)
	}
}

// TestSelfSigned checks that the certificate is valid for each of its names, and for no other.
func TestSelfSigned(t *testing.T) {
	c, err := SelfSigned("localhost", "127.0.0.1", testHost)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(c.Leaf)
	for _, name := range []string{"localhost", "127.0.0.1", testHost} {
		if err := verifyPair(c, name, roots, time.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := verifyPair(c, "example.com", roots, time.Now()); err == nil {
		t.Error("it is for every host")
	}
	if c.Leaf.SignatureAlgorithm != x509.ECDSAWithSHA256 {
		t.Errorf("signed with %v", c.Leaf.SignatureAlgorithm)
	}
}

// TestParsePair checks that damaged, missing, exchanged and wrong certificates and keys are rejected.
func TestParsePair(t *testing.T) {
	ca := newTestCA(t, "ca", noon(), noon().Add(time.Hour))
	cert, key := pemPair(t, ca.issue(t, noon(), noon().Add(time.Hour)))
	_, otherKey := pemPair(t, ca.issue(t, noon(), noon().Add(time.Hour)))
	for what, p := range map[string][2][]byte{
		"half a certificate":     {cert[:len(cert)/2], key},
		"half a key":             {cert, key[:len(key)/2]},
		"another key":            {cert, otherKey},
		"no certificate":         {nil, key},
		"no key":                 {cert, []byte("\n")},
		"garbage":                {[]byte("hello"), []byte("hello")},
		"the wrong way round":    {key, cert},
		"a CA's and not its key": {ca.pem, key},
	} {
		if pair, err := ParsePair(p[0], p[1]); err == nil || pair != nil {
			t.Errorf("%s is taken for a pair", what)
		}
	}
	if _, err := ParsePair(cert, key); err != nil {
		t.Error(err)
	}
}

// TestClock checks that the steady time follows small corrections of the time of day, and ignores a jump.
func TestClock(t *testing.T) {
	start := noon()
	h := &handClock{wallNow: start}
	c := h.clock()
	want := func(what string, wall, steady time.Time) {
		t.Helper()
		if m := c.now(); !m.wall.Equal(wall) || !m.steady.Equal(steady) {
			t.Errorf("%s: %v, want %v and %v", what, m, wall, steady)
		}
	}
	want("at the start", start, start)
	for range 100 { // a time server slews the clock
		h.pass(time.Minute)
		h.jump(-time.Second)
		want("while it drifts", h.wallNow, h.wallNow)
	}
	before := h.wallNow
	h.jump(24 * time.Hour)
	want("after a jump", before.Add(24*time.Hour), before)
	h.pass(30 * time.Minute)
	want("half an hour later", before.Add(24*time.Hour+30*time.Minute), before.Add(30*time.Minute))
	h.jump(-24 * time.Hour)
	want("and back", before.Add(30*time.Minute), before.Add(30*time.Minute))
	h.jump(-time.Hour)
	want("back further", before.Add(-30*time.Minute), before.Add(30*time.Minute))
	h.pass(believed)
	want("long enough to be believed", before.Add(30*time.Minute), before.Add(30*time.Minute))
}

// TestSharedClock checks that concurrent calls see the same jumps.
func TestSharedClock(t *testing.T) {
	h := &handClock{wallNow: noon()}
	c := &Clock{clock: h.clock()}
	c.Tick()
	want := func(what string, by, apart time.Duration) {
		t.Helper()
		if wall, steady := c.Now(); !wall.Equal(noon().Add(by)) || wall.Sub(steady) != apart {
			t.Errorf("%s: %v and %v", what, wall, steady)
		}
	}
	want("at the start", 0, 0)
	h.pass(time.Hour)
	want("an hour later", time.Hour, 0)
	h.jump(24 * time.Hour)
	want("after a jump, before a look at it", 25*time.Hour, 24*time.Hour)
	c.Tick()
	want("after a jump", 25*time.Hour, 24*time.Hour)
	h.pass(believed)
	c.Tick()
	want("when it is believed", 26*time.Hour, 0)
}
