// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const day = 24 * time.Hour

// TestChoose checks each part of the rule.
func TestChoose(t *testing.T) {
	start := noon()
	oldCA := newTestCA(t, "old", start.Add(-10*day), start.Add(1000*day))
	newCA := newTestCA(t, "new", start.Add(-10*day), start.Add(1000*day))
	gone := newTestCA(t, "gone", start.Add(-100*day), start.Add(-day))
	served := oldCA.issue(t, start.Add(-10*day), start.Add(80*day))
	again := oldCA.issue(t, start.Add(-day), start.Add(89*day))
	fromNew := newCA.issue(t, start.Add(-day), start.Add(89*day))
	expired := oldCA.issue(t, start.Add(-90*day), start.Add(-day))
	early := oldCA.issue(t, start.Add(day), start.Add(91*day))
	shorter := newCA.issue(t, start.Add(-day), start.Add(10*day))
	otherHost := oldCA.issue(t, start.Add(-day), start.Add(89*day), func(c *x509.Certificate) { c.DNSNames = []string{"example.com"} })
	forClients := oldCA.issue(t, start.Add(-day), start.Add(89*day), func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	})
	fromGone := gone.issue(t, start.Add(-day), start.Add(89*day))

	// A trust by the CAs of its caBundle; since is when the one before was replaced.
	trusts := func(c Configuration, since time.Duration, steps ...[]*testCA) trust {
		tr := trust{configuration: c, webhook: string(c)}
		for i, cas := range steps {
			var bundle []byte
			for _, ca := range cas {
				bundle = append(bundle, ca.pem...)
			}
			at := since
			if i == 0 {
				at -= time.Hour
			}
			tr = tr.withBundle(CABundle{Webhook: string(c), Host: testHost, Bundle: bundle}, at)
		}
		return tr
	}
	type cas = []*testCA
	const running = 100 * time.Hour
	long, justNow := running-time.Hour, running-time.Second
	m, v := Mutating, Validating
	for _, row := range []struct {
		what            string
		served, offered *tls.Certificate
		trusted         []trust
		later           time.Duration // after noon, by both clocks
		want            string        // serve, or the code
	}{
		{"the first one", nil, fromNew, []trust{trusts(m, long, cas{oldCA})}, 0, "serve"},
		{"the first one, though expired", nil, expired, nil, 0, "serve"},
		{"nothing is known of API servers", served, fromNew, nil, 0, "serve"},
		{"never a caBundle", served, fromNew, []trust{trusts(m, long, cas{}), trusts(v, long, cas{})}, 0, "serve"},
		{"the same CA", served, again, []trust{trusts(m, long, cas{oldCA}), trusts(v, long, cas{oldCA})}, 0, "serve"},
		{"another CA", served, fromNew, []trust{trusts(m, long, cas{oldCA}), trusts(v, long, cas{oldCA})}, 0, "not_trusted"},
		{"another CA that one trusts", served, fromNew, []trust{trusts(m, long, cas{oldCA, newCA}), trusts(v, long, cas{oldCA})}, 0, "not_trusted"},
		{"another CA that both trust", served, fromNew, []trust{trusts(m, long, cas{oldCA, newCA}), trusts(v, long, cas{oldCA, newCA})}, 0, "serve"},
		{"another CA that one has trusted just now", served, fromNew, []trust{trusts(m, long, cas{oldCA, newCA}), trusts(v, justNow, cas{oldCA}, cas{oldCA, newCA})}, 0, "settling"},
		{"and for a while", served, fromNew, []trust{trusts(m, long, cas{oldCA, newCA}), trusts(v, long, cas{oldCA}, cas{oldCA, newCA})}, 0, "serve"},
		{"the old CA was taken out just now", served, fromNew, []trust{trusts(m, justNow, cas{oldCA}, cas{newCA}), trusts(v, justNow, cas{oldCA}, cas{newCA})}, 0, "serve"},
		{"the same CA, while a caBundle was emptied", served, again, []trust{trusts(m, long, cas{oldCA}, cas{}), trusts(v, long, cas{oldCA})}, 0, "serve"},
		{"another CA, while both are emptied", served, fromNew, []trust{trusts(m, long, cas{oldCA}, cas{}), trusts(v, long, cas{oldCA}, cas{})}, 0, "not_trusted"},
		{"another CA, emptied and restored with both", served, fromNew, []trust{trusts(m, long, cas{oldCA}, cas{}, cas{oldCA, newCA})}, 0, "serve"},
		{"the same CA, unsettled", served, again, []trust{trusts(m, justNow, cas{oldCA}, cas{oldCA, newCA})}, 0, "serve"},
		{"nobody trusts either", served, fromNew, []trust{trusts(m, long, cas{gone}), trusts(v, long, cas{gone})}, 0, "not_trusted"},
		{"nobody trusts either, at its end", served, fromNew, []trust{trusts(m, long, cas{gone}), trusts(v, long, cas{gone})}, 80*day + time.Minute, "serve"},
		{"nobody says anything", served, fromNew, nil, 0, "serve"},
		{"one webhook is not ours to serve", served, again, []trust{trusts(m, long, cas{oldCA}), trusts(v, long, cas{gone})}, 0, "serve"},
		{"an expired CA is none", served, fromGone, []trust{trusts(m, long, cas{oldCA, gone})}, 0, "not_trusted"},
		{"not for this host", served, otherHost, []trust{trusts(m, long, cas{oldCA})}, 0, "not_trusted"},
		{"not for servers", served, forClients, []trust{trusts(m, long, cas{oldCA})}, 0, "not_trusted"},
		{"expired", served, expired, []trust{trusts(m, long, cas{oldCA})}, 0, "expired"},
		{"not yet valid", served, early, []trust{trusts(m, long, cas{oldCA})}, 0, "not_yet_valid"},
		{"before the deadline", served, fromNew, []trust{trusts(m, long, cas{oldCA})}, 80*day - 61*time.Minute, "not_trusted"},
		{"after the deadline", served, fromNew, []trust{trusts(m, long, cas{oldCA})}, 80*day - 59*time.Minute, "not_trusted"},
		{"after the deadline, where some trust it", served, fromNew, []trust{trusts(m, long, cas{oldCA}), trusts(v, long, cas{oldCA, newCA})}, 80*day - 59*time.Minute, "serve"},
		{"at its end", served, fromNew, []trust{trusts(m, long, cas{oldCA})}, 80*day + time.Minute, "serve"},
		{"after the deadline, but no better", served, shorter, []trust{trusts(m, long, cas{oldCA})}, 80*day - 59*time.Minute, "expired"},
		{"both expired", expired, shorter, []trust{trusts(m, long, cas{newCA})}, 20 * day, "serve"},
	} {
		now := start.Add(row.later)
		got := choosePair(row.served, row.offered, row.trusted, moment{now, now}, running)
		if code := got.code; got.serve && row.want != "serve" || !got.serve && code != row.want || !got.serve && got.why == "" {
			t.Errorf("%s: %+v, want %s", row.what, got, row.want)
		}
	}
}

