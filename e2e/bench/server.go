// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pillion-dev/pillion/inject/webhook"
)

const (
	closedFor, openFor, memoryFor = 1500 * time.Millisecond, 4 * time.Second, 3 * time.Second
	memoryRounds, starts          = 3, 11
)

// workload is one kind of request to the named servers. The constant server returns
// Pillion's answer to it, at a path with the workload's name.
type workload struct {
	name    string
	servers []string // names of templates, as in sets; the constant answer is the first one's
	path    string
	pods    map[string][]byte // by server: for a validation, the pod has the injected templates of that server
}

// podFor returns the pod for a server. A server without a pod of its own gets the first one's.
func (w *workload) podFor(server string) []byte {
	if pod, ok := w.pods[server]; ok {
		return pod
	}
	return w.pods[w.servers[0]]
}

func (w *workload) constantPath() string { return "/" + w.name }

// sets returns the templates of the servers: typical ones, and those for measuring memory,
// start and sizing.
func sets() map[string]templateSet {
	return map[string]templateSet{
		"pillion": {n: 1, matching: 1, cel: true}, "pillion-20": {n: 20, matching: 20, cel: true}, "pillion-50": {n: 50, matching: 2, cel: true},
		"pillion-features": {features: true}, "pillion-heavy": {heavy: true},
	}
}

