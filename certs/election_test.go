// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// leaseServer keeps one Lease as an API server does: it rejects an update of an older version than the stored
// one.
type leaseServer struct {
	lease   *unstructured.Unstructured // nil: there is none
	version int
	before  func(verb string) error // what happens before a call
}

func newLeaseServer(t *testing.T) (*leaseServer, *fakeCluster) {
	t.Helper()
	s, client := &leaseServer{before: func(string) error { return nil }}, newFake(t)
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	client.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if err := s.before(action.GetVerb()); err != nil {
			return true, nil, err
		}
		update, ok := action.(clienttesting.UpdateAction)
		switch {
		case !ok && s.lease == nil:
			return true, nil, apierrors.NewNotFound(leases, LeaseName)
		case !ok:
			return true, s.lease.DeepCopy(), nil
		}
		next := update.GetObject().(*unstructured.Unstructured).DeepCopy()
		if s.lease != nil && s.lease.GetResourceVersion() != next.GetResourceVersion() {
			return true, nil, apierrors.NewConflict(leases, LeaseName, errors.New("faster"))
		}
		s.version++
		next.SetResourceVersion(strconv.Itoa(s.version))
		s.lease = next
		return true, next.DeepCopy(), nil
	})
	return s, client
}

// typed is the Lease as client-go's leaderelection reads it.
func (s *leaseServer) typed(t *testing.T) coordinationv1.LeaseSpec {
	t.Helper()
	var lease coordinationv1.Lease
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(s.lease.Object, &lease, true))
	return lease.Spec
}

// TestElection checks which of several replicas has the Lease.
func TestElection(t *testing.T) {
	server, client := newLeaseServer(t)
	hand := &handClock{}
	stand := func(e *election) bool {
		t.Helper()
		must(t, e.acquireLease(t.Context()))
		return e.holdsLease()
	}
	elector := func(identity string) *election {
		a := newReplica(t, client, identity)
		return &election{leases: a.leaseClient(), identity: identity, running: hand.clock().running}
	}
	a, b := elector("a"), elector("b")

	server.before = func(verb string) error {
		if verb == "update" && server.lease == nil {
			server.lease = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"resourceVersion": "0"}, "spec": map[string]any{
				"holderIdentity": "b", "leaseTransitions": int64(1), "acquireTime": "2026-01-02T03:04:05.000006Z",
			}}}
		}
		return nil
	}
	stand(a) // reads the Lease and writes it, and then it knows
	if stand(a) || !stand(b) {
		t.Fatal("the one that was faster does not lead")
	}
	if l := server.typed(t); *l.HolderIdentity != "b" || *l.LeaseDurationSeconds != 15 || *l.LeaseTransitions != 1 || time.Since(l.RenewTime.Time).Abs() > time.Minute || l.AcquireTime.Year() != 2026 {
		t.Errorf("the Lease is %+v", l)
	}
	for range 20 {
		hand.pass(leaseRetry)
		if !stand(b) || stand(a) {
			t.Fatal("a Lease that is renewed changes hands")
		}
	}
	if l := server.typed(t); *l.LeaseTransitions != 1 || !l.AcquireTime.Before(l.RenewTime) {
		t.Errorf("the renewed Lease is %+v", l)
	}
	for range 7 { // in which b cannot reach the API server
		hand.pass(leaseRetry)
		if stand(a) {
			t.Fatal("taken before its time")
		}
	}
	if b.holdsLease() {
		t.Error("leads on after its time")
	}
	hand.pass(leaseRetry)
	if !stand(a) || stand(b) {
		t.Error("a Lease that nobody renews is not taken")
	}
	b.releaseLease(t.Context()) // which it cannot
	a.releaseLease(t.Context())
	if l := server.typed(t); l.HolderIdentity != nil {
		t.Errorf("after its holder has left it is %+v", l)
	}
	if !stand(b) {
		t.Error("a Lease that was left is not taken at once")
	}
}

// TestElectionFails checks that a replica without rights to the Lease continues without it, and
// logs that once.
func TestElectionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := newLeaseServer(t)
		a := newReplica(t, client, "a")
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		server.before = func(string) error {
			if calls++; calls == 2 {
				cancel()
			}
			return errors.New("no right")
		}
		a.runElection(ctx)
		if calls != 2 || a.Status().Leading || strings.Count(a.log.String(), "no right") != 1 {
			t.Errorf("%d calls, %+v\n%s", calls, a.Status(), a.log)
		}
	})
}
