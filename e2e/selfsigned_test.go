// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// TestSelfSigned installs the overlay as shipped, with no manual step.
func TestSelfSigned(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	start := time.Now()
	i := install(t, c, "self-signed")
	pod := i.waitForInjection(t)
	t.Logf("%s after kubectl apply, pod %s is injected", time.Since(start).Round(time.Millisecond), pod.Name)

	t.Run("one CA for all", i.oneCA)
	t.Run("caBundle", i.ownsCABundlesOnly)
	t.Run("rights", i.leastRights)
	t.Run("caBundle cleared", i.repairsCABundles)
	t.Run("Secret deleted", i.makesSecretAgain)
	t.Run("garbage", i.survivesGarbage)
	t.Run("CA renewed", i.renewsCA)
	t.Run("leader gone", i.replacesLeader)
	t.Run("another port", i.calledAtAnotherPort)
	t.Run("static pods", i.limitsStaticPods)
}

// readMaterial reads the Secret.
func (i *installed) readMaterial(ctx context.Context) (map[string][]byte, error) {
	secret, err := i.Client.CoreV1().Secrets(pillionNamespace).Get(ctx, servingSecret, metav1.GetOptions{})
	return secret.Data, err
}

func (i *installed) material(t *testing.T) map[string][]byte {
	t.Helper()
	data, err := i.readMaterial(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// setMaterial changes entries of the Secret.
func (i *installed) setMaterial(t *testing.T, entries map[string][]byte) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"data": entries})
	if err != nil {
		t.Fatal(err)
	}
	_, err = i.Client.CoreV1().Secrets(pillionNamespace).Patch(testContext(t), servingSecret, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func certificatesIn(text []byte) (all []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// caBundles are those of all webhooks.
func (i *installed) caBundles(ctx context.Context) (all [][]byte, err error) {
	mutating, err := i.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, pillionConfiguration, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	validating, err := i.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, pillionConfiguration, metav1.GetOptions{})
	for _, w := range mutating.Webhooks {
		all = append(all, w.ClientConfig.CABundle)
	}
	for _, w := range validating.Webhooks {
		all = append(all, w.ClientConfig.CABundle)
	}
	if err != nil {
		return all, err
	}
	advising, err := i.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, adviseConfiguration, metav1.GetOptions{})
	for _, w := range advising.Webhooks {
		all = append(all, w.ClientConfig.CABundle)
	}
	return all, err
}

// waitForCABundles returns when all webhooks trust what the Secret says.
func (i *installed) waitForCABundles(t *testing.T) {
	t.Helper()
	eventually(t, "all caBundles are the Secret's", func(ctx context.Context) error {
		data, err := i.readMaterial(ctx)
		if err != nil {
			return err
		}
		other := func(b []byte) bool { return !bytes.Equal(b, data["ca-bundle.crt"]) }
		bundles, err := i.caBundles(ctx)
		if err == nil && (len(bundles) != len(pillionRules()) || slices.ContainsFunc(bundles, other)) {
			err = errors.New("not yet")
		}
		return err
	})
}

