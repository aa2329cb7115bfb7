// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/inject/webhook/authentication"
)

// keySet returns a JSON Web Key Set with one key of that id.
func keySet(t *testing.T, id string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	clitest.Must(t, err)
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: id}}})
	clitest.Must(t, err)
	return text
}

// TestFollowKeys checks that the cluster's keys are read in the background. Pillion reads them at
// the start, soon again after a failure, and from time to time. It also reads them if a token names
// an unknown key, but unknown callers cannot trigger that often.
func TestFollowKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type answer struct {
			content []byte
			err     error
		}
		var asked atomic.Int32
		var says atomic.Pointer[answer]
		says.Store(&answer{err: errors.New("no way")})
		c := &callerCheck{
			mode: "required", log: slog.New(slog.DiscardHandler), missed: make(chan struct{}, 1),
			problems: prometheus.NewGauge(prometheus.GaugeOpts{Name: "problems", Help: "problems"}),
			keys: &credentialSource{name: "the cluster's keys", use: useKeys, read: func(context.Context) ([]byte, error) {
				asked.Add(1)
				a := says.Load()
				return a.content, a.err
			}},
		}
		c.clock = certs.NewClock()
		c.guard = authentication.NewGuard(true, &authentication.Credentials{ServiceAccounts: &authentication.ServiceAccounts{Missed: c.reportUnknownKey}}, c.clock.Now)
		ctx, cancel := context.WithCancel(t.Context())
		go c.followSources(ctx)
		want := func(after time.Duration, times int32) {
			t.Helper()
			<-time.After(after)
			synctest.Wait()
			if got := asked.Load(); got != times {
				t.Fatalf("the cluster was asked %d times, want %d", got, times)
			}
		}
		want(0, 1)
		if detail, err := c.checkReadiness(); err == nil || !strings.Contains(err.Error(), "the cluster's keys: no way") {
			t.Errorf("it is ready: %s %v", detail, err)
		}
		want(keysAgain, 2)
		says.Store(&answer{content: keySet(t, "one")})
		want(keysAgain, 3)
		if detail, err := c.checkReadiness(); err != nil || detail != "authentication is required" {
			t.Errorf("it is not ready: %s %v", detail, err)
		}
		want(keysEvery-time.Second, 3)
		want(time.Second, 4)
		for range 100 { // a stranger
			c.reportUnknownKey()
			<-time.After(keysAgain / 50)
		}
		want(keysAgain, 6)
		want(keysEvery-keysAgain-time.Second, 6)
		says.Store(&answer{content: []byte("nonsense")})
		want(time.Second, 7)
		if detail, err := c.checkReadiness(); err != nil || !strings.Contains(detail, "the last valid credentials are in use: the cluster's keys: it is not a JSON Web Key Set") {
			t.Errorf("it does not tell: %s %v", detail, err)
		}
		cancel()
		synctest.Wait()
	})
}

// TestClusterKeys checks that the keys are those that the API server has at /openid/v1/jwks.
func TestClusterKeys(t *testing.T) {
	set := keySet(t, "one")
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/openid/v1/jwks" {
			w.WriteHeader(http.StatusNotFound)
		}
		w.Header().Set("Content-Type", "application/jwk-set+json")
		_, _ = w.Write(set)
	}))
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	clitest.Write(t, kubeconfig, `{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"x","cluster":{"server":"`+api.URL+
		`"}}],"contexts":[{"name":"x","context":{"cluster":"x"}}]}`)
	read, err := clusterKeys(kubeconfig)
	clitest.Must(t, err)
	content, err := read(t.Context())
	clitest.Must(t, err)
	if !bytes.Equal(content, set) {
		t.Errorf("the keys are %s", content)
	}
}
