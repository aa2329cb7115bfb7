// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// TestOpenLoop checks that while a server stalls, the time that requests wait for a connection
// counts too.
func TestOpenLoop(t *testing.T) {
	t.Parallel()
	const stall, duration = 400 * time.Millisecond, 400 * time.Millisecond // more requests than connections
	stalled := sync.OnceFunc(func() { <-time.After(stall) })
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stalled() }))
	defer server.Close()
	client := newClient()
	defer client.CloseIdleConnections()
	latencies, err := (&call{client, server.URL, nil}).openLoop(t.Context(), duration)
	if err != nil || len(latencies) != int(duration.Seconds()*rate) {
		t.Fatalf("%d requests: %v", len(latencies), err)
	}
	for i, got := range latencies {
		if want := (stall - time.Duration(i)*time.Second/rate).Microseconds(); got < float64(want) {
			t.Errorf("request %d took %.0f µs since it was due, want %d at least", i, got, want)
		}
	}
}
