// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func testPolicy() Policy {
	return Policy{Hosts: []string{testHost}, LeafLifetime: 90 * day, CALifetime: 3650 * day}
}

func at(t time.Time) moment { return moment{t, t} }

func always(*x509.Certificate) bool { return true }
func never(*x509.Certificate) bool  { return false }

// newMaterial is what a first replica makes at noon.
func newMaterial(t *testing.T, p Policy) material {
	t.Helper()
	m, done, err := p.planNext(material{}, at(noon()), never)
	must(t, err)
	if len(done) != 2 || m.leaf == nil || m.ca == nil || len(m.bundle) != 1 {
		t.Fatalf("made %q", done)
	}
	return m
}

// TestPlanFirst checks the first CA and certificate: their names, their lifetimes, and that nothing more has to be done.
func TestPlanFirst(t *testing.T) {
	m := newMaterial(t, testPolicy())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m.caBundle())
	must(t, verifyPair(m.leaf, testHost, roots, noon()))
	if l := m.leaf.Leaf; !l.NotAfter.Equal(noon().Add(90*day)) || !l.NotBefore.Before(noon()) || l.IsCA {
		t.Errorf("the certificate is %+v", l)
	}
	if c := m.ca.cert; !c.NotAfter.Equal(noon().Add(3650*day)) || !c.IsCA || !c.MaxPathLenZero {
		t.Errorf("the CA is %+v", c)
	}
	if _, done, _ := testPolicy().planNext(m, at(noon()), never); len(done) != 0 {
		t.Errorf("there is more to do: %q", done)
	}
}

// TestMaterialRoundTrip checks that the material in the Secret can be read back unchanged.
func TestMaterialRoundTrip(t *testing.T) {
	m := newMaterial(t, testPolicy())
	data, err := m.secretData()
	must(t, err)
	back := parseMaterial(data)
	if !sameChain(back.leaf, m.leaf) || !back.ca.cert.Equal(m.ca.cert) || !back.ca.key.Equal(m.ca.key) || !bytes.Equal(back.caBundle(), m.caBundle()) {
		t.Error("it is something else")
	}
	for key := range data {
		broken := mergeData(data, map[string][]byte{key: []byte("garbage"), "theirs": []byte("x")})
		_, done, err := testPolicy().planNext(parseMaterial(broken), at(noon()), never)
		must(t, err)
		if len(done) == 0 && key != keyCABundle { // which is made good from the CA
			t.Errorf("%s: nothing is done about garbage", key)
		}
	}
	if broken := parseMaterial(mergeData(data, map[string][]byte{keyCABundle: nil})); !containsCertificate(broken.bundle, m.ca.cert) {
		t.Error("without a bundle the CA is not trusted")
	}
}

// TestPlanRenewal checks when a certificate is renewed, which depends on its age and on who trusts its CA.
func TestPlanRenewal(t *testing.T) {
	p := testPolicy()
	m := newMaterial(t, p)
	old := p.LeafLifetime * 2 / 3
	for _, row := range []struct {
		what    string
		now     moment
		trusted func(*x509.Certificate) bool
		want    bool
	}{
		{"early", at(noon().Add(old - time.Hour)), always, false},
		{"at two thirds", at(noon().Add(old + time.Hour)), always, true},
		{"at two thirds, but nobody trusts its CA", at(noon().Add(old + time.Hour)), never, false},
		{"in time, whether or not it is trusted", at(noon().Add(p.LeafLifetime - 30*time.Minute)), never, true},
		{"a clock that jumped ahead", moment{wall: noon().Add(10 * p.CALifetime), steady: noon()}, always, false},
		{"a clock that jumped back", moment{wall: noon().Add(-10 * p.CALifetime), steady: noon()}, always, false},
	} {
		next, done, err := p.planNext(m, row.now, row.trusted)
		must(t, err)
		if renewed := !sameChain(next.leaf, m.leaf); renewed != row.want || renewed != (len(done) > 0) {
			t.Errorf("%s: renewed %t (%q)", row.what, renewed, done)
		}
		if !next.ca.cert.Equal(m.ca.cert) || len(next.bundle) != 1 {
			t.Errorf("%s: the CA is another", row.what)
		}
	}
}

