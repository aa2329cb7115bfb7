// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

const (
	// LeaseName is the name of the Lease for the election.
	LeaseName = "pillion-certs"
	// leaseTime is how long another replica holds the Lease after its last observed change.
	// leadTime is how long this replica holds it after its own request. leadTime is shorter, so
	// that two replicas never lead at the same time.
	leaseTime, leadTime = 15 * time.Second, 10 * time.Second
	// leaseRetry is the interval between reads or renewals of the Lease, and their timeout.
	leaseRetry = 2 * time.Second
)

// election takes part in elections of client-go's package leaderelection. It does not use that
// package, which creates the Lease with POST: the ServiceAccount of the webhooks would need the right
// to create any Lease of its namespace.
type election struct {
	leases   dynamic.ResourceInterface
	identity string
	running  func() time.Duration

	seen   string        // the Lease's resourceVersion
	since  time.Duration // when that version was first seen
	leader bool          // this replica wrote the Lease last
	asked  time.Duration // when this replica requested it
}

// runElection takes part in the election of the replica that renews, until ctx is done.
func (a *Authority) runElection(ctx context.Context) {
	e := &election{leases: a.leaseClient(), identity: a.Identity, running: a.clock.running}
	var told string
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := e.acquireLease(ctx); err != nil && err.Error() != told && ctx.Err() == nil {
			told = err.Error()
			a.Log.Warn("the election of the replica that renews certificates failed, trying again", "error", err)
		}
		a.setLeading(e.holdsLease())
	}, leaseRetry)
	a.setLeading(false)
	e.releaseLease(context.WithoutCancel(ctx))
}

func (a *Authority) leaseClient() dynamic.ResourceInterface {
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	return a.Client.Resource(leases).Namespace(a.Namespace)
}

// holdsLease reports whether this replica still holds the Lease.
func (e *election) holdsLease() bool { return e.leader && e.running()-e.asked < leadTime }

// acquireLease renews the Lease, or acquires it if no replica holds it. It creates a missing Lease
// with PUT, because RBAC can restrict PUT to a resource name, but not POST.
func (e *election) acquireLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseRetry)
	defer cancel()
	asked := e.running()
	lease, err := e.leases.Get(ctx, LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease, err = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
			"metadata": map[string]any{"name": LeaseName, "labels": map[string]any{"app.kubernetes.io/name": "pillion"}},
		}}, nil
	}
	if err != nil {
		return err
	}
	if version := lease.GetResourceVersion(); version != e.seen {
		e.seen, e.since = version, e.running()
	}
	spec, _, _ := unstructured.NestedMap(lease.Object, "spec") // a copy
	holder, _ := spec["holderIdentity"].(string)
	e.leader = e.leader && holder == e.identity
	if holder != "" && holder != e.identity && e.running()-e.since < leaseTime {
		return nil
	}
	now := time.Now().UTC().Format(metav1.RFC3339Micro)
	next := map[string]any{
		"holderIdentity": e.identity, "leaseDurationSeconds": int64(leaseTime.Seconds()), "renewTime": now,
		"acquireTime": spec["acquireTime"], "leaseTransitions": spec["leaseTransitions"],
	}
	if holder != e.identity {
		times, _ := spec["leaseTransitions"].(int64)
		next["acquireTime"], next["leaseTransitions"] = now, times+1
	}
	lease.Object["spec"] = next
	switch _, err = e.leases.Update(ctx, lease, metav1.UpdateOptions{}); {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsInvalid(err): // no resourceVersion
		return nil // another replica was faster
	case err != nil:
		return err
	}
	e.leader, e.asked = true, asked
	return nil
}

// releaseLease releases the Lease, so that other replicas do not have to wait for it to expire.
func (e *election) releaseLease(ctx context.Context) {
	if !e.holdsLease() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaseRetry)
	defer cancel()
	lease, err := e.leases.Get(ctx, LeaseName, metav1.GetOptions{})
	if err != nil {
		return // they wait until the Lease expires
	}
	if holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity"); holder == e.identity {
		unstructured.RemoveNestedField(lease.Object, "spec", "holderIdentity")
		_, _ = e.leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
}
