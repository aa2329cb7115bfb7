// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

func (s *soak) report(t *testing.T) {
	t.Helper()
	l := s.load
	for is, n := range l.outcomes {
		t.Logf("%6d pods: %s", n, is)
	}
	for n, f := range l.wrong {
		if n == 10 {
			t.Errorf("and %d more", len(l.wrong)-n)
			break
		}
		t.Errorf("at %s: %v", f.ended.Format(time.TimeOnly), f.err)
	}
	if l.outcomes[outcomeInjected] == 0 || l.outcomes[outcomeBoth] == 0 || l.outcomes[outcomePlain] == 0 {
		t.Error("this test shows nothing")
	}
	s.reportDenials(t)
	s.wantCalled(t)
	for admin, m := range s.memory {
		t.Logf("resident at %s, in MiB: %.0f", admin, m.resident)
		if most := slices.Max(m.resident); most > mostMemory {
			t.Errorf("%s had %.0f MiB resident, want at most %d", admin, most, mostMemory)
		}
	}
	kept := s.memory[s.replicas[0].Admin].kept
	s.wantFlat(t, kept[min(s.warm, len(kept)):])
	s.wantSettled(t)
}

// wantSettled checks that the last call for a pod changed nothing if the other injector was called and the pod was accepted.
func (s *soak) wantSettled(t *testing.T) {
	t.Helper()
	settled := 0
	err := s.Audit.Each(meshInjector, func(e cluster.Event) {
		if e.ResponseStatus == nil || e.ResponseStatus.Code != http.StatusCreated || len(e.Calls(meshInjector)) == 0 {
			return
		}
		calls := e.Calls("")
		if last := calls[len(calls)-1]; last.Round != "round_1" || last.Mutated {
			t.Fatalf("the webhooks do not settle: %v", calls)
		}
		settled++
	})
	if t.Logf("the webhooks settled for %d pods", settled); err != nil || settled == 0 {
		t.Errorf("this test shows nothing: %v", err)
	}
}

// reportDenials checks that no pod was denied without a crash while an API server was up. If two replicas
// never get each other's templates, all calls may reach the one with the older templates; that is rare.
func (s *soak) reportDenials(t *testing.T) {
	t.Helper()
	unexplained := 0
	for _, f := range s.load.denials {
		in := func(w window) bool { return w.has(f) }
		if slices.ContainsFunc(s.away, in) || !isAway(f.err) && slices.ContainsFunc(s.alone, in) {
			continue
		}
		unexplained++
		t.Logf("denied at %s, and nothing was wrong: %v", f.ended.Format(time.TimeOnly), f.err)
	}
	if most := 1 + int(s.load.created.Load())/500; unexplained > most {
		t.Errorf("%d pods were denied without a crash and with an API server, want at most %d", unexplained, most)
	}
}

// wantCalled checks that calls of Pillion are lost only if a replica crashes or the API server ends, and not if a replica is replaced.
func (s *soak) wantCalled(t *testing.T) {
	t.Helper()
	lost := 0
	check := func(began, ended time.Time, what string) {
		in := func(w window) bool { return w.has(failure{began: began, ended: ended}) }
		if !slices.ContainsFunc(s.away, in) && !slices.ContainsFunc(s.alone, in) {
			t.Errorf("a call is lost at %s: %s", ended.Format(time.TimeOnly), what)
		}
		lost++
	}
	err := s.Audit.Each("failed-open", func(e cluster.Event) {
		if open := e.FailedOpen(); len(open) > 0 {
			check(e.RequestReceivedTimestamp.Time, e.StageTimestamp.Time, strings.Join(open, " "))
		}
	})
	if err != nil {
		t.Error(err)
	}
	for _, f := range s.load.denials {
		if text := f.err.Error(); strings.Contains(text, "failed calling webhook") && !isAway(f.err) {
			check(f.began, f.ended, text)
		}
	}
	t.Logf("%d calls are lost", lost)
}

// wantFlat compares the first third with the last, by their medians, because collections differ.
func (s *soak) wantFlat(t *testing.T, kept []float64) {
	t.Helper()
	third := len(kept) / 3
	if third == 0 {
		t.Error("too few looks at the memory; this test shows nothing")
		return
	}
	first, last := median(kept[:third]), median(kept[len(kept)-third:])
	t.Logf("kept at first %.1f MiB, in the end %.1f: %.1f", first, last, kept)
	if last > first+mostGrowth {
		t.Errorf("the memory grows: %.1f MiB are kept at first, %.1f in the end", first, last)
	}
}

func median(of []float64) float64 { return slices.Sorted(slices.Values(of))[len(of)/2] }
