// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestShed runs alone. When Pillion says that it has too much to do, the API server asks again a second
// later, and nobody who creates a pod gets to know.
func TestShed(t *testing.T) {
	ns := optedInNamespace(t)
	count := func(name string) float64 {
		metrics, err := env.pillion.Metrics(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		return metrics.Counter(name, nil)
	}
	shed := count("pillion_webhook_shed_total")
	letGo := useUpMemory(t, int(count("pillion_webhook_memory_limit_bytes")))
	eventually(t, "there is no memory left", func(context.Context) error {
		if left := count("pillion_webhook_memory_limit_bytes") - count("pillion_webhook_memory_bytes"); left > 8<<10 {
			return fmt.Errorf("%v bytes are left", left)
		}
		return nil
	})

	created := make(chan error, 1)
	go func() {
		_, err := env.Client.CoreV1().Pods(ns).Create(testContext(t), newPod("web"), metav1.CreateOptions{})
		created <- err
	}()
	eventually(t, "the call is shed", func(context.Context) error {
		if count("pillion_webhook_shed_total") == shed {
			return errors.New("none was")
		}
		return nil
	})
	letGo()
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	pod, err := env.Client.CoreV1().Pods(ns).Get(testContext(t), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantLogger(t, pod)
	event := creation(t, ns, "web")
	if open := event.FailedOpen(); len(open) > 0 {
		t.Errorf("webhooks that failed open: %v", open)
	}
}

// useUpMemory sends requests all but their ends, until Pillion has no room for another, and says how to end them.
func useUpMemory(t *testing.T, limit int) (letGo func()) {
	t.Helper()
	at, err := url.Parse(env.pillion.Endpoint.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(env.pillion.Endpoint.CA)
	const largest, overhead = 8 << 20, 8 << 10 // of a body, and beside it
	number := limit/largest + 1
	part := bytes.Repeat([]byte(" "), limit/number-overhead-1)
	var held []net.Conn
	letGo = func() {
		for _, conn := range held {
			conn.Close()
		}
	}
	t.Cleanup(letGo)
	for range number {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots}}).DialContext(testContext(t), "tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
		fmt.Fprintf(conn, "POST /mutate?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(part)+1)
		if _, err := conn.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	return letGo
}
