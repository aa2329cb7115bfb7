// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// gated is a Pillion that serves a pair of files, and watches what the API server trusts: the caBundles of the
// shipped webhook configurations, which hold the run's authority.
type gated struct {
	*cluster.Pillion
	certFile, keyFile string
}

func newGated(t *testing.T, flags ...string) *gated {
	t.Helper()
	dir := t.TempDir()
	g := &gated{certFile: filepath.Join(dir, "tls.crt"), keyFile: filepath.Join(dir, "tls.key")}
	g.offer(t, env.Authority)
	var err error
	flags = append(flags, "--tls-cert-file", g.certFile, "--tls-key-file", g.keyFile)
	g.Pillion, err = env.StartGuarded(testContext(t), env.binary, env.templates, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Stop(); err != nil {
			t.Errorf("pillion serve after SIGTERM: %v\n%s", err, g.LogTail())
		}
	})
	return g
}

// offer writes a new pair of the authority's.
func (g *gated) offer(t *testing.T, a *cluster.Authority) *x509.Certificate {
	t.Helper()
	cert, key, err := a.Serving()
	if err != nil {
		t.Fatal(err)
	}
	g.write(t, cert, key)
	return certificatesIn(cert)[0]
}

func (g *gated) write(t *testing.T, cert, key []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(g.certFile, cert, 0o600), os.WriteFile(g.keyFile, key, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func (g *gated) served(ctx context.Context) (*x509.Certificate, error) {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the test does not verify the server
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(g.Endpoint.URL, "https://"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// waitForServed returns when the leaf is served.
func (g *gated) waitForServed(t *testing.T, want *x509.Certificate) {
	t.Helper()
	eventuallyWithin(t, 3*waitLimit, "the certificate is served", func(ctx context.Context) error {
		leaf, err := g.served(ctx)
		if err == nil && !leaf.Equal(want) {
			err = fmt.Errorf("serial %s is, not %s", leaf.SerialNumber, want.SerialNumber)
		}
		return err
	})
}

// waitForTold returns when Pillion is still ready and its readiness contains this.
func (g *gated) waitForTold(t *testing.T, text string) {
	t.Helper()
	eventually(t, "readiness tells "+text, func(ctx context.Context) error {
		status, body, err := g.Readiness(ctx)
		if err == nil && (status != http.StatusOK || !strings.Contains(body, text)) {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
}

// wantMetric compares a metric of one series.
func (g *gated) wantMetric(t *testing.T, name, reason string, want func(float64) bool) {
	t.Helper()
	metrics, err := g.Metrics(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{}
	if reason != "" {
		labels["reason"] = reason
	}
	if got := metrics.Gauge(name, labels) + metrics.Counter(name, labels); !want(got) {
		t.Errorf("metric %s{%s} is %g", name, reason, got)
	}
}

func some(v float64) bool { return v > 0 }
func none(v float64) bool { return v == 0 }

// TestBadPairs checks that Pillion serves the last valid pair and logs the problem, whatever the
// files contain.
func TestBadPairs(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	good := certificatesIn(read(t, g.certFile))[0]
	cert, key := read(t, g.certFile), read(t, g.keyFile)
	_, otherKey, err := env.Authority.Serving()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		what      string
		cert, key []byte
	}{
		{"garbage", []byte("garbage"), []byte("garbage")},
		{"a key that does not fit", cert, otherKey},
		{"half a certificate", cert[:len(cert)/2], key},
		{"no key", cert, nil},
	} {
		g.write(t, bad.cert, bad.key)
		g.waitForTold(t, "a new one is rejected since ")
		g.waitForServed(t, good)
		g.write(t, cert, key)
		eventually(t, "the good pair is taken for what is served", func(ctx context.Context) error {
			_, body, err := g.Readiness(ctx)
			if err == nil && strings.Contains(body, "rejected") {
				err = errors.New(body)
			}
			return err
		})
	}
	g.wantMetric(t, "pillion_certificate_rejected_total", "no_pair", some)

	cert, key, err = env.Authority.ServingUntil(time.Now().Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	g.write(t, cert, key)
	g.waitForTold(t, "a new one waits since ")
	g.waitForTold(t, ": it expired at ")
	g.waitForServed(t, good)
	g.wantMetric(t, "pillion_certificate_rejected_total", "expired", some)
	g.wantMetric(t, "pillion_certificate_pending_since_timestamp_seconds", "", some)
	g.wantMetric(t, "pillion_certificate_mismatched_webhooks", "", none)

	renewed := g.offer(t, env.Authority)
	g.waitForServed(t, renewed)
	g.wantMetric(t, "pillion_certificate_pending_since_timestamp_seconds", "", none)
}

// TestGate checks that Pillion does not serve a pair of a CA that the API server does not trust. It serves a
// trusted pair at once, on new connections only.
func TestGate(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	first := certificatesIn(read(t, g.certFile))[0]
	stranger, err := cluster.NewAuthority("stranger")
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // as above
	defer client.CloseIdleConnections()
	if serial, reused := onConnection(t, client, g); reused || serial.Cmp(first.SerialNumber) != 0 {
		t.Fatalf("the first request: serial %s, reused %t", serial, reused)
	}

	g.offer(t, stranger)
	g.waitForTold(t, "the caBundle of namespace.mutate.pillion.dev, pod.mutate.pillion.dev, namespace.validate.pillion.dev, pod.validate.pillion.dev, namespace.shadow.pillion.dev, lint.pillion.dev does not verify it")
	g.waitForServed(t, first)
	g.wantMetric(t, "pillion_certificate_pending_since_timestamp_seconds", "", some)

	second := g.offer(t, env.Authority)
	g.waitForServed(t, second)
	if serial, reused := onConnection(t, client, g); !reused || serial.Cmp(first.SerialNumber) != 0 {
		t.Errorf("the connection was dropped: serial %s, reused %t", serial, reused)
	}
}

// TestGateOff checks that without a right to read the webhook configurations, Pillion logs this, and serves a
// new certificate only after its first minute, because the right may come late.
func TestGateOff(t *testing.T) {
	t.Parallel()
	g := newGated(t, "--webhook-configuration", "others")
	g.waitForTold(t, "the mutating webhook configuration cannot be watched: ")
	stranger, err := cluster.NewAuthority("stranger")
	if err != nil {
		t.Fatal(err)
	}
	g.waitForServed(t, g.offer(t, stranger))
}

// onConnection sends a request and reports which connection it used.
func onConnection(t *testing.T, client *http.Client, g *gated) (serial *big.Int, reused bool) {
	t.Helper()
	ctx := httptrace.WithClientTrace(testContext(t), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, g.Endpoint.URL+"/mutate", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.TLS.PeerCertificates[0].SerialNumber, reused
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestCertsByURL checks the certs command for webhooks with a URL, as for a Pillion outside of the
// cluster. The command connects to that address by its name, and no Secret has to exist.
func TestCertsByURL(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(testContext(t), env.binary, "certs", "--kubeconfig", env.Kubeconfig).CombinedOutput()
	if want := strings.TrimPrefix(env.pillion.Endpoint.URL, "https://") + ": API servers accept this certificate"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("it says\n%s%v, want %q", out, err, want)
	}
}
