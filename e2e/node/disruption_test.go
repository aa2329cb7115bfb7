// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const pillionSelector = "app.kubernetes.io/name=pillion"

// TestRollingUpdate upgrades Pillion as the docs say.
func TestRollingUpdate(t *testing.T) {
	installed(t)
	disrupt(t, false, func(t *testing.T, _ *load) {
		kubectl(t, "apply", "--server-side", "-k", upgraded(t))
		waitForRollout(t)
		for _, pod := range readyPods(t, pillionNamespace, pillionSelector, 2) {
			if want := pillionName + ":" + otherTag; pod.Spec.Containers[0].Image != want {
				t.Errorf("%s runs %s, want %s", pod.Name, pod.Spec.Containers[0].Image, want)
			}
		}
	})
}

// upgraded returns a kustomization of a user, with another tag.
func upgraded(t *testing.T) string {
	t.Helper()
	return customized(t, fmt.Sprintf("images: [{name: %s, newTag: %s}]\n", pillionName, otherTag))
}

// customized returns a user's kustomization of the installed overlay, in which MANIFESTS stands for that
// folder.
func customized(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	overlay, err := filepath.Rel(dir, overlayDir(t, current))
	if err != nil {
		t.Fatal(err)
	}
	text = "resources: [" + overlay + "]\n" + strings.ReplaceAll(text, "MANIFESTS", filepath.Join(overlay, "..", ".."))
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestOneDeleted deletes one replica.
func TestOneDeleted(t *testing.T) {
	installed(t)
	disrupt(t, false, func(t *testing.T, _ *load) {
		pod := readyPods(t, pillionNamespace, pillionSelector, 2)[0]
		kubectl(t, "-n", pillionNamespace, "delete", "pod", pod.Name)
		readyPods(t, pillionNamespace, pillionSelector, 2)
	})
}

// TestAllDeleted deletes all replicas at the same time. They serve until the new ones are ready.
func TestAllDeleted(t *testing.T) {
	installed(t)
	disrupt(t, false, func(t *testing.T, _ *load) {
		kubectl(t, "-n", pillionNamespace, "delete", "pods", "-l", pillionSelector)
		readyPods(t, pillionNamespace, pillionSelector, 2)
	})
}

// TestOneKilled kills the process of the replica that the API server calls. Until its endpoint is gone, API servers may call it in
// vain: the validating webhook denies these pods.
func TestOneKilled(t *testing.T) {
	installed(t)
	disrupt(t, true, func(t *testing.T, l *load) { sendSignal(t, unix.SIGKILL, busiest(t, l)) })
}

// TestAllKilled kills the processes of all replicas.
func TestAllKilled(t *testing.T) {
	installed(t)
	disrupt(t, true, func(t *testing.T, _ *load) {
		sendSignal(t, unix.SIGKILL, readyPods(t, pillionNamespace, pillionSelector, 2)...)
	})
}

// TestScaledToZero scales Pillion to 0 and back. In between, the Deployment of a user is applied, and its
// controller creates the pods when Pillion is back.
func TestScaledToZero(t *testing.T) {
	installed(t)
	disrupt(t, true, func(t *testing.T, l *load) {
		scaleToZero(t)
		apply(t, l.ns, web)
		eventually(t, "the API server denies the pods of the Deployment", func(ctx context.Context) error {
			events, err := env.Client.CoreV1().Events(l.ns).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
			if err == nil && len(events.Items) == 0 {
				err = errors.New("there is no event")
			}
			return err
		})
		back := time.Now()
		kubectl(t, "-n", pillionNamespace, "scale", "deployment/pillion", "--replicas=2")
		readyPods(t, pillionNamespace, pillionSelector, 2)
		figure(t, "from scaling up to two ready replicas", time.Since(back))
		pod := readyPods(t, l.ns, "app=web", 1)[0]
		wantSidecar(t, &pod)
		figure(t, "from scaling up to the ready pod of a Deployment", time.Since(back))
	})
}

func scaleToZero(t *testing.T) {
	t.Helper()
	kubectl(t, "-n", pillionNamespace, "scale", "deployment/pillion", "--replicas=0")
	eventually(t, "all replicas are gone", func(ctx context.Context) error {
		found, err := pods(ctx, pillionNamespace, pillionSelector)
		if err == nil && len(found) > 0 {
			err = errors.New(stateOf(&found[0]))
		}
		return err
	})
}

// TestRenewal renews the serving certificate as the docs say, and waits until all replicas serve the new
// one.
func TestRenewal(t *testing.T) {
	installed(t)
	testRenewal(t)
}

// TestRenewalCertManager does the same with cert-manager. There, the kubelet updates the files of the
// certificate.
func TestRenewalCertManager(t *testing.T) {
	needCertManager(t)
	if current != certManager {
		remove(t)
		applyOverlay(t, certManager)
	}
	installed(t)
	testRenewal(t)
}

func testRenewal(t *testing.T) {
	disrupt(t, false, func(t *testing.T, _ *load) {
		before := secretCertificate(t)
		started := time.Now()
		kubectl(t, "-n", pillionNamespace, "delete", "secret", "pillion-tls")
		for _, pod := range readyPods(t, pillionNamespace, pillionSelector, 2) {
			eventually(t, "the replica serves a new certificate", func(ctx context.Context) error {
				served, err := servedCertificate(ctx, &pod)
				if err == nil && served.Equal(before) {
					err = errors.New("it serves the old one")
				}
				return err
			})
		}
		figure(t, "until all replicas served the new certificate", time.Since(started))
		for _, pod := range readyPods(t, pillionNamespace, pillionSelector, 2) {
			if n := pod.Status.ContainerStatuses[0].RestartCount; n > 0 && pod.CreationTimestamp.After(started) {
				t.Errorf("%s was restarted %d times", pod.Name, n)
			}
		}
	})
}

func secretCertificate(t *testing.T) *x509.Certificate {
	t.Helper()
	secret, err := env.Client.CoreV1().Secrets(pillionNamespace).Get(testContext(t), "pillion-tls", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

// servedCertificate returns the certificate that a replica serves to a new connection.
func servedCertificate(ctx context.Context, pod *corev1.Pod) (*x509.Certificate, error) {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the test compares the certificate itself
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, "8443"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}
