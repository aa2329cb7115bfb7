// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/webhook/authentication"
)

const (
	// rereadEvery is the interval for reading the credential files again. They are few and
	// small, so reading them costs less than watching them, and no event can be missed.
	rereadEvery = time.Second

	// keysEvery is the interval for reading the API server's keys again. They rarely change. If
	// they change within the interval, a token with an unknown key triggers the next read.
	keysEvery = 5 * time.Minute
	keysAgain = 5 * time.Second // minimum interval, also after errors
	keysTime  = 10 * time.Second
)

// callerOptions are the flags for authenticating and authorizing callers.
type callerOptions struct {
	authentication string
	caFile         string
	names          []string
	tokenFile      string
	basicAuthFile  string
	issuer         string
	audiences      []string
	subjects       []string
	jwksFile       string
}

func (o *callerOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.authentication, "caller-authentication", "none", "authenticate callers in this `MODE`: none, optional (reject only wrong credentials) or required")
	cli.Limit(cmd, "caller-authentication", "none", "optional", "required")
	f.StringVar(&o.caFile, "caller-ca-file", "", "accept client certificates of the CAs in this `FILE`, PEM")
	f.StringSliceVar(&o.names, "caller-name", nil, "accept only client certificates with this `NAME` as the common name, a DNS name or a URI; may be repeated")
	f.StringVar(&o.tokenFile, "caller-token-file", "", "accept the bearer tokens in this `FILE`, one per line")
	f.StringVar(&o.basicAuthFile, "caller-basic-auth-file", "", "accept the users in this `FILE`, one user:password per line")
	f.StringVar(&o.issuer, "caller-jwt-issuer", "", "accept ServiceAccount tokens of the issuer with this `URL`")
	f.StringSliceVar(&o.audiences, "caller-jwt-audience", nil, "accept ServiceAccount tokens for this `AUDIENCE`; may be repeated")
	f.StringSliceVar(&o.subjects, "caller-jwt-subject", nil, "accept ServiceAccount tokens of this `SUBJECT`, system:serviceaccount:NAMESPACE:NAME; may be repeated (default: any subject, if the token is bound to a webhook configuration)")
	f.StringVar(&o.jwksFile, "caller-jwks-file", "", "read the issuer's keys from this `FILE`, a JSON Web Key Set (default: from the cluster)")
}

// checkFlags returns an error for flags that contradict each other, or have no effect together.
func (o *callerOptions) checkFlags(standalone bool) error {
	tokens := o.issuer != "" || len(o.audiences) > 0 || len(o.subjects) > 0 || o.jwksFile != ""
	certificates := o.caFile != "" || len(o.names) > 0
	given := tokens || certificates || o.tokenFile != "" || o.basicAuthFile != ""
	none := o.authentication == "none"
	switch {
	case none && given:
		return errors.New("callers are not authenticated: add --caller-authentication optional or required")
	case none:
		return nil
	case !given:
		return errors.New("name the credentials of callers: --caller-ca-file, --caller-token-file, --caller-basic-auth-file or --caller-jwt-issuer")
	case certificates && (o.caFile == "" || len(o.names) == 0):
		return errors.New("--caller-ca-file and --caller-name must be used together: a CA signs certificates for others too")
	case tokens && (o.issuer == "" || len(o.audiences) == 0):
		return errors.New("ServiceAccount tokens need --caller-jwt-issuer and --caller-jwt-audience")
	case tokens && o.jwksFile == "" && standalone:
		return errors.New("--standalone with --caller-jwt-issuer needs --caller-jwks-file")
	}
	return nil
}

// callerCluster is what serve knows of the cluster whose API servers call it.
type callerCluster struct {
	kubeconfig    string
	configuration string // the name of the webhook configurations
}

// credentialSource is a source of credentials.
type credentialSource struct {
	name    string // the file's name, for messages
	read    func(context.Context) ([]byte, error)
	use     func(*authentication.Credentials, []byte) error // if it fails, the credentials must not be used
	content []byte                                          // the content in use
	problem error                                           // why the latest content is not in use
}

// callerCheck has the guard, and keeps its credentials up to date with the files and the
// cluster. A nil callerCheck allows all callers.
type callerCheck struct {
	guard *authentication.Guard
	clock *certs.Clock
	mode  string
	certs bool
	log   *slog.Logger

	mu    sync.Mutex // of the following fields, which requests do not use
	files []*credentialSource
	keys  *credentialSource // the keys of the cluster, or nil

	missed   chan struct{}
	problems prometheus.Gauge
}

// newCallerCheck reads the credential files. Here, a problem is an error. It does not call the
// cluster, which may be unavailable yet.
func (o *callerOptions) newCallerCheck(ctx context.Context, of callerCluster, log *slog.Logger, registry prometheus.Registerer) (*callerCheck, error) {
	if o.authentication == "none" {
		return nil, nil
	}
	c := &callerCheck{
		mode: o.authentication, certs: o.caFile != "", log: log, clock: certs.NewClock(), missed: make(chan struct{}, 1),
		problems: promauto.With(registry).NewGauge(prometheus.GaugeOpts{
			Name: "pillion_caller_credential_problems",
			Help: "Files with caller credentials that are invalid now; the last valid ones are in use.",
		}),
	}
	c.files = o.credentialFiles()
	credentials := &authentication.Credentials{}
	if o.issuer != "" {
		credentials.ServiceAccounts = &authentication.ServiceAccounts{
			Issuer: o.issuer, Audiences: o.audiences, Subjects: o.subjects, Configuration: of.configuration, Missed: c.reportUnknownKey,
		}
	}
	if o.issuer != "" && o.jwksFile == "" {
		read, err := clusterKeys(of.kubeconfig)
		if err != nil {
			return nil, err
		}
		c.keys = &credentialSource{name: "the cluster's keys", read: read, use: useKeys}
	}
	c.guard = authentication.NewGuard(o.authentication == "required", credentials, c.clock.Now)
	return c, c.reloadSources(ctx, c.files...)
}