// TestChooseClockJumps checks that a jump of the clock brings no deadline nearer, and does not make
// Pillion serve a new pair that API servers do not trust.
func TestChooseClockJumps(t *testing.T) {
	start := noon()
	oldCA := newTestCA(t, "old", start.Add(-10*day), start.Add(1000*day))
	newCA := newTestCA(t, "new", start.Add(-10*day), start.Add(1000*day))
	served := oldCA.issue(t, start.Add(-10*day), start.Add(80*day))
	again := oldCA.issue(t, start.Add(-day), start.Add(89*day))
	fromNew := newCA.issue(t, start.Add(-day), start.Add(89*day))
	trusted := []trust{trust{}.withBundle(CABundle{Webhook: "a", Host: testHost, Bundle: oldCA.pem}, 0)}
	for _, wall := range []time.Duration{-10000 * day, -20 * day, -5 * day, 0, 80 * day, 85 * day, 100 * day, 10000 * day} {
		now := moment{wall: start.Add(wall), steady: start}
		if v := choosePair(served, fromNew, trusted, now, time.Hour); v.serve {
			t.Errorf("%v: a pair that nobody trusts is served", wall)
		}
		fine := again.Leaf.NotBefore.Before(now.wall) && again.Leaf.NotAfter.After(now.wall)
		if v := choosePair(served, again, trusted, now, time.Hour); !v.serve && fine {
			t.Errorf("%v: a good pair is not served: %s", wall, v.why)
		}
	}

	// A CA that expires before its certificate. By such a clock, it has expired too.
	short := newTestCA(t, "short", start.Add(-10*day), start.Add(40*day))
	served = short.issue(t, start.Add(-10*day), start.Add(80*day))
	trusted = []trust{
		trust{}.withBundle(CABundle{Webhook: "a", Host: testHost, Bundle: short.pem}, 0),
		trust{}.withBundle(CABundle{Webhook: "b", Host: testHost, Bundle: append(newCA.pem, short.pem...)}, 0),
	}
	for _, wall := range []time.Duration{0, 60 * day, 10000 * day} {
		now := moment{wall: start.Add(wall), steady: start}
		if v := choosePair(served, fromNew, trusted, now, time.Hour); v.serve {
			t.Errorf("%v: a pair that one webhook does not trust is served", wall)
		}
		if m := findMismatches(served, trusted, now); len(m) != 0 {
			t.Errorf("%v: mismatches %v", wall, m)
		}
	}
	later := start.Add(60 * day)
	if v := choosePair(served, fromNew, trusted, moment{later, later}, time.Hour); !v.serve {
		t.Errorf("its CA has ended, and the next one is not served: %s", v.why)
	}
}