// TestPlanNewCA checks that a new CA joins the bundle first. It issues certificates when API
// servers trust it, and the old CA leaves when it has expired.
func TestPlanNewCA(t *testing.T) {
	p := testPolicy()
	m := newMaterial(t, p)
	// In time for the CA, with a certificate that is fresh.
	now := noon().Add(p.CALifetime * 2 / 3)
	leaf, err := p.issueLeaf(m.ca, now)
	must(t, err)
	m.leaf = leaf
	now = now.Add(day)

	first, done, err := p.planNext(m, at(now), never)
	must(t, err)
	if len(done) != 1 || !strings.HasPrefix(done[0], "new CA") || !sameChain(first.leaf, m.leaf) || len(first.bundle) != 2 || first.ca.cert.Equal(m.ca.cert) {
		t.Fatalf("the first step is %q", done)
	}
	if _, done, _ := p.planNext(first, at(now), never); len(done) != 0 {
		t.Errorf("it does not wait to be trusted: %q", done)
	}
	asked := false
	second, done, err := p.planNext(first, at(now), func(ca *x509.Certificate) bool { asked = ca.Equal(first.ca.cert); return true })
	must(t, err)
	if len(done) != 1 || !asked || second.leaf.Leaf.CheckSignatureFrom(first.ca.cert) != nil || len(second.bundle) != 2 {
		t.Fatalf("the second step is %q", done)
	}
	last, _, err := p.planNext(second, at(noon().Add(p.CALifetime+2*time.Hour)), always)
	must(t, err)
	if len(last.bundle) != 1 || containsCertificate(last.bundle, m.ca.cert) {
		t.Error("the old CA stays")
	}
}

// TestPlanRepairs checks that any combination of broken material is repaired in a few steps, and
// everything valid is kept: old CAs stay in the bundle, so that API servers can still verify the
// served certificate.
func TestPlanRepairs(t *testing.T) {
	p := testPolicy()
	m, other := newMaterial(t, p), newMaterial(t, p)
	for bits := range 1 << 4 {
		broken := m
		if bits&1 != 0 {
			broken.leaf = nil
		}
		if bits&2 != 0 {
			broken.ca = nil
		}
		if bits&4 != 0 {
			broken.leaf = other.leaf // of an unknown CA
		}
		if bits&8 != 0 {
			broken.bundle = nil
		}
		what := fmt.Sprintf("%04b", bits)
		fixed := broken
		for range 3 {
			var err error
			fixed, _, err = p.planNext(fixed, at(noon()), always)
			must(t, err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(fixed.caBundle())
		if err := verifyPair(fixed.leaf, testHost, roots, noon()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if fixed.leaf.Leaf.CheckSignatureFrom(fixed.ca.cert) != nil {
			t.Errorf("%s: the CA is another's", what)
		}
		if !slices.Equal(fixed.bundle, append(slices.Clip(broken.bundle), fixed.ca.cert)) && !containsCertificate(broken.bundle, fixed.ca.cert) {
			t.Errorf("%s: the bundle lost something", what)
		}
		if _, done, _ := p.planNext(fixed, at(noon()), always); len(done) != 0 {
			t.Errorf("%s: never done: %q", what, done)
		}
	}
	wider := p
	wider.Hosts = []string{testHost, "127.0.0.1"}
	if next, _, _ := wider.planNext(m, at(noon()), never); next.leaf.Leaf.VerifyHostname("127.0.0.1") != nil {
		t.Error("a new host is not in the certificate")
	}
}

// TestPlanForYears simulates years with occasional checks. There is always a valid pair. At each
// step, the bundle of the previous step contains the CA of the certificate.
func TestPlanForYears(t *testing.T) {
	p := Policy{Hosts: []string{testHost}, LeafLifetime: 90 * day, CALifetime: 400 * day}
	m := newMaterial(t, p)
	leaves, cas := 0, 0
	for now := noon(); now.Before(noon().Add(3000 * day)); now = now.Add(11 * day) {
		before := m
		next, _, err := p.planNext(m, at(now), func(ca *x509.Certificate) bool { return containsCertificate(before.bundle, ca) })
		must(t, err)
		m = next
		if now.After(m.leaf.Leaf.NotAfter) || now.After(m.ca.cert.NotAfter) {
			t.Fatalf("%v: expired", now)
		}
		if !sameChain(m.leaf, before.leaf) {
			leaves++
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(before.caBundle())
			if err := verifyPair(m.leaf, testHost, roots, now); err != nil {
				t.Fatalf("%v: the bundle before does not verify it: %v", now, err)
			}
		}
		if !m.ca.cert.Equal(before.ca.cert) {
			cas++
		}
		if len(m.bundle) > 3 {
			t.Fatalf("%v: %d CAs in the bundle", now, len(m.bundle))
		}
	}
	if leaves < 40 || cas < 9 {
		t.Errorf("%d certificates and %d CAs in 3000 days", leaves, cas)
	}
}
