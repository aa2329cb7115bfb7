// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
)

// maxResident is the limit of the container in the manifests, in MiB.
const maxResident = 256

// attacks are what anybody can do who reaches the port. Each returns when it holds what it can hold.
func attacks() map[string]func(a *attacker) {
	whole := reviewBody()
	return map[string]func(a *attacker){
		"200 promise 8 MiB and send a byte": func(a *attacker) {
			a.each(200, func(int) { a.http1(8<<20, "{") })
		},
		"200 promise 8 MiB, send a byte and are gone": func(a *attacker) {
			a.each(200, func(int) { a.http1(8<<20, "{") })
			a.stop()
		},
		"1,000 promise 8 MiB, send 300 KiB or a byte, and are gone": func(a *attacker) {
			a.each(1000, func(i int) {
				if i%10 == 0 {
					a.http1(8<<20, strings.Repeat(" ", 300<<10))
				} else {
					a.http1(8<<20, "{")
				}
			})
			a.stop()
		},
		"HTTP/2: 240 streams promise 8 MiB and are cancelled, twice": func(a *attacker) {
			for range 2 {
				h := a.http2(false)
				var ids []uint32
				for range 240 {
					id := h.head(8 << 20)
					_ = h.WriteData(id, false, []byte("{"))
					ids = append(ids, id)
				}
				for _, id := range ids {
					_ = h.WriteRSTStream(id, http2.ErrCodeCancel)
				}
			}
		},
		"100 connections of HTTP/2 with 100 slow streams each": func(a *attacker) {
			a.each(100, func(int) {
				if h := a.http2(false); h != nil {
					for range 100 {
						_ = h.WriteData(h.head(8<<20), false, []byte(strings.Repeat(" ", 500)))
					}
				}
			})
		},
		"100 connections of HTTP/2 that read no answer": func(a *attacker) {
			a.each(100, func(int) {
				if h := a.http2(true); h != nil {
					for range 100 {
						h.send(whole)
					}
				}
			})
		},
		"1,000 slow senders of 17 to 80 KiB": func(a *attacker) {
			a.each(1000, func(i int) { a.http1(1<<20, strings.Repeat(" ", 17<<10+i%64<<10)) })
		},
		"12 clients with a million tiny values each, thrice": func(a *attacker) {
			a.tiny(12, 3, `"tolerations":[`+strings.Repeat("{},", 900_000)+"{}]")
		},
		"12 clients with 500,000 tiny values each, thrice": func(a *attacker) {
			a.tiny(12, 3, `"tolerations":[`+strings.Repeat("{},", 450_000)+"{}]")
		},
		"50 clients with 64 KiB of tiny values, ten times": func(a *attacker) {
			a.tiny(50, 10, `"tolerations":[`+strings.Repeat("{},", 20_000)+"{}]")
		},
	}
}

// tiny has clients send a pod again and again, and wait for the answers.
func (a *attacker) tiny(clients, times int, spec string) {
	body := strings.Replace(reviewBody(), `"spec":{`, `"spec":{`+spec+",", 1)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			client := (&served{}).http1()
			defer client.CloseIdleConnections()
			for range times {
				r, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, "https://"+a.address+"/mutate?timeout=5s", strings.NewReader(body))
				if err != nil {
					a.t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/json")
				if response, err := client.Do(r); err == nil {
					response.Body.Close()
				}
			}
		})
	}
	wg.Wait()
}

// Whatever clients promise, send slowly, abort or reset, the process keeps to its container's memory, and who does
// nothing of the kind is answered while they do.
func TestServeHostile(t *testing.T) {
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates", "--memory-limit", "256Mi")
	t.Logf("%3d MiB at the start", s.peak(t))
	for name, attack := range attacks() {
		t.Run(name, func(t *testing.T) {
			a := &attacker{t: t, address: strings.TrimPrefix(s.webhook, "https://")}
			defer a.stop()
			attack(a)
			for _, two := range []bool{false, true} {
				client := s.http1()
				if two {
					client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
				}
				for range 3 {
					s.innocent(t, client, reviewBody())
				}
				client.CloseIdleConnections()
			}
			a.stop()
			s.innocent(t, s.client, reviewBody())
			got := s.peak(t)
			t.Logf("%3d MiB", got)
			if got >= maxResident {
				t.Errorf("%d MiB are resident; the container has %d", got, maxResident)
			}
		})
	}
	runtime.KeepAlive(fmt.Sprint)
}
