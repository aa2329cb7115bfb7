// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const (
	pillionNamespace = "pillion-system"
	servingSecret    = "pillion-tls"
	authoritySecret  = "pillion-ca"
)

// rotate runs a rotation while pods are created continuously, many before it and many after it. None of them
// may fail or stay unchanged.
func (i *installed) rotate(t *testing.T, name string, rotation func(t *testing.T, l *load)) {
	t.Helper()
	i.rotateBut(t, name, func(t *testing.T, l *load) []window {
		rotation(t, l)
		return nil
	})
}

// window is a time in which creates may go wrong.
type window struct{ from, to time.Time }

func (w window) has(f failure) bool { return f.ended.After(w.from) && f.began.Before(w.to) }

// rotateBut is rotate with windows that the rotation returns.
func (i *installed) rotateBut(t *testing.T, name string, rotation func(t *testing.T, l *load) []window) {
	t.Run(name, func(t *testing.T) {
		fewestCreates, fewestConnections := rotationSize()
		connections := i.connections()
		l := i.startLoad(t)
		l.more(t, fewestCreates/3)
		start := time.Now()
		windows := rotation(t, l)
		took := time.Since(start)
		l.more(t, max(fewestCreates/3, fewestCreates-l.created.Load()))
		eventuallyWithin(t, 3*time.Minute, fmt.Sprintf("%d connections are made", fewestConnections), func(context.Context) error {
			if made := i.connections() - connections; made < fewestConnections {
				return fmt.Errorf("%d were made, so few certificates were looked at", made)
			}
			return nil
		})
		l.stop()
		connections = i.connections() - connections
		t.Logf("%d pods created, %d connections made; the rotation took %s", l.created.Load(), connections, took.Round(time.Millisecond))
		all := len(l.failures)
		wrong := slices.DeleteFunc(l.failures, func(f failure) bool {
			return slices.ContainsFunc(windows, func(w window) bool { return w.has(f) })
		})
		if len(windows) > 0 {
			t.Logf("%d creates went wrong where they may", all-len(wrong))
		}
		for _, f := range wrong[:min(len(wrong), 10)] {
			t.Errorf("%s after the rotation began: %v", f.ended.Sub(start).Round(time.Millisecond), f.err)
		}
		if len(wrong) > 10 {
			t.Errorf("and %d more", len(wrong)-10)
		}
	})
}

func (i *installed) connections() (n int64) {
	for _, r := range i.replicas {
		n += r.Accepted()
	}
	return n
}

// served returns the certificate that a replica serves to a new connection.
func served(ctx context.Context, r *cluster.Replica) (*x509.Certificate, error) {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the test does not verify the server
	conn, err := dialer.DialContext(ctx, "tcp", r.Address())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// served are the certificates that the replicas serve.
func (i *installed) served(t *testing.T) (leaves []*x509.Certificate) {
	t.Helper()
	for _, r := range i.replicas {
		leaf, err := served(testContext(t), r)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leaf)
	}
	return leaves
}

// waitForServed returns when every replica serves what the Secret holds.
func (i *installed) waitForServed(t *testing.T) {
	t.Helper()
	for _, r := range i.replicas {
		eventually(t, "the replica serves the Secret's certificate", func(ctx context.Context) error {
			want, err := i.secretLeaf(ctx)
			if err != nil {
				return err
			}
			leaf, err := served(ctx, r)
			if err == nil && !leaf.Equal(want) {
				err = fmt.Errorf("serves serial %s, not %s", leaf.SerialNumber, want.SerialNumber)
			}
			return err
		})
	}
}

func (i *installed) secretLeaf(ctx context.Context) (*x509.Certificate, error) {
	secret, err := i.Client.CoreV1().Secrets(pillionNamespace).Get(ctx, servingSecret, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	return pair.Leaf, nil
}

// changes does something and returns when the Secret holds another certificate than before.
func (i *installed) changes(t *testing.T, secret string, f func(ctx context.Context) error) {
	t.Helper()
	ctx := testContext(t)
	start := time.Now()
	before, err := i.Client.CoreV1().Secrets(pillionNamespace).Get(ctx, secret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Secret "+secret+" changes", func(ctx context.Context) error {
		now, err := i.Client.CoreV1().Secrets(pillionNamespace).Get(ctx, secret, metav1.GetOptions{})
		if err == nil && (len(now.Data[corev1.TLSCertKey]) == 0 || string(now.Data[corev1.TLSCertKey]) == string(before.Data[corev1.TLSCertKey])) {
			err = errors.New("not yet")
		}
		return err
	})
	t.Logf("the Secret %s has changed after %s", secret, time.Since(start).Round(time.Millisecond))
}

