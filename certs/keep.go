// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	admissionconfig "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	coreconfig "k8s.io/client-go/applyconfigurations/core/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	// FieldManager owns the caBundles, and nothing else.
	FieldManager = "pillion-certs"
	// LeaseName is the Lease by which one replica is elected.
	LeaseName = "pillion-certs"
	// stepTime limits the calls of one step.
	stepTime = 10 * time.Second
)

// step brings the cluster one step nearer to what it should be, and says when to
// look again if nothing happens before.
func (a *Authority) step(ctx context.Context) (next time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	now, v := a.clock.now(), a.look()
	next = min(max(a.Policy.LeafLifetime/100, 100*time.Millisecond), time.Minute)
	switch {
	case !v.known, v.secret != nil && !v.leading:
		return next, nil
	case v.secret == nil && a.yields(v):
		return min(next, time.Second), nil
	}
	m := v.held
	trusted := m.ca != nil && a.trusts(m.ca.cert, v)
	wanted, done, err := a.Policy.plan(m, now, func(ca *x509.Certificate) bool { return trusted && ca.Equal(m.ca.cert) })
	if err != nil {
		return next, err
	}
	if v.secret == nil {
		return time.Second, a.create(ctx, wanted)
	}
	if len(done) == 0 && !bytes.Equal(v.secret.Data[keyCABundle], wanted.caBundle()) {
		done = append(done, "CA bundle put in order")
	}
	if len(done) > 0 {
		err = a.update(ctx, v.secret, wanted, done)
	} else if wanted.leaf.Leaf.CheckSignatureFrom(wanted.ca.cert) != nil {
		next = min(next, time.Second) // the new CA has yet to be trusted
	}
	if !slices.EqualFunc(m.bundle, wanted.bundle, (*x509.Certificate).Equal) {
		return next, err // API servers are told what is in the Secret, not what may get there
	}
	calm, tellErr := a.tellAPIServers(ctx, m, v)
	if !calm {
		next = min(next, time.Second)
	}
	return next, errors.Join(err, tellErr)
}

// create makes the Secret. A replica that was faster wins: all apply it under
// managers of their own, so the second one is a conflict. (A right to create
// objects of a certain name exists for applying them, not for posting them.)
func (a *Authority) create(ctx context.Context, m material) error {
	data, err := m.data()
	if err != nil {
		return err
	}
	secret := coreconfig.Secret(a.Name, a.Namespace).
		WithLabels(map[string]string{"app.kubernetes.io/name": "pillion"}).
		WithType(corev1.SecretTypeTLS).
		WithData(data)
	_, err = a.Secrets.Secrets(a.Namespace).Apply(ctx, secret, metav1.ApplyOptions{FieldManager: FieldManager + "-" + a.Identity})
	switch {
	case apierrors.IsConflict(err):
		return nil // and the watch brings it
	case err != nil:
		return fmt.Errorf("making the Secret %s/%s: %w", a.Namespace, a.Name, err)
	}
	a.Log.Info("Secret made", "secret", a.Namespace+"/"+a.Name, "ca", m.ca.cert.Subject.CommonName, "expires", m.leaf.Leaf.NotAfter)
	return nil
}

// update writes what is wanted into the Secret as it was seen. Where it has been
// changed since, the watch brings that, and there will be another step.
func (a *Authority) update(ctx context.Context, seen *corev1.Secret, m material, done []string) error {
	data, err := m.data()
	if err != nil {
		return err
	}
	secret := seen.DeepCopy()
	secret.Data = merged(seen.Data, data)
	_, err = a.Secrets.Secrets(a.Namespace).Update(ctx, secret, metav1.UpdateOptions{FieldManager: FieldManager})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("updating the Secret %s/%s: %w", a.Namespace, a.Name, err)
	}
	a.Log.Info("certificates renewed", "done", done, "ca", m.ca.cert.Subject.CommonName, "expires", m.leaf.Leaf.NotAfter)
	return nil
}

// tellAPIServers has every caBundle be the material's. Some are left (calm is
// false) where somebody else has changed them too often lately.
func (a *Authority) tellAPIServers(ctx context.Context, m material, v authorityView) (calm bool, err error) {
	bundle := m.caBundle()
	if len(bundle) == 0 {
		return true, nil
	}
	calm = true
	for _, c := range AllConfigurations() {
		other := func(n Anchor) bool { return !bytes.Equal(n.Bundle, bundle) }
		if v.applied[c] == string(bundle) || !slices.ContainsFunc(v.anchors[c], other) {
			continue
		}
		if !a.calm[c].TryAccept() {
			calm = false
			continue
		}
		if failed := a.apply(ctx, c, v.anchors[c], bundle); failed != nil {
			err = errors.Join(err, fmt.Errorf("applying the caBundles of the %s %s: %w", c.Kind(), c.Named(a.Configuration), failed))
			continue
		}
		a.Log.Info("caBundles applied", "configuration", c, "cas", len(m.bundle))
	}
	return calm, err
}

// apply owns the caBundle of every webhook, and no other field. Until the watch
// tells of the configuration again it is not needed a second time.
func (a *Authority) apply(ctx context.Context, c Configuration, anchors []Anchor, bundle []byte) (err error) {
	a.mu.Lock()
	a.view.applied[c] = string(bundle)
	a.mu.Unlock()
	defer func() {
		if err != nil {
			a.mu.Lock()
			delete(a.view.applied, c)
			a.mu.Unlock()
		}
	}()
	// What is applied looks the same for both kinds.
	name, config := c.Named(a.Configuration), admissionconfig.ValidatingWebhookConfiguration(c.Named(a.Configuration)).WithKind(c.Kind())
	for _, n := range anchors {
		config.WithWebhooks(admissionconfig.ValidatingWebhook().WithName(n.Webhook).
			WithClientConfig(admissionconfig.WebhookClientConfig().WithCABundle(bundle...)))
	}
	patch, err := json.Marshal(config)
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: FieldManager, Force: new(true)}
	if c == Mutating {
		_, err = a.Admission.MutatingWebhookConfigurations().Patch(ctx, name, types.ApplyPatchType, patch, options)
	} else {
		_, err = a.Admission.ValidatingWebhookConfigurations().Patch(ctx, name, types.ApplyPatchType, patch, options)
	}
	return err
}

// elect takes part in the election of the replica that renews, until ctx is done.
func (a *Authority) elect(ctx context.Context) {
	stopped, stop := context.WithCancel(ctx)
	stop()
	config := leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: a.Namespace, Name: LeaseName},
			Client:     leasesByName{a.Leases},
			LockConfig: resourcelock.ResourceLockConfig{Identity: a.Identity},
			Labels:     map[string]string{"app.kubernetes.io/name": "pillion"},
		},
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Name:            LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: a.lead, // runs beside the next one
			OnStoppedLeading: func() { a.lead(stopped) },
		},
	}
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(config)
		if err != nil { // a mistake above
			a.tell(err)
			return
		}
		elector.Run(ctx)
	}
}

// leasesByName creates Leases by PUT, for which a right to objects of a certain
// name is enough; there is none for POST.
type leasesByName struct {
	coordinationclient.LeasesGetter
}

type leaseByName struct {
	coordinationclient.LeaseInterface
}

// Leases implements [coordinationclient.LeasesGetter].
func (l leasesByName) Leases(namespace string) coordinationclient.LeaseInterface {
	return leaseByName{l.LeasesGetter.Leases(namespace)}
}

// Create makes a Lease that does not exist.
func (l leaseByName) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.Update(ctx, lease, metav1.UpdateOptions{})
}
