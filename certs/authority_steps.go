// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

const (
	// FieldManager owns the caBundles and no other field.
	FieldManager = "pillion-certs"
	// stepTime limits the API calls of one step.
	stepTime = 10 * time.Second
)

// performStep performs the next change in the cluster, and returns when to check again if no event
// happens before.
func (a *Authority) performStep(ctx context.Context) (next time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	now, v := a.clock.now(), a.snapshotView()
	next = min(max(a.Policy.LeafLifetime/100, 100*time.Millisecond), time.Minute)
	switch {
	case !v.known, v.secret != nil && !v.leading:
		return next, nil
	case v.secret == nil && a.yieldsToOthers(v):
		return min(next, time.Second), nil
	}
	m := v.held
	trusted := m.ca != nil && a.isCATrusted(m.ca.cert, v)
	wanted, done, err := a.Policy.planNext(m, now, func(ca *x509.Certificate) bool { return trusted && ca.Equal(m.ca.cert) })
	if err != nil {
		return next, err
	}
	if v.secret == nil {
		if a.made == nil || m.ca != nil { // otherwise the CA stays
			a.made = &made{material: wanted}
		}
		return time.Second, a.createSecret(ctx, a.made)
	}
	a.made = nil
	if len(done) == 0 && !bytes.Equal(v.secret.Data[keyCABundle], wanted.caBundle()) {
		done = append(done, "caBundle updated")
	}
	if len(done) > 0 {
		err = a.updateSecret(ctx, v.secret, wanted, done)
	} else if wanted.leaf.Leaf.CheckSignatureFrom(wanted.ca.cert) != nil {
		next = min(next, time.Second) // API servers do not trust the new CA yet
	}
	if !slices.EqualFunc(m.bundle, wanted.bundle, (*x509.Certificate).Equal) {
		return next, err // caBundles get only what the Secret already contains
	}
	calm, tellErr := a.tellAPIServers(ctx, m, v)
	if !calm {
		next = min(next, time.Second)
	}
	return next, errors.Join(err, tellErr)
}

// made is the Secret that this replica created. It is kept until the watch delivers it. If the
// watch is late, a second apply by the same field manager would replace the first.
type made struct {
	material
	told bool
}

// createSecret creates the Secret. If another replica is faster, that one wins: each replica applies
// the Secret with its own field manager, so the second apply is a conflict. (RBAC can restrict
// apply to a resource name, but not POST.)
func (a *Authority) createSecret(ctx context.Context, m *made) error {
	data, err := m.secretData()
	if err != nil {
		return err
	}
	secret, err := toUnstructured(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name, Labels: map[string]string{"app.kubernetes.io/name": "pillion"}},
		Type:       corev1.SecretTypeTLS,
		Data:       data,
	})
	if err != nil {
		return err
	}
	_, err = a.secretClient().Apply(ctx, a.Name, secret, metav1.ApplyOptions{FieldManager: FieldManager + "-" + a.Identity})
	switch {
	case apierrors.IsConflict(err):
		return nil // the watch delivers it
	case err != nil:
		return fmt.Errorf("creating the Secret %s/%s: %w", a.Namespace, a.Name, err)
	}
	if m.told {
		return nil
	}
	m.told = true
	a.Log.Info("Secret made", "secret", a.Namespace+"/"+a.Name, "ca", m.ca.cert.Subject.CommonName, "expires", m.leaf.Leaf.NotAfter)
	return nil
}

// updateSecret writes the wanted content into the Secret that was seen. If the Secret has changed
// since, the write fails, the watch delivers the change, and another step follows.
func (a *Authority) updateSecret(ctx context.Context, seen *corev1.Secret, m material, done []string) error {
	data, err := m.secretData()
	if err != nil {
		return err
	}
	next := *seen
	next.Data = mergeData(seen.Data, data)
	secret, err := toUnstructured(&next)
	if err != nil {
		return err
	}
	_, err = a.secretClient().Update(ctx, secret, metav1.UpdateOptions{FieldManager: FieldManager})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("updating the Secret %s/%s: %w", a.Namespace, a.Name, err)
	}
	a.Log.Info("certificates renewed", "done", done, "ca", m.ca.cert.Subject.CommonName, "expires", m.leaf.Leaf.NotAfter)
	return nil
}

// tellAPIServers sets every caBundle to the material's. It skips a configuration (calm is
// false) that other clients have changed too often lately.
func (a *Authority) tellAPIServers(ctx context.Context, m material, v authorityView) (calm bool, err error) {
	bundle := m.caBundle()
	if len(bundle) == 0 {
		return true, nil
	}
	calm = true
	for _, c := range AllConfigurations() {
		other := func(n CABundle) bool { return !bytes.Equal(n.Bundle, bundle) }
		if v.applied[c] == string(bundle) || !slices.ContainsFunc(v.bundles[c], other) {
			continue
		}
		if !a.calm[c].TryAccept() {
			calm = false
			continue
		}
		if failed := a.applyBundles(ctx, c, v.bundles[c], bundle); failed != nil {
			err = errors.Join(err, fmt.Errorf("applying the caBundles of the %s %s: %w", c.Kind(), c.Named(a.Configuration), failed))
			continue
		}
		a.Log.Info("caBundles applied", "configuration", c, "cas", len(m.bundle))
	}
	return calm, err
}

// applyBundles applies the caBundle of every webhook, and no other field. It does not repeat this
// until the watch reports a change of the configuration.
func (a *Authority) applyBundles(ctx context.Context, c Configuration, bundles []CABundle, bundle []byte) (err error) {
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
	name := c.Named(a.Configuration)
	var webhooks []any
	for _, n := range bundles {
		webhooks = append(webhooks, map[string]any{"name": n.Webhook, "clientConfig": map[string]any{"caBundle": base64.StdEncoding.EncodeToString(bundle)}})
	}
	config := &unstructured.Unstructured{Object: map[string]any{"webhooks": webhooks}}
	config.SetAPIVersion(c.Resource().GroupVersion().String())
	config.SetKind(c.Kind())
	config.SetName(name)
	_, err = a.Client.Resource(c.Resource()).Apply(ctx, name, config, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	return err
}

func (a *Authority) secretClient() dynamic.ResourceInterface {
	return a.Client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(a.Namespace)
}

// toUnstructured converts an object for [dynamic.Interface].
func toUnstructured(object runtime.Object) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return &unstructured.Unstructured{Object: fields}, err
}