func (i *installed) deleteSecret(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		err := i.Client.CoreV1().Secrets(pillionNamespace).Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
}

// renew makes cert-manager issue a Certificate again, as `cmctl renew` does.
func (i *installed) renew(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		body := fmt.Sprintf(`{"apiVersion":"cert-manager.io/v1","kind":"Certificate","metadata":{"name":%q,"namespace":%q},
			"status":{"conditions":[{"type":"Issuing","status":"True","reason":"ManuallyTriggered","message":"a test wants it","lastTransitionTime":%q}]}}`,
			name, pillionNamespace, time.Now().UTC().Format(time.RFC3339))
		return i.Client.CoreV1().RESTClient().Patch(types.ApplyPatchType).
			AbsPath("/apis/cert-manager.io/v1/namespaces", pillionNamespace, "certificates", name, "status").
			Param("fieldManager", "pillion-e2e").Param("force", "true").Body([]byte(body)).Do(ctx).Error()
	}
}

func TestRotationCertManager(t *testing.T) {
	parallelUnlessFull(t)
	c := newCluster(t)
	manager, err := c.StartCertManager(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := install(t, c, "cert-manager")
	i.waitForInjection(t)

	i.rotate(t, "leaf renewed", func(t *testing.T, _ *load) {
		i.changes(t, servingSecret, i.renew("pillion"))
		i.waitForServed(t)
	})
	i.rotate(t, "CA renewed", func(t *testing.T, _ *load) {
		i.changes(t, authoritySecret, i.renew("pillion-ca"))
		i.changes(t, servingSecret, i.renew("pillion"))
		i.waitForServed(t)
	})
	i.rotate(t, "CA key changed", func(t *testing.T, _ *load) {
		i.changes(t, authoritySecret, i.deleteSecret(authoritySecret))
		i.changes(t, servingSecret, i.renew("pillion"))
		i.waitForServed(t)
	})
	i.rotate(t, "Secret deleted", func(t *testing.T, _ *load) {
		i.changes(t, servingSecret, i.deleteSecret(servingSecret))
		i.waitForServed(t)
	})
	i.rotate(t, "manifests applied again", func(t *testing.T, l *load) {
		for range 2 {
			i.apply(t, "cert-manager")
			l.more(t, 100)
		}
	})
	i.rotate(t, "cainjector paused", func(t *testing.T, l *load) {
		before := i.served(t)
		if err := manager.PauseInjector(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = manager.ResumeInjector() }()
		i.changes(t, authoritySecret, i.deleteSecret(authoritySecret))
		i.changes(t, servingSecret, i.renew("pillion"))
		fewestCreates, _ := rotationSize()
		l.more(t, fewestCreates/3)
		if now := i.served(t); !slices.EqualFunc(now, before, (*x509.Certificate).Equal) {
			t.Error("a certificate is served that no caBundle verifies yet")
		}
		if err := manager.ResumeInjector(); err != nil {
			t.Fatal(err)
		}
		i.waitForServed(t)
	})
	i.bundlesCleared(t)
	if t.Failed() {
		t.Log(manager.Log())
	}
}

// TestRotationSelfSigned checks that without cert-manager, a user can renew a certificate, a key or
// both at once by deleting them.
func TestRotationSelfSigned(t *testing.T) {
	parallelUnlessFull(t)
	i := install(t, newCluster(t), "self-signed")
	i.waitForInjection(t)

	i.rotate(t, "leaf renewed", func(t *testing.T, _ *load) {
		i.changes(t, servingSecret, i.empty(corev1.TLSCertKey))
		i.waitForServed(t)
	})
	i.rotate(t, "CA key changed", func(t *testing.T, _ *load) {
		i.changes(t, servingSecret, i.empty("ca.key"))
		i.waitForServed(t)
	})
	i.rotate(t, "Secret deleted", func(t *testing.T, _ *load) {
		i.changes(t, servingSecret, i.deleteSecret(servingSecret))
		i.waitForServed(t)
	})
	i.rotate(t, "manifests applied again", func(t *testing.T, l *load) {
		i.apply(t, "self-signed")
		l.more(t, 100)
	})
	i.bundlesCleared(t)
}

// empty takes the value of an entry of the Secret away.
func (i *installed) empty(key string) func(context.Context) error {
	return func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `[{"op":"replace","path":"/data/%s","value":""}]`, key)
		_, err := i.Client.CoreV1().Secrets(pillionNamespace).Patch(ctx, servingSecret, types.JSONPatchType, patch, metav1.PatchOptions{})
		return err
	}
}

