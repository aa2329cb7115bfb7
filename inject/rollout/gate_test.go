// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/inject/rollout"
)

// TestDecide checks which pods may change next. Each letter is a pod: B waits for its change, b too and is not ready; S is
// settled, s too and is not ready; C changes and is reported ready, c is not; K is ready and is not proved, P is proved; F
// was ready with the change; x is a new pod that is not of the rollout; R waits to lose a change that was not proved, r too and
// is not ready.
func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	stages := map[rune]rollout.Stage{'B': rollout.Behind, 'S': rollout.Settled, 'C': rollout.Changing, 'K': rollout.Baking, 'P': rollout.Proved, 'F': rollout.Fallen, 'X': rollout.Changing, 'R': rollout.Behind}
	for _, test := range []struct {
		what, pods, most string
		desired          int // 0: as many as there are
		budget           int // -1: none
		change           int
		waits, stop      string
		undo             bool
	}{
		{what: "all are ready", pods: "BBBBBBBB", most: "25%", budget: -1, change: 2, waits: "2 changed pods to be proved"},
		{what: "one is not proved", pods: "KBBBBBBB", most: "25%", budget: -1, change: 1},
		{what: "as many as may be are not proved", pods: "KKBBBBBB", most: "25%", budget: -1, change: 0},
		{what: "proved ones are free", pods: "PPPKBBBB", most: "2", budget: -1, change: 1},
		{what: "a change that is not noticed yet", pods: "CBBB", most: "1", budget: -1, change: 0},
		{what: "others are not ready", pods: "ssBBBBBB", most: "2", budget: -1, change: 0, waits: "2 pods to be ready, for example pod-0, because 2 pods may be unavailable"},
		{what: "one other is not ready", pods: "sSBBBBBB", most: "2", budget: -1, change: 1},
		{what: "pods are missing", pods: "BBBBBB", most: "2", desired: 8, budget: -1, change: 0, waits: "2 pods to be ready"},
		{what: "more pods than desired", pods: "sBBBB", most: "1", desired: 4, budget: -1, change: 1},
		{what: "pods that are not ready change without making it worse", pods: "bbbBBB", most: "2", budget: -1, change: 2},
		{what: "an unready one holds up the ready ones", pods: "bBBBBB", most: "1", budget: -1, change: 1},
		{what: "a new pod", pods: "xBBB", most: "1", budget: -1, change: 0},
		{what: "a budget", pods: "BBBBBB", most: "100%", budget: 2, change: 2, waits: "the PodDisruptionBudget web to allow a disruption"},
		{what: "a budget, and pods that are not ready", pods: "bbBBBB", most: "100%", budget: 0, change: 2, waits: "the PodDisruptionBudget web to allow a disruption"},
		{what: "one fell", pods: "FKBBBB", most: "3", budget: -1, change: 0, stop: "pod-0"},
		{what: "at least one", pods: "BB", most: "25%", budget: -1, change: 1},
		{what: "pods that are not proved go back, and no others", pods: "RRRBBB", most: "3", budget: -1, change: 3, waits: "3 changed pods to be proved"},
		{what: "a pod that goes back later may fail meanwhile", pods: "BRBBBB", most: "1", budget: -1, change: 1, waits: "1 changed pod to be proved"},
		{what: "more are not proved than may be", pods: "RRRBBB", most: "1", budget: -1, change: 0, waits: "1 pod may be unavailable"},
		{what: "a failed one of those goes back", pods: "RrRBBB", most: "1", budget: -1, change: 1, waits: "1 pod may be unavailable"},
		{what: "a budget for those that go back", pods: "RRRBBB", most: "3", budget: 1, change: 1, waits: "the PodDisruptionBudget web to allow a disruption"},
		{what: "one that goes back may fail, which a budget does not know", pods: "BRBBBB", most: "100%", budget: 2, change: 2, waits: "the PodDisruptionBudget web to allow a disruption"},
		{what: "one that goes back may use up a budget", pods: "BRB", most: "100%", budget: 1, change: 1, waits: "the PodDisruptionBudget web to allow a disruption"},
		{what: "a failed one goes back", pods: "rRRBBB", most: "3", budget: -1, change: 3},
		{what: "unready ones do not wait", pods: "bbbbBB", most: "2", budget: -1, change: 4, undo: true, waits: "4 changed pods to be proved"},
		{what: "ready ones wait for unready ones", pods: "KbbBBB", most: "2", budget: -1, change: 2, undo: true, waits: "3 changed pods to be proved"},
		{what: "ready ones wait for others, too", pods: "sBBBBB", most: "1", budget: -1, change: 0, undo: true, waits: "1 pod to be ready"},
		{what: "ready ones wait for one that changes", pods: "cBBBBB", most: "1", desired: 5, budget: -1, change: 0, undo: true, waits: "1 changed pod to be proved"},
	} {
		v := &rollout.View{Desired: test.desired, Budgets: map[string]int{}}
		if v.Desired == 0 {
			v.Desired = len(test.pods)
		}
		for i, r := range test.pods {
			upper := []rune(strings.ToUpper(string(r)))[0]
			name := fmt.Sprint("pod-", i)
			m := rollout.Member{Name: name, UID: name, Stage: stages[upper], Since: now.Add(-time.Second), Ready: r == upper && upper != 'F', Ours: strings.ContainsRune("CKPF", upper), Restarts: true, Reverts: upper == 'R'}
			if test.budget >= 0 {
				m.Budgets, v.Budgets["web"] = []string{"web"}, test.budget
			}
			v.Members, v.Next = append(v.Members, m), append(v.Next, name)
		}
		most, err := rollout.ParseUnavailable(test.most)
		if err != nil {
			t.Fatal(err)
		}
		d := rollout.Decide(v, rollout.Rules{MaxUnavailable: []rollout.Unavailable{most}, Proof: time.Minute, Timeout: time.Hour, Undo: test.undo}, now)
		stop := ""
		if d.Stop != nil {
			stop = d.Stop.Pod
		}
		if len(d.Change) != test.change || test.waits != "" && !strings.Contains(d.Waits, test.waits) || stop != test.stop {
			t.Errorf("%s (%s): %+v, stop %q; want %d changes, %q", test.what, test.pods, d, stop, test.change, test.waits)
		}
	}
}

