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

// workload is one kind of request. The constant server has an answer with a patch at /mutate and one without at
// /validate.
type workload struct {
	name               string
	path, constantPath string
	pod                []byte
}

// sets are the templates of the servers: what is typical, what memory and start are measured with, and what the
// sizing is about.
func sets() map[string]templateSet {
	return map[string]templateSet{"pillion": {1, 1, true}, "pillion-20": {20, 20, true}, "pillion-50": {50, 2, true}}
}

// bench is what the servers need, in one folder.
type bench struct {
	dir    string
	client *http.Client
	log    func(format string, args ...any)
	samples
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// prepare builds the programs and writes what they read.
func (b *bench) prepare(ctx context.Context) ([]workload, error) {
	for name, dir := range map[string]string{"pillion": "../../cmd/pillion", "constant": "constant"} {
		if err := commandIn(ctx, nil, dir, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", b.path(name), "."); err != nil {
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
	h, err := newHandler(b.path("pillion.templates"))
	if err != nil {
		return nil, err
	}
	pod := podJSON(typicalSize())
	answer, err := ask(ctx, h, webhook.PathMutate, pod)
	if err != nil {
		return nil, err
	}
	final, err := patched(pod, answer)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(b.path("pod.json"), mustMarshal(newPod(typicalSize())), 0o600); err != nil {
		return nil, err
	}
	return []workload{
		{"injected", webhook.PathMutate, webhook.PathMutate, pod},
		{"opted-out", webhook.PathMutate, webhook.PathValidate, podJSON(typicalSize(), optOut)},
		{"judged", webhook.PathValidate, webhook.PathValidate, final},
	}, os.WriteFile(b.path("answer.json"), answer, 0o600)
}

// writePair writes one certificate, which all servers have.
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

// start runs "constant", or Pillion with the templates of that name.
func (b *bench) start(ctx context.Context, name string) (*process, error) {
	listen, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	url := "https://" + listen
	if name == "constant" {
		args := []string{"-listen", listen, "-cert", b.path("tls.crt"), "-key", b.path("tls.key"), "-mutate", b.path("answer.json")}
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

// servers measures over TLS.
func (b *bench) servers(ctx context.Context, workloads []workload, rounds int) error {
	names := []string{"constant", "pillion", "pillion-50"}
	running := map[string]*process{}
	for _, name := range names {
		p, err := b.start(ctx, name)
		if err != nil {
			return err
		}
		defer p.stop()
		running[name] = p
	}
	for round := range rounds {
		b.log("servers, round %d of %d", round+1, rounds)
		for _, w := range workloads {
			for i := range names {
				name := names[(round+i)%len(names)]
				if err := b.closed(ctx, name, running[name], w); err != nil {
					return err
				}
			}
		}
		for i := range 2 {
			name := names[(round+i)%2]
			if err := b.open(ctx, name, running[name], workloads[0]); err != nil {
				return err
			}
		}
	}
	if err := b.memory(ctx, workloads[0]); err != nil {
		return err
	}
	return b.starts(ctx)
}

func (b *bench) call(name string, p *process, w workload) *call {
	path := w.path
	if name == "constant" {
		path = w.constantPath
	}
	return &call{b.client, p.url + path, review(w.pod)}
}

// closed adds the CPU time of a request in µs.
func (b *bench) closed(ctx context.Context, name string, p *process, w workload) error {
	c := b.call(name, p, w)
	if _, err := c.closedLoop(ctx, connections, closedFor/10); err != nil { // connects
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

// memory adds the most that fresh servers had under load, in MiB.
func (b *bench) memory(ctx context.Context, w workload) error {
	b.log("memory and start")
	for range memoryRounds {
		for _, name := range []string{"constant", "pillion-20", "pillion-50"} {
			p, err := b.start(ctx, name)
			if err != nil {
				return err
			}
			_, err = b.call(name, p, w).closedLoop(ctx, manyConnections, memoryFor)
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

// starts adds the time to readiness in ms.
func (b *bench) starts(ctx context.Context) error {
	for range starts {
		for _, name := range []string{"constant", "pillion-20"} {
			p, err := b.start(ctx, name)
			if err != nil {
				return err
			}
			p.stop()
			b.add("ready/"+name, p.ready.Seconds()*1000)
		}
	}
	return nil
}
