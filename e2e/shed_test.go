// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestShed runs alone. If Pillion has no memory for a call, the API server calls again a second later, and
// the author of the pod does not notice. Small bodies always find room, so the pods here are large.
func TestShed(t *testing.T) {
	ns := optedInNamespace(t)
	shed := func() float64 {
		metrics, err := env.pillion.Metrics(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		return metrics.Counter("pillion_webhook_requests_total", map[string]string{"webhook": "mutate", "status": "429"})
	}
	before := shed()
	letGo := useUpMemory(t)
	n, injected := 0, 0
	eventually(t, "a call is shed, and its pod is injected", func(ctx context.Context) error {
		n++
		pod := newPod(fmt.Sprint("web-", n))
		pod.Annotations = map[string]string{"example.com/large": strings.Repeat("x", 40<<10)}
		if _, err := env.Client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err // denied, if the timeout was over: no pod gets in without its sidecar
		}
		created, err := env.Client.CoreV1().Pods(ns).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		wantLogger(t, created)
		if injected++; shed() == before {
			return errors.New("no call was shed")
		}
		return nil
	})
	letGo()
	t.Logf("%d of %d pods were created, and %v calls were shed", injected, n, shed()-before)
}

// useUpMemory has clients send most of a large body and then wait, again and again, until letGo.
func useUpMemory(t *testing.T) (letGo func()) {
	t.Helper()
	at, err := url.Parse(env.pillion.Endpoint.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(env.pillion.Endpoint.CA)
	part := bytes.Repeat([]byte(" "), 6<<20)
	ctx, cancel := context.WithCancel(testContext(t))
	var clients sync.WaitGroup
	for range 12 {
		clients.Go(func() {
			for ctx.Err() == nil {
				conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots}}).DialContext(ctx, "tcp", at.Host)
				if err != nil {
					continue
				}
				closed := context.AfterFunc(ctx, func() { conn.Close() })
				fmt.Fprintf(conn, "POST /shadow?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(part)+1)
				if _, err := conn.Write(part); err == nil {
					_, _ = io.Copy(io.Discard, conn) // until the server closes it
				}
				closed()
				conn.Close()
			}
		})
	}
	letGo = func() {
		cancel()
		clients.Wait()
	}
	t.Cleanup(letGo)
	return letGo
}