// oneCA checks that two replicas that started at the same time both serve the certificate that one of them made.
func (i *installed) oneCA(t *testing.T) {
	i.waitForServed(t)
	made, leaders := 0, 0.0
	for _, r := range i.replicas {
		made += len(r.Logged("Secret made"))
		metrics, err := r.Metrics(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		leaders += metrics.Gauge("pillion_certificate_authority_leader", nil)
		if until := metrics.Gauge("pillion_certificate_authority_expires_timestamp_seconds", nil); until <= float64(time.Now().Unix()) {
			t.Errorf("the CA expires at %v", until)
		}
		if metrics["pillion_certificate_authority_failures_total"] == nil {
			t.Error("failures are not counted")
		}
	}
	if made != 1 || leaders != 1 {
		t.Errorf("%d replicas made the Secret, and %g renew it", made, leaders)
	}
	data := i.material(t)
	if got := len(certificatesIn(data["ca-bundle.crt"])); got != 1 || !bytes.Equal(data["ca-bundle.crt"], data["ca.crt"]) {
		t.Errorf("%d CAs", got)
	}
	i.waitForCABundles(t)
}

// ownsCABundlesOnly checks that the field manager owns the CA bundle of every webhook, and no other field.
func (i *installed) ownsCABundlesOnly(t *testing.T) {
	mutating, err := i.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(testContext(t), pillionConfiguration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	validating, err := i.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(testContext(t), pillionConfiguration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for object, entries := range map[metav1.Object]int{mutating: len(mutating.Webhooks), validating: len(validating.Webhooks)} {
		found := false
		for _, m := range object.GetManagedFields() {
			if m.Manager != "pillion-certs" {
				continue
			}
			found = true
			text := strings.ReplaceAll(m.FieldsV1.GetRawString(), `".":{},`, "")
			if leaves := strings.Count(text, "{}"); leaves != 2*entries || strings.Count(text, `"f:caBundle":{}`) != entries || strings.Count(text, `"f:name":{}`) != entries {
				t.Errorf("%T: it owns %s", object, text)
			}
			if m.Operation != metav1.ManagedFieldsOperationApply {
				t.Errorf("%T: by %s", object, m.Operation)
			}
		}
		if !found {
			t.Errorf("%T: no field manager pillion-certs", object)
		}
	}
}

// leastRights checks that the ServiceAccount may not do to other objects what it may do to its own.
func (i *installed) leastRights(t *testing.T) {
	ctx := testContext(t)
	config := rest.CopyConfig(i.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:pillion-system:pillion"}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	secrets := client.CoreV1().Secrets(pillionNamespace)
	if _, err := secrets.Get(ctx, servingSecret, metav1.GetOptions{}); err != nil {
		t.Errorf("its own Secret: %v", err)
	}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	forbidden := map[string]error{}
	_, forbidden["get another Secret"] = secrets.Get(ctx, "other", metav1.GetOptions{})
	_, forbidden["list Secrets"] = secrets.List(ctx, metav1.ListOptions{})
	_, forbidden["create another Secret"] = secrets.Create(ctx, other, metav1.CreateOptions{})
	_, forbidden["apply another Secret"] = secrets.Patch(ctx, "other", types.ApplyPatchType,
		[]byte(`{"apiVersion":"v1","kind":"Secret"}`), metav1.PatchOptions{FieldManager: "pillion-e2e"})
	forbidden["delete its Secret"] = secrets.Delete(ctx, servingSecret, metav1.DeleteOptions{})
	_, forbidden["get a Secret elsewhere"] = client.CoreV1().Secrets(i.namespace).Get(ctx, servingSecret, metav1.GetOptions{})
	_, forbidden["get another Lease"] = client.CoordinationV1().Leases(pillionNamespace).Get(ctx, "other", metav1.GetOptions{})
	configurations := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, forbidden["list webhook configurations"] = configurations.List(ctx, metav1.ListOptions{})
	_, forbidden["patch another webhook configuration"] = configurations.Patch(ctx, "other", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	forbidden["delete its webhook configuration"] = configurations.Delete(ctx, pillionConfiguration, metav1.DeleteOptions{})
	for what, err := range forbidden {
		if !apierrors.IsForbidden(err) {
			t.Errorf("it may %s: %v", what, err)
		}
	}
}

func (i *installed) repairsCABundles(t *testing.T) {
	before := i.served(t)
	for range 3 {
		i.clearBundles(t)
		start := time.Now()
		i.waitForCABundles(t)
		t.Logf("the caBundles were back after %s", time.Since(start).Round(time.Millisecond))
	}
	if now := i.served(t); !slices.EqualFunc(now, before, (*x509.Certificate).Equal) {
		t.Error("another certificate is served")
	}
	i.waitForInjection(t)
}

func (i *installed) makesSecretAgain(t *testing.T) {
	before := i.material(t)
	i.changes(t, servingSecret, i.deleteSecret(servingSecret))
	i.waitForServed(t)
	if after := i.material(t); !bytes.Equal(after["ca.crt"], before["ca.crt"]) || !bytes.Equal(after["ca-bundle.crt"], before["ca-bundle.crt"]) {
		t.Error("the CA is another one")
	}
	i.mustInject(t)
}

// survivesGarbage checks that the last valid pair is served whatever the Secret contains, and that Pillion repairs the Secret.
func (i *installed) survivesGarbage(t *testing.T) {
	data := i.material(t)
	for what, entries := range map[string]map[string][]byte{
		"garbage":              {"tls.crt": []byte("garbage"), "tls.key": []byte("garbage")},
		"a key that is others": {"tls.key": data["ca.key"]},
		"half a certificate":   {"tls.crt": data["tls.crt"][:len(data["tls.crt"])/2]},
		"no certificate":       {"tls.crt": {}, "tls.key": {}}, // the Secret's type wants the entries to be there
		"no bundle":            {"ca-bundle.crt": []byte("garbage")},
		"another CA's bundle":  {"ca-bundle.crt": i.Authority.PEM},
	} {
		i.setMaterial(t, entries)
		i.mustInject(t)
		eventually(t, what+": put right", func(ctx context.Context) error {
			now, err := i.readMaterial(ctx)
			if err != nil {
				return err
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(now["ca-bundle.crt"])
			leaf := certificatesIn(now["tls.crt"])
			if len(leaf) == 0 {
				return errors.New("no certificate")
			}
			_, err = leaf[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: "pillion.pillion-system.svc"})
			return err
		})
		i.waitForServed(t)
		i.mustInject(t)
	}
}

// renewsCA checks that the old and the new CA are trusted at the same time, and that pods are injected without interruption.
func (i *installed) renewsCA(t *testing.T) {
	before := i.material(t)
	old := certificatesIn(before["ca.crt"])[0]
	i.setMaterial(t, map[string][]byte{"ca.key": nil})
	eventually(t, "another CA has issued the certificate", func(ctx context.Context) error {
		if err := i.inject(ctx); err != nil {
			t.Error(err)
		}
		bundles, err := i.caBundles(ctx)
		if err != nil {
			return err
		}
		now, err := i.readMaterial(ctx)
		if err != nil {
			return err
		}
		leaf, ca := certificatesIn(now["tls.crt"])[0], certificatesIn(now["ca.crt"])[0]
		if leaf.CheckSignatureFrom(ca) != nil || ca.Equal(old) {
			return fmt.Errorf("the certificate is of %s, the CA is %s", leaf.Issuer, ca.Subject)
		}
		for _, b := range bundles {
			trusted := certificatesIn(b)
			if !slices.ContainsFunc(trusted, old.Equal) || !slices.ContainsFunc(trusted, ca.Equal) {
				return fmt.Errorf("%d CAs in a caBundle", len(trusted))
			}
		}
		return nil
	})
	i.waitForServed(t)
	i.mustInject(t)
}

// replacesLeader stops the replica that renews. The other one renews from then on.
func (i *installed) replacesLeader(t *testing.T) {
	leader := slices.IndexFunc(i.replicas, func(r *cluster.Replica) bool {
		metrics, err := r.Metrics(testContext(t))
		return err == nil && metrics.Gauge("pillion_certificate_authority_leader", nil) == 1
	})
	if leader < 0 {
		t.Fatal("no replica renews")
	}
	if err := i.replicas[leader].Stop(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	i.clearBundles(t)
	i.waitForCABundles(t)
	t.Logf("the other one has put the caBundles back after %s", time.Since(start).Round(time.Millisecond))
}

// inject creates a pod, which has to be injected.
func (i *installed) inject(ctx context.Context) error {
	pod := shopPod()
	pod.GenerateName = "web-"
	created, err := i.Client.CoreV1().Pods(i.namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err == nil && !isInjected(created) {
		err = errNotInjected
	}
	return err
}

func (i *installed) mustInject(t *testing.T) {
	t.Helper()
	if err := i.inject(testContext(t)); err != nil {
		t.Error(err)
	}
}