// credentialFiles returns the files that the options name.
func (o *callerOptions) credentialFiles() []*credentialSource {
	var all []*credentialSource
	add := func(name string, use func(*authentication.Credentials, []byte) error) {
		if name != "" {
			all = append(all, &credentialSource{name: name, use: use, read: func(context.Context) ([]byte, error) { return os.ReadFile(name) }})
		}
	}
	add(o.caFile, func(c *authentication.Credentials, content []byte) (err error) {
		c.Certificates, err = authentication.ParseCertificates(content, o.names)
		return err
	})
	add(o.tokenFile, func(c *authentication.Credentials, content []byte) (err error) {
		c.Tokens, err = authentication.ParseTokens(content)
		return err
	})
	add(o.basicAuthFile, func(c *authentication.Credentials, content []byte) (err error) {
		c.Passwords, err = authentication.ParsePasswords(content)
		return err
	})
	add(o.jwksFile, useKeys)
	return all
}

func useKeys(c *authentication.Credentials, content []byte) error {
	keys, err := authentication.ParseKeys(content)
	if err != nil {
		return err
	}
	accounts := *c.ServiceAccounts // a request may be using it
	accounts.Keys = keys
	c.ServiceAccounts = &accounts
	return nil
}

// clusterKeys returns a function that requests the keys of the cluster's own issuer. Every
// ServiceAccount is allowed to, by the ClusterRole system:service-account-issuer-discovery.
func clusterKeys(kubeconfig string) (func(context.Context) ([]byte, error), error) {
	config, err := kube.Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) ([]byte, error) {
		return client.Get().AbsPath("/openid/v1/jwks").Timeout(keysTime).DoRaw(ctx)
	}, nil
}

// reloadSources reads each source and uses its content if that is new and valid. The sources are
// independent: an invalid one does not prevent the rotation of another. It returns the
// problems.
func (c *callerCheck) reloadSources(ctx context.Context, sources ...*credentialSource) error {
	var wrong []error
	for _, s := range sources {
		content, err := s.read(ctx) // may take a while, so without the lock
		wrong = append(wrong, c.useContent(s, content, err))
	}
	return errors.Join(wrong...)
}

// useContent uses the content that was read from a source, or records the problem.
func (c *callerCheck) useContent(s *credentialSource, content []byte, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && !bytes.Equal(content, s.content) {
		next := *c.guard.Credentials()
		if err = s.use(&next, content); err == nil {
			c.guard.Use(&next)
			s.content = content
			c.log.Info("caller credentials loaded", "from", s.name)
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", s.name, err)
	}
	before := s.problem
	s.problem = err
	c.problems.Set(float64(len(c.currentProblems())))
	switch {
	case err == nil && before != nil:
		c.log.Info("caller credentials are valid again", "from", s.name)
	case err == nil || before != nil && before.Error() == err.Error():
	case s.content != nil:
		c.log.Error("caller credentials cannot be reloaded, the last valid ones stay in use", "error", err)
	case s == c.keys:
		c.log.Warn("caller credentials are not loaded yet, trying again", "error", err)
	}
	return err
}

// currentProblems returns the current problems.
func (c *callerCheck) currentProblems() []string {
	var all []string
	for _, s := range append(slices.Clip(c.files), c.keys) {
		if s != nil && s.problem != nil {
			all = append(all, s.problem.Error())
		}
	}
	return all
}

// reportUnknownKey reports that a token named an unknown key. Requests call it.
func (c *callerCheck) reportUnknownKey() { wakeReceiver(c.missed) }

// followSources keeps the credentials current until ctx is done.
func (c *callerCheck) followSources(ctx context.Context) {
	if c == nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	if c.keys != nil {
		wg.Go(func() { c.followKeys(ctx) })
	}
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.clock.Tick()
			_ = c.reloadSources(ctx, c.files...) // reload logs the error
		}
	}
}

// followKeys requests the cluster's keys at the start, at intervals, and if a token names an
// unknown key. It never requests them more often than every keysAgain, whatever callers send.
// The key sets of OIDC libraries request keys while they verify a token, but a webhook request
// must not wait for the API server.
func (c *callerCheck) followKeys(ctx context.Context) {
	for {
		next := time.After(keysEvery)
		if err := c.reloadSources(ctx, c.keys); err != nil {
			next = time.After(keysAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(keysAgain):
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		case <-c.missed:
		}
	}
}

// checkReadiness reports the state of the credentials. If a source is invalid, Pillion stays ready, but
// the cluster's keys must have been read once.
func (c *callerCheck) checkReadiness() (string, error) {
	if c == nil {
		return "callers are not authenticated", nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys != nil && c.keys.content == nil {
		return "", fmt.Errorf("the keys of ServiceAccount tokens are not loaded yet: %s", strings.Join(c.currentProblems(), "; "))
	}
	detail := "authentication is " + c.mode
	if problems := c.currentProblems(); len(problems) > 0 {
		detail += "; the last valid credentials are in use: " + strings.Join(problems, "; ")
	}
	return detail, nil
}

// requestClientCerts makes the server request client certificates. The handshake does not verify them:
// a caller without a valid certificate may have a token, and the CAs may change while the
// connection lasts.
func (c *callerCheck) requestClientCerts(config *tls.Config) {
	if c != nil && c.certs {
		config.ClientAuth = tls.RequestClientCert
	}
}

// handlerGuard returns the guard for the handler.
func (c *callerCheck) handlerGuard() *authentication.Guard {
	if c == nil {
		return nil
	}
	return c.guard
}