// bench has the files that the servers need, in one folder.
type bench struct {
	dir    string
	client *http.Client
	log    func(format string, args ...any)
	samples
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// prepare builds the programs and writes their files.
func (b *bench) prepare(ctx context.Context) ([]workload, error) {
	for _, p := range []struct{ name, dir, profile string }{
		{"pillion", "../../cmd/pillion", "cpu.pprof"}, // as make build
		{"constant", "constant", "off"},
	} {
		if err := commandIn(ctx, nil, p.dir, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-pgo="+p.profile, "-o", b.path(p.name), "."); err != nil {
			return nil, err
		}
	}
	for name, set := range sets() {
		if err := os.Mkdir(b.path(name+".templates"), 0o700); err != nil {
			return nil, err
		}
		if err := set.write(b.path(name + ".templates")); err != nil {
			return nil, err
		}
	}
	if err := b.writePair(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(b.path("pod.json"), mustMarshal(newPod(typicalSize())), 0o600); err != nil {
		return nil, err
	}
	return b.workloads(ctx)
}

// workloads returns the workloads with the typical pod, and writes Pillion's answers to files.
func (b *bench) workloads(ctx context.Context) ([]workload, error) {
	simple := []string{"pillion", "pillion-50"}
	own, rich, heavy := podJSON(typicalSize()), podJSON(typicalSize(), askFor), podJSON(typicalSize(), setLevel)
	var all []workload
	for _, w := range []struct {
		name    string
		servers []string
		path    string
		pod     []byte
	}{
		{"injected", simple, webhook.PathMutate, own},
		{"opted-out", simple, webhook.PathMutate, podJSON(typicalSize(), optOut)},
		{"judged", simple, webhook.PathValidate, own},
		{"features-injected", []string{"pillion-features"}, webhook.PathMutate, rich},
		{"features-judged", []string{"pillion-features"}, webhook.PathValidate, rich},
		{"heavy-injected", []string{"pillion-heavy"}, webhook.PathMutate, heavy},
		{"heavy-judged", []string{"pillion-heavy"}, webhook.PathValidate, heavy},
	} {
		made := workload{w.name, w.servers, w.path, map[string][]byte{}}
		for i, server := range w.servers {
			pod, answer, err := b.exchange(ctx, server, w.path, w.pod)
			if err != nil {
				return nil, err
			}
			made.pods[server] = pod
			if i > 0 {
				continue
			}
			if err := os.WriteFile(b.answer(&made), answer, 0o600); err != nil {
				return nil, err
			}
			b.add("bytes/"+w.name+"/request", float64(len(review(pod))))
			b.add("bytes/"+w.name+"/answer", float64(len(answer)))
		}
		all = append(all, made)
	}
	return all, nil
}

// exchange returns the pod for a server and path, and the answer.
func (b *bench) exchange(ctx context.Context, server, path string, pod []byte) (sent, answer []byte, err error) {
	h, err := newHandler(b.path(server + ".templates"))
	if err != nil {
		return nil, nil, err
	}
	if path == webhook.PathValidate {
		if pod, err = mutated(ctx, h, pod); err != nil {
			return nil, nil, err
		}
	}
	answer, err = ask(ctx, h, path, pod)
	return pod, answer, err
}

func (b *bench) answer(w *workload) string { return b.path(w.name + ".json") }

// writePair writes one certificate for all servers.
func (b *bench) writePair() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(24 * time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(b.path("tls.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600),
		os.WriteFile(b.path("tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
}

// start runs "constant", or Pillion with the templates of this name.
func (b *bench) start(ctx context.Context, name string, workloads []workload) (*process, error) {
	listen, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	url := "https://" + listen
	if name == constant {
		args := []string{"-listen", listen, "-cert", b.path("tls.crt"), "-key", b.path("tls.key")}
		for i := range workloads {
			args = append(args, "-answer", workloads[i].constantPath()+"="+b.answer(&workloads[i]))
		}
		return start(ctx, url, url, b.path("constant"), args)
	}
	admin, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{
		"serve", "--standalone", "--listen", listen, "--admin-listen", admin,
		"--tls-cert-file", b.path("tls.crt"), "--tls-key-file", b.path("tls.key"), "--templates", b.path(name + ".templates"),
	}
	return start(ctx, "http://"+admin+"/readyz", url, b.path("pillion"), args)
}

// constant is the name of the server with constant answers.
const constant = "constant"

// servers measures the servers over TLS.
func (b *bench) servers(ctx context.Context, workloads []workload, rounds int) error {
	running := map[string]*process{}
	for _, name := range []string{constant, "pillion", "pillion-50", "pillion-features", "pillion-heavy"} {
		p, err := b.start(ctx, name, workloads)
		if err != nil {
			return err
		}
		defer p.stop()
		running[name] = p
	}
	for _, w := range workloads {
		if err := b.sameAnswers(ctx, running, w); err != nil {
			return err
		}
	}
	for round := range rounds {
		b.log("servers, round %d of %d", round+1, rounds)
		for _, w := range workloads {
			names := append([]string{constant}, w.servers...)
			for i := range names {
				name := names[(round+i)%len(names)]
				if err := b.closed(ctx, name, running[name], w); err != nil {
					return err
				}
			}
		}
		for i := range 2 {
			name := []string{constant, "pillion"}[(round+i)%2]
			if err := b.open(ctx, name, running[name], workloads[0]); err != nil {
				return err
			}
		}
	}
	if err := b.memory(ctx, workloads); err != nil {
		return err
	}
	return b.starts(ctx)
}

// sameAnswers checks that the constant server's answers equal Pillion's, including headers.
func (b *bench) sameAnswers(ctx context.Context, running map[string]*process, w workload) error {
	theirs, err := b.call(constant, running[constant], w).answer(ctx)
	if err != nil {
		return err
	}
	ours, err := b.call(w.servers[0], running[w.servers[0]], w).answer(ctx)
	if err == nil && theirs != ours {
		err = fmt.Errorf("%s: the servers answer differently:\n%s\n%s", w.name, theirs, ours)
	}
	return err
}

func (b *bench) call(name string, p *process, w workload) *call {
	path := w.path
	if name == constant {
		path = w.constantPath()
	}
	return &call{b.client, p.url + path, review(w.podFor(name))}
}

// closed adds the CPU time per request in µs.
func (b *bench) closed(ctx context.Context, name string, p *process, w workload) error {
	c := b.call(name, p, w)
	if _, err := c.closedLoop(ctx, connections, closedFor/10); err != nil { // opens the connections
		return err
	}
	before, err := p.cpu()
	if err != nil {
		return err
	}
	n, err := c.closedLoop(ctx, connections, closedFor)
	if err != nil {
		return err
	}
	after, err := p.cpu()
	b.add(fmt.Sprintf("cpu/%s/%s", w.name, name), float64((after-before).Microseconds())/float64(n))
	return err
}

// open adds quantiles of the latency in µs.
func (b *bench) open(ctx context.Context, name string, p *process, w workload) error {
	latencies, err := b.call(name, p, w).openLoop(ctx, openFor)
	slices.Sort(latencies)
	for _, q := range []float64{0.5, 0.99, 0.999} {
		b.add(fmt.Sprintf("latency/%s/%g", name, 100*q), quantile(latencies, q))
	}
	return err
}

// memory adds the peak memory of new servers under load, in MiB.
func (b *bench) memory(ctx context.Context, workloads []workload) error {
	b.log("memory and start")
	for range memoryRounds {
		for _, name := range []string{constant, "pillion-20", "pillion-50"} {
			p, err := b.start(ctx, name, workloads)
			if err != nil {
				return err
			}
			_, err = b.call(name, p, workloads[0]).closedLoop(ctx, manyConnections, memoryFor)
			peak, err2 := p.peak()
			p.stop()
			if err != nil || err2 != nil {
				return fmt.Errorf("%s under load: %w %w", name, err, err2)
			}
			b.add("memory/"+name, peak)
		}
	}
	return nil
}

// starts adds the time until readiness in ms.
func (b *bench) starts(ctx context.Context) error {
	for range starts {
		for _, name := range []string{constant, "pillion-20"} {
			p, err := b.start(ctx, name, nil)
			if err != nil {
				return err
			}
			p.stop()
			b.add("ready/"+name, p.ready.Seconds()*1000)
		}
	}
	return nil
}
