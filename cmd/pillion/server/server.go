// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject/webhook"
)

// server has the two listeners of serve and their handlers.
type server struct {
	options     *Options
	log         *slog.Logger
	registry    *prometheus.Registry
	reloader    *templateReloader
	namespaces  namespaces
	certificate *certificate
	callerCheck *callerCheck // nil: all callers are allowed
	limits      *namespaceLimits
	config      *configuration
	tracer      trace.Tracer // nil: no traces

	limiter *webhook.Limiter

	toWebhooks, toAdmin connections
}

// run serves and runs the background functions until ctx is done.
func (s *server) run(ctx context.Context, background ...func(context.Context)) error {
	s.registerMetrics()
	var wg sync.WaitGroup
	defer wg.Wait()
	// Background functions continue while the last requests are answered.
	whole, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	admins, err := openListener(whole, "admin-listen", s.options.adminListen)
	if err != nil {
		return err
	}
	defer admins.Close()

	for _, f := range background {
		wg.Go(func() { f(whole) })
	}

	webhookServer, adminServer := s.webhookServer(), s.newHTTPServer(&s.toAdmin, newAdminHandler(s.registry, s.readinessConditions()))
	s.toAdmin.less.Store(MaxConnections - maxAdmin)
	adminServer.SetKeepAlivesEnabled(false)
	failed := make(chan error, 2)
	wg.Go(func() { failed <- adminServer.Serve(&listener{admins, &s.toAdmin, &s.toWebhooks}) })
	defer adminServer.Close() // last, because it reports until then that this replica is not ready
	// Without a certificate, handshakes of API servers would fail. Without all templates, pods would get
	// too few sidecars: when a container is started again, API servers may call it before its endpoint is
	// gone, so it is not enough that this replica is not ready.
	for _, needed := range []<-chan struct{}{s.certificate.Ready(), s.reloader.complete} {
		select {
		case <-needed:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	webhooks, err := openListener(whole, "listen", s.options.listen)
	if err != nil {
		return err
	}
	defer webhooks.Close()
	served := make(chan struct{})
	wg.Go(func() {
		defer close(served)
		failed <- webhookServer.ServeTLS(&listener{webhooks, &s.toWebhooks, &s.toWebhooks}, "", "")
	})
	defer webhookServer.Close()
	s.toWebhooks.accepting.Store(true)
	s.log.Info("serving", "webhook", webhooks.Addr().String(), "admin", admins.Addr().String(),
		"version", cli.BuildVersion().Version, "revision", s.reloader.currentSet().Revision)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return s.drainRequests(whole, webhooks, webhookServer, served, failed)
	}
}

func openListener(ctx context.Context, flag, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if at, ok := errors.AsType[*net.OpError](err); ok {
		return nil, fmt.Errorf("--%s %s cannot be used: %w", flag, address, at.Err)
	}
	return listener, err
}

// drainRequests waits until the cluster no longer routes requests to this replica, and then answers
// those that have arrived. It closes no connection that may be in use: every answer asks the
// caller to close its connection. The channel served is closed when Serve has returned.
func (s *server) drainRequests(ctx context.Context, listener net.Listener, webhooks *http.Server, served <-chan struct{}, failed <-chan error) error {
	began := time.Now()
	s.toWebhooks.draining.Store(true)
	s.log.Info("shutting down", "delay", s.options.shutdownDelay.String())
	select {
	case err := <-failed:
		return err
	case <-time.After(s.options.shutdownDelay):
	}
	limited, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	_ = listener.Close() // an error here has no consequence
	select {             // Serve may have accepted a connection that is not counted yet
	case <-served:
	case <-limited.Done():
	}
	s.toWebhooks.waitForLastAnswers(limited, began)
	if err := webhooks.Shutdown(limited); err != nil {
		s.log.Warn("requests were interrupted", "error", err)
	}
	s.log.Info("bye")
	return nil
}

func (s *server) webhookServer() *http.Server {
	handler := &webhook.Handler{
		Use:        s.reloader.injectorAndJudge,
		All:        s.reloader.currentSet,
		Admits:     s.reloader.objects.rejectionReason,
		Namespaces: s.namespaces,
		Guard:      s.callerCheck.handlerGuard(),
		Fit:        s.limits.evaluator,
		Limits:     s.limits,
		Limiter:    s.limiter,
		Metrics:    s.reloader.webhooks,
		Log:        s.log,
		Tracer:     s.tracer,
	}
	server := s.newHTTPServer(&s.toWebhooks, s.untilLast(handler))
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate.GetCertificate}
	s.callerCheck.requestClientCerts(server.TLSConfig)
	chooseProtocol(server.TLSConfig)
	return server
}

// untilLast returns a handler that also closes connections after their last request.
func (s *server) untilLast(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.isLast(connectionOf(r)) {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
}

// isLast reports whether a request that has just come is the last one of its connection.
func (s *server) isLast(conn *connection) bool {
	return s.toWebhooks.draining.Load() || time.Since(conn.accepted) > ConnectionAge || !s.toWebhooks.mayKeep(conn)
}

// newHTTPServer returns an HTTP server with limits on everything that a caller can delay.
func (s *server) newHTTPServer(c *connections, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           firstBodies(handler),
		ConnContext:       withConnection,
		ConnState:         c.trackState,
		ReadHeaderTimeout: idleTime, // the time starts before there is a request
		ReadTimeout:       idleTime + requestTime,
		WriteTimeout:      requestTime + unusedTime, // the time starts after the header, as the caller's does
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             http2Limits(),
		// net/http would answer "OPTIONS *" itself, and keep any number of connections.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(&connectionLog{log: s.log, some: rate.Sometimes{First: 10, Interval: time.Second}}, "", 0),
	}
}

// connectionLog limits the messages of net/http about connections to one line per second. Port
// scans, and API servers that do not trust the certificate, cause a message for every
// connection.
type connectionLog struct {
	log  *slog.Logger
	some rate.Sometimes
	all  atomic.Int64 // since the last line
}

// Write implements [io.Writer], for one line.
func (l *connectionLog) Write(line []byte) (int, error) {
	l.all.Add(1)
	l.some.Do(func() {
		l.log.Warn("a connection failed", "error", strings.TrimSpace(string(line)), "skipped", l.all.Swap(0)-1)
	})
	return len(line), nil
}

func (s *server) registerMetrics() {
	s.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(),
	)
	certificateMetrics(s.certificate, s.registry)
}

// readinessConditions returns the readiness conditions.
func (s *server) readinessConditions() []condition {
	return []condition{
		{"configuration", s.config.checkReadiness},
		{"templates", s.reloader.checkReadiness},
		{"namespaces", s.namespaces.checkReadiness},
		{"serviceaccounts", s.reloader.checkAccounts},
		{"certificate", s.certificate.checkReadiness},
		{"callers", s.callerCheck.checkReadiness},
		{"webhooks", func() (string, error) {
			if !s.toWebhooks.accepting.Load() {
				return "", errors.New("connections will be accepted when there is a certificate, and all templates are loaded")
			}
			return "connections are accepted", nil
		}},
		{"shutdown", func() (string, error) {
			if s.toWebhooks.draining.Load() {
				return "", errors.New("shutting down")
			}
			return "not requested", nil
		}},
	}
}

// buildInfo returns the version as a metric.
func buildInfo() prometheus.Collector {
	v := cli.BuildVersion()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pillion_build_info", Help: "Always 1, with the version, the revision and the Go version of this build.",
		ConstLabels: prometheus.Labels{"version": v.Version, "revision": v.Revision, "go_version": v.Go},
	}, func() float64 { return 1 })
}
