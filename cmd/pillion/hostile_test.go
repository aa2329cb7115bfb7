// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"github.com/pillion-dev/pillion/cmd/pillion/server"
	"github.com/pillion-dev/pillion/inject/testing/size"
)

// maxResident is the limit of the container in the manifests, in MiB.
const maxResident = 256

// attack is what any client that reaches the port can do. It returns when it holds as much as it
// can.
type attack struct {
	name string
	run  func(a *attacker)
	// costly attacks take seconds of CPU time, and are only in the full size of the test.
	costly bool
}

func blanks(kib int) string { return strings.Repeat(" ", kib<<10) }

// promises are requests that say how much they will send.
func promises() []attack {
	return []attack{
		{name: "200 promise 8 MiB and send a byte", run: func(a *attacker) {
			a.each(200, func(int) { a.http1(8<<20, "{") })
		}},
		{name: "200 promise 8 MiB, send a byte and are gone", run: func(a *attacker) {
			a.each(200, func(int) { a.http1(8<<20, "{") })
			a.stop()
		}},
		{name: "1,000 promise 8 MiB, send 300 KiB or a byte, and are gone", run: func(a *attacker) {
			a.each(1000, func(i int) {
				if i%10 == 0 {
					a.http1(8<<20, blanks(300))
				} else {
					a.http1(8<<20, "{")
				}
			})
			a.stop()
		}},
		{name: "1,000 slow senders of 17 to 80 KiB", run: func(a *attacker) {
			a.each(1000, func(i int) { a.http1(1<<20, blanks(17+i%64)) })
		}},
		{name: "1,000 slow senders without a length", run: func(a *attacker) {
			a.each(1000, func(i int) {
				if c := a.dial("http/1.1"); c != nil {
					fmt.Fprintf(c, "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
					for range 15 {
						fmt.Fprintf(c, "400\r\n%s\r\n", blanks(1))
					}
				}
			})
		}},
		{name: "1,200 headers without an end", run: func(a *attacker) {
			a.each(1200, func(int) {
				if c := a.dial("http/1.1"); c != nil {
					fmt.Fprintf(c, "POST /mutate HTTP/1.1\r\nHost: x\r\nX-Long: %s", blanks(12))
				}
			})
		}},
		{name: "500 connections to the admin address", run: func(a *attacker) {
			own := &attacker{t: a.t, address: a.admin}
			defer own.stop()
			own.each(500, func(i int) {
				if c := own.dial(""); c != nil {
					fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: %s%s", blanks(8), strings.Repeat("\r\n\r\n", i%2))
				}
			})
		}},
		{name: "2,000 connections that say nothing, or half a greeting", run: func(a *attacker) {
			a.each(2000, func(i int) {
				if c := a.dial(""); c != nil && i%2 == 0 {
					_, _ = c.Write([]byte("\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" + blanks(8)))
				}
			})
		}},
	}
}

// streams are what HTTP/2 has that HTTP/1.1 has not.
func streams() []attack {
	on := func(connections int, deaf bool, do func(h *h2)) func(a *attacker) {
		return func(a *attacker) {
			var all []*h2
			until(a.t, "it has the connections of HTTP/2 that there are", func() (bool, string) {
				if h := a.http2(deaf); h != nil {
					all = append(all, h)
				}
				return a.crowd || len(all) == min(connections, server.MaxHTTP2-1), fmt.Sprint(len(all)) // one is the innocents'
			})
			a.each(connections, func(i int) {
				if i < len(all) {
					do(all[i])
				} else if h := a.http2(deaf); h != nil {
					do(h)
				}
			})
		}
	}
	return []attack{
		{name: "HTTP/2: 240 streams promise 8 MiB and are cancelled, twice", run: on(2, false, func(h *h2) {
			var ids []uint32
			for range 240 {
				id := h.head(8 << 20)
				_ = h.WriteData(id, false, []byte("{"))
				ids = append(ids, id)
			}
			for _, id := range ids {
				_ = h.WriteRSTStream(id, http2.ErrCodeCancel)
			}
		})},
		{name: "HTTP/2: 100 connections of 100 slow streams", run: on(100, false, func(h *h2) {
			for range 100 {
				_ = h.WriteData(h.head(8<<20, blanks(7)), false, []byte(blanks(2)))
			}
		})},
		{name: "HTTP/2: 100 connections that read no answer", run: on(100, true, func(h *h2) {
			for range 100 {
				h.send(reviewBody())
			}
		})},
		{name: "HTTP/2: 1,000 connections that say nothing", run: on(1000, false, func(*h2) {})},
		{name: "HTTP/2: rapid reset", run: on(20, false, func(h *h2) {
			for range 2000 {
				_ = h.WriteRSTStream(h.head(0), http2.ErrCodeCancel)
			}
		})},
		{name: "HTTP/2: headers that go on and on", run: on(20, false, func(h *h2) {
			id := h.begin()
			for range 2000 {
				if h.WriteContinuation(id, false, h.field("x", blanks(1))) != nil {
					return
				}
			}
		})},
		{name: "HTTP/2: streams with headers of 15 KiB", run: on(20, false, func(h *h2) {
			for range 40 {
				h.head(1<<20, blanks(7), blanks(7))
			}
		})},
		{name: "HTTP/2: pings and settings whose answers nobody reads", run: on(20, true, func(h *h2) {
			for range 20_000 {
				if h.WritePing(false, [8]byte{}) != nil || h.WriteSettings() != nil {
					return
				}
			}
		})},
		{name: "HTTP/2: frames that are empty, or of 1 MiB", run: on(20, false, func(h *h2) {
			id := h.head(8 << 20)
			for range 5000 {
				_ = h.WriteData(id, false, nil)
			}
			h.AllowIllegalWrites = true
			_ = h.WriteData(id, false, make([]byte, 1<<20))
		})},
	}
}

// bodies are requests that come whole.
func bodies() []attack {
	tiny := func(clients, times int, spec string) func(a *attacker) {
		body := strings.Replace(reviewBody(), `"spec":{`, `"spec":{`+spec+",", 1)
		return func(a *attacker) { a.post(clients, times, body) }
	}
	list := func(name, item string, times int) string {
		return `"` + name + `":[` + strings.Repeat(item+",", times) + item + "]"
	}
	return []attack{
		{name: "12 clients with a million tiny values each", run: tiny(12, 3, list("tolerations", "{}", 900_000))},
		{name: "12 clients with 250,000 tiny values each", run: tiny(12, 3, list("tolerations", "{}", 250_000))},
		{name: "12 clients with 250,000 volumes each", run: tiny(12, 3, list("volumes", "{}", 250_000)), costly: true},
		{name: "12 clients with 60,000 variables each", run: tiny(12, 3, list("initContainers", `{"env":[{}]}`, 60_000)), costly: true},
		{name: "12 clients with 20,000 volumes each", run: tiny(12, 2, list("volumes", "{}", 20_000))},
		{name: "12 clients with 5,000 variables each", run: tiny(12, 2, list("initContainers", `{"env":[{}]}`, 5_000))},
		{name: "12 clients with 20,000 tiny values each", run: tiny(12, 2, list("tolerations", "{}", 20_000))},
		{name: "50 clients with 20,000 tiny values each", run: tiny(50, 10, list("tolerations", "{}", 20_000)), costly: true},
		{name: "50 clients with 2,000 containers each", run: tiny(50, 3, list("initContainers", `{"name":"x"}`, 2_000))},
		{name: "12 clients with 20,000 containers each", run: tiny(12, 2, list("initContainers", `{"name":"x"}`, 20_000))},
		{name: "50 clients with 7 MiB of text each", run: tiny(50, 2, `"x":"`+blanks(7<<10)+`"`)},
		{name: "answers that nobody reads", run: func(a *attacker) {
			body := strings.Replace(reviewBody(), `"spec":{`, `"spec":{`+list("initContainers", `{"name":"x"}`, 2_000)+",", 1)
			a.each(200, func(int) { a.http1(len(body), body) })
		}},
		{name: "10,000 requests in one go", run: func(a *attacker) {
			one := fmt.Sprintf(promise, len(reviewBody())) + reviewBody()
			a.each(10, func(int) { a.http1(0, strings.Repeat(one, 1000)) })
		}},
	}
}

// post has clients send a pod again and again to any of the webhooks, and wait for the answers.
func (a *attacker) post(clients, times int, body string) {
	var wg sync.WaitGroup
	for i := range clients {
		url := "https://" + a.address + []string{"/mutate", "/validate", "/shadow"}[i%3] + "?timeout=5s"
		wg.Go(func() {
			client := (&served{}).http1()
			defer client.CloseIdleConnections()
			for range times {
				r, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, url, strings.NewReader(body))
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

// greedy are templates that add to every container.
func greedy(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"one", "two", "three"} {
		write(t, filepath.Join(folder, name+".yaml"), strings.ReplaceAll(`apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: NAME}
spec:
  default: true
  pod:
    spec:
      initContainers: [{name: NAME, image: "registry.example/NAME:1", restartPolicy: Always, args: ["${string(pod.spec.containers.size())}"]}]
      volumes: [{name: NAME-logs, emptyDir: {}}]
  forEachContainer:
  - add: {volumeMounts: [{name: NAME-logs, mountPath: /var/log/NAME}], env: [{name: NAME, value: "here"}]}
`, "NAME", name))
	}
	return folder
}

// TestServeHostile checks that if clients send slowly, break promises, abort or reset, the process
// stays within its container's memory and still answers all other clients.
func TestServeHostile(t *testing.T) {
	if raced() {
		t.Skip("SKIPPED: the race detector takes many times the memory and the time; TestServeHostileOneCPU runs with it")
	}
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", greedy(t), "--memory-limit", "256Mi")
	t.Logf("%3d MiB at the start", s.peak(t))
	all := slices.Concat(promises(), streams(), bodies())
	all = append(all, attack{name: "all of them", run: together(all), costly: true})
	quick := slices.DeleteFunc(slices.Clone(all), func(a attack) bool { return a.costly })
	if size.Choose(t, len(quick), len(all)) < len(all) {
		all = quick
	}
	for _, attack := range all {
		t.Run(attack.name, func(t *testing.T) { s.withstand(t, attack) })
	}
}

// TestServeHostileOneCPU checks that one CPU is enough to withstand the clients that cost the most
// CPU.
func TestServeHostileOneCPU(t *testing.T) {
	size.SkipUnlessFull(t, "TestServeHostile has most of these clients, and smaller ones in place of the rest, on all CPUs")
	t.Setenv("GOMAXPROCS", "1")
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", greedy(t), "--memory-limit", "256Mi")
	for _, attack := range slices.Concat(promises()[2:4], streams()[4:6], bodies()[2:5]) {
		t.Run(attack.name, func(t *testing.T) { s.withstand(t, attack) })
	}
}

// withstand answers other clients during an attack, while the attack holds its connections, and afterwards.
func (s *served) withstand(t *testing.T, attack attack) {
	t.Helper()
	a := s.attacker(t)
	defer a.stop()
	held := make(chan struct{})
	go func() {
		defer close(held)
		attack.run(a)
	}()
	client := s.http1()
	defer client.CloseIdleConnections()
	answered := 0
	for running := true; running; answered++ {
		select {
		case <-held:
			running = false
		default:
		}
		s.innocent(t, client, reviewBody())
	}
	for _, two := range []bool{false, true} {
		client := s.http1()
		client.Transport.(*http.Transport).ForceAttemptHTTP2 = two
		s.innocent(t, client, reviewBody())
		s.innocent(t, client, reviewBody()+blanks(40))
		client.CloseIdleConnections()
	}
	a.stop()
	s.innocent(t, s.client, reviewBody())
	got := s.peak(t)
	t.Logf("%3d MiB; %d answers meanwhile", got, answered)
	if got >= maxResident && !raced() {
		t.Errorf("%d MiB are resident; the container has %d", got, maxResident)
	}
}

// raced reports whether the race detector is there, which takes many times the memory.
func raced() bool {
	build, _ := debug.ReadBuildInfo()
	return slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// together runs attacks at the same time.
func together(all []attack) func(a *attacker) {
	return func(a *attacker) {
		var wg sync.WaitGroup
		for _, one := range all {
			wg.Go(func() {
				own := &attacker{t: a.t, address: a.address, admin: a.admin, crowd: true}
				defer own.stop()
				one.run(own)
			})
		}
		wg.Wait()
	}
}