// TestDecideTimes checks when a pod is proved, and when a rollout gives up.
func TestDecideTimes(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	most, err := rollout.ParseUnavailable("1")
	if err != nil {
		t.Fatal(err)
	}
	rules := rollout.Rules{MaxUnavailable: []rollout.Unavailable{most}, Proof: 90 * time.Second, Timeout: 5 * time.Minute}
	of := func(m rollout.Member, idle time.Time) *rollout.View {
		m.Name, m.UID, m.Since, m.Waits = "a", "a", begun, "its app"
		return &rollout.View{Members: []rollout.Member{m, {Name: "b", UID: "b", Stage: rollout.Behind, Ready: true}}, Desired: 2, Next: []string{"b"}, Idle: idle}
	}
	for _, test := range []struct {
		what   string
		view   *rollout.View
		after  time.Duration
		proved bool
		stop   string
	}{
		{"not yet", of(rollout.Member{Stage: rollout.Baking, Ready: true, Ours: true}, time.Time{}), 89 * time.Second, false, ""},
		{"long enough", of(rollout.Member{Stage: rollout.Baking, Ready: true, Ours: true}, time.Time{}), 90 * time.Second, true, ""},
		{"it does not become ready", of(rollout.Member{Stage: rollout.Changing, Ours: true}, time.Time{}), 5*time.Minute + 1, false, "it is not done after 5m0s: it waits for its app"},
		{"a pod of others does not become ready", of(rollout.Member{Stage: rollout.Changing}, time.Time{}), 5*time.Minute + 1, false, ""},
		{"others are not ready for long", of(rollout.Member{Stage: rollout.Settled}, begun), 5*time.Minute + 1, false, "it is not changed after 5m0s: it waits for 1 pod to be ready, for example a, because 1 pod may be unavailable"},
		{"it fails", of(rollout.Member{Stage: rollout.Changing, Ours: true, Failed: "it crashes"}, time.Time{}), 0, false, "it crashes"},
		{"it fails, and is not of the rollout", of(rollout.Member{Stage: rollout.Changing, Failed: "it crashes"}, time.Time{}), 0, false, ""},
	} {
		d := rollout.Decide(test.view, rules, begun.Add(test.after))
		stop := ""
		if d.Stop != nil {
			stop = d.Stop.Why
		}
		if (len(d.Proved) > 0) != test.proved || stop != test.stop {
			t.Errorf("%s: proved %q, stop %q; want %t, %q", test.what, d.Proved, stop, test.proved, test.stop)
		}
	}
}