// TestRenewalSelfSigned only waits. Certificates and CAs are valid for a few seconds.
func TestRenewalSelfSigned(t *testing.T) {
	parallelUnlessFull(t)
	i := install(t, newCluster(t), "self-signed", "--tls-lifetime=15s", "--tls-ca-lifetime=45s")
	i.waitForInjection(t)
	i.rotate(t, "CA and leaf renewed", func(t *testing.T, l *load) {
		first := i.served(t)[0]
		issuers, leaves := map[string]bool{first.Issuer.String(): true}, map[string]bool{first.SerialNumber.String(): true}
		eventuallyWithin(t, time.Minute, "two CAs have issued four certificates", func(ctx context.Context) error {
			leaf, err := served(ctx, i.replicas[0])
			if err != nil {
				return err
			}
			issuers[leaf.Issuer.String()], leaves[leaf.SerialNumber.String()] = true, true
			if len(issuers) < 2 || len(leaves) < 4 {
				return fmt.Errorf("%d and %d", len(issuers), len(leaves))
			}
			return nil
		})
	})
}

// bundlesCleared shows both: without the policy, pods go wrong between the moment in which a user empties the
// caBundles and the one in which they are back, and no other; with it there is no such moment.
func (i *installed) bundlesCleared(t *testing.T) {
	t.Helper()
	i.rotateBut(t, "caBundle cleared and put back", func(t *testing.T, l *load) (windows []window) {
		for range 3 {
			l.more(t, 100)
			from := time.Now()
			i.clearBundles(t)
			eventually(t, "the caBundles are back", i.bundlesThere)
			to := time.Now().Add(apiServerLag)
			t.Logf("the caBundles were back after %s", time.Since(from).Round(time.Millisecond))
			windows = append(windows, window{from, to})
		}
		return windows
	})
	t.Run("with the policy", func(t *testing.T) {
		needsKubernetes(t, 36, servesMutating)
		i.rotate(t, "caBundle cleared and kept", func(t *testing.T, l *load) {
			i.keepBundles(t)
			i.waitForPolicy(t)
			for range 3 {
				l.more(t, 100)
				i.clearBundles(t)
				if err := i.bundlesThere(testContext(t)); err != nil {
					t.Error(err)
				}
			}
		})
	})
}

// keepBundles adds the component keep-ca-bundle.
func (i *installed) keepBundles(t *testing.T) {
	t.Helper()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(root, "manifests", "components", "keep-ca-bundle", "policy.yaml")
	if _, err := i.RunKubectl(t.Context(), nil, "apply", "--server-side", "--validate=strict", "-f", policy); err != nil {
		t.Fatal(err)
	}
}

// apiServerLag is more than an API server takes to go by a configuration that is stored.
const apiServerLag = time.Second

// clearBundles empties the caBundle of all webhooks, as a user does who applies the shipped configurations
// again.
func (i *installed) clearBundles(t *testing.T) {
	t.Helper()
	ctx, api := testContext(t), i.Client.AdmissionregistrationV1()
	patch := []byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"},{"op":"remove","path":"/webhooks/1/clientConfig/caBundle"}]`)
	_, err := api.MutatingWebhookConfigurations().Patch(ctx, pillionConfiguration, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch = append(bytes.TrimSuffix(patch, []byte("]")), `,{"op":"remove","path":"/webhooks/2/clientConfig/caBundle"}]`...)
	_, err = api.ValidatingWebhookConfigurations().Patch(ctx, pillionConfiguration, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (i *installed) bundlesThere(ctx context.Context) error {
	mutating, err := i.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, pillionConfiguration, metav1.GetOptions{})
	if err != nil {
		return err
	}
	validating, err := i.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, pillionConfiguration, metav1.GetOptions{})
	if err != nil {
		return err
	}
	empty := slices.ContainsFunc(mutating.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return len(w.ClientConfig.CABundle) == 0 })
	if empty || slices.ContainsFunc(validating.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return len(w.ClientConfig.CABundle) == 0 }) {
		return errors.New("a caBundle is empty")
	}
	return nil
}

// waitForPolicy waits until the policy keeps caBundles in the API server, which a dry run shows.
func (i *installed) waitForPolicy(t *testing.T) {
	t.Helper()
	patch := []byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)
	eventually(t, "the policy is in force", func(ctx context.Context) error {
		got, err := i.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, pillionConfiguration,
			types.JSONPatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(got.Webhooks[0].ClientConfig.CABundle) == 0 {
			err = errors.New("a caBundle can be emptied")
		}
		return err
	})
}