// TestServingProperty plays random rotations. In any order of events, Pillion never stops serving.
// A served pair that every caBundle verifies is replaced only by another such pair, or when it
// expires.
func TestServingProperty(t *testing.T) {
	start := noon()
	var cas []*testCA
	for range 3 {
		cas = append(cas, newTestCA(t, "ca", start.Add(-10*day), start.Add(1000*day)))
	}
	var pairs []*tls.Certificate
	for i := range 12 {
		from := start.Add(time.Duration(i%4-1) * day)
		pairs = append(pairs, cas[i%3].issue(t, from, from.Add(time.Duration(1+i%5)*10*day)))
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		s, hand, _ := newTestServing()
		s.Offer(pairs[random.IntN(len(pairs))])
		for range 60 {
			before, _ := s.GetCertificate(nil)
			trusted := slices.Clone(s.trusted)
			switch random.IntN(6) {
			case 0:
				s.Offer(pairs[random.IntN(len(pairs))])
			case 1:
				_ = s.OfferPEM([]byte("garbage"), []byte("garbage"))
			case 2:
				hand.pass(time.Duration(random.IntN(12)) * time.Second)
				s.tick()
			case 3:
				hand.pass(time.Duration(random.IntN(40)) * time.Hour)
				s.tick()
			case 4:
				hand.jump(time.Duration(random.IntN(400)-200) * day)
				s.tick()
				hand.wallNow = start.Add(hand.ran)
			default:
				var bundle []byte
				for _, ca := range cas {
					if random.IntN(2) == 0 {
						bundle = append(bundle, ca.pem...)
					}
				}
				c := []Configuration{Mutating, Validating}[random.IntN(2)]
				s.Trust(c, []CABundle{{Webhook: string(c), Host: testHost, Bundle: bundle}})
				trusted = s.trusted // only the choice after it counts
			}
			after, err := s.GetCertificate(nil)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if sameChain(before, after) || !start.Add(hand.ran).Before(switchDeadline(before.Leaf)) {
				continue
			}
			now := start.Add(hand.ran)
			for _, tr := range trusted {
				if tr.view.verifiesPair(before, moment{now, now}) && !tr.view.verifiesPair(after, moment{now, now}) {
					t.Fatalf("seed %d: %s lost us", seed, tr.webhook)
				}
			}
		}
	}
}