// TestRules checks which limits count if several say something.
func TestRules(t *testing.T) {
	t.Parallel()
	parse := func(text string) []rollout.Unavailable {
		u, err := rollout.ParseUnavailable(text)
		if err != nil {
			t.Fatal(err)
		}
		return []rollout.Unavailable{u}
	}
	long, none := 3*time.Minute, time.Duration(0)
	a := rollout.Limits{MinReady: 10 * time.Second, Bake: &none, MaxUnavailable: parse("50%")}
	b := rollout.Limits{MinReady: 5 * time.Second, Bake: &long, MaxUnavailable: parse("3")}
	for _, test := range []struct {
		what            string
		workload, given rollout.Limits
		proof           time.Duration
		of20            int
	}{
		{"nothing", rollout.Limits{}, rollout.Limits{}, 90 * time.Second, 5},
		{"a template", a, rollout.Limits{}, 10 * time.Second, 10},
		{"two templates", a.Strictest(b), rollout.Limits{}, 3 * time.Minute, 3},
		{"two templates in another order", b.Strictest(a), rollout.Limits{}, 3 * time.Minute, 3},
		{"the user", a.Strictest(b), rollout.Limits{Bake: &none, MaxUnavailable: parse("100%")}, 10 * time.Second, 20},
		{"a workload with minReadySeconds", rollout.Limits{MinReady: time.Hour}, rollout.Limits{Bake: &long}, time.Hour, 5},
	} {
		r := test.workload.Rules(test.given, time.Minute)
		most := r.MaxUnavailable[0].Of(20)
		for _, u := range r.MaxUnavailable {
			most = min(most, u.Of(20))
		}
		if r.Proof != test.proof || most != test.of20 {
			t.Errorf("%s: proved after %s, and %d of 20 may be unready; want %s, %d", test.what, r.Proof, most, test.proof, test.of20)
		}
	}
}

// TestDropEvicted checks how many evicted pods a rollout still waits for, if a workload is scaled or deleted meanwhile.
func TestDropEvicted(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for desired, want := range map[int]int{4: 2, 3: 1, 2: 0, 1: 0, 0: 0, 9: 2} {
		var pods []*corev1.Pod
		var plans []*rollout.Pod
		for _, name := range []string{"a", "b", "c", "d"} {
			pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
			plans = append(plans, &rollout.Pod{Name: name, UID: name, Action: rollout.Replace})
		}
		w := rollout.NewWatch(rollout.Evict, rollout.Rules{Proof: time.Minute, Timeout: time.Minute}, rollout.Claim{Holder: "x"})
		w.Expect(plans)
		w.See(pods, now)
		w.Evict("a", now)
		w.Evict("b", now)
		w.See(pods[2:], now)
		if gone := w.DropEvicted(desired); len(gone) != 2-want || len(w.Open()) != want {
			t.Errorf("of 4 pods, 2 were evicted, and there should be %d: %v are gone, and it waits for %v; want %d", desired, gone, w.Open(), want)
		}
	}
}
