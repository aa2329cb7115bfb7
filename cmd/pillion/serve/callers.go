// SPDX-License-Identifier: Apache-2.0

package serve

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
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/webhook/authentication"
)

const (
	// rereadEvery: what callers are checked against is in a few small files, and to
	// read them costs less than to watch them. There is no event to miss.
	rereadEvery = time.Second

	// The API server's keys change when its operators change them, which may be
	// between two of these; then it is a token that tells.
	keysEvery = 5 * time.Minute
	keysAgain = 5 * time.Second // at the soonest, and where they could not be had
	keysTime  = 10 * time.Second
)

// callerOptions are the flags that say who may call the webhooks.
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

func (o *callerOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.authentication, "caller-authentication", "none", "authenticate callers in this `MODE`: none, optional (reject only wrong credentials) or required")
	_ = cmd.RegisterFlagCompletionFunc("caller-authentication", cobra.FixedCompletions([]string{"none", "optional", "required"}, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&o.caFile, "caller-ca-file", "", "accept client certificates of the CAs in this `FILE`, PEM")
	f.StringSliceVar(&o.names, "caller-name", nil, "accept only client certificates with this `NAME` as the common name, a DNS name or a URI; may be repeated")
	f.StringVar(&o.tokenFile, "caller-token-file", "", "accept the bearer tokens in this `FILE`, one per line")
	f.StringVar(&o.basicAuthFile, "caller-basic-auth-file", "", "accept the users in this `FILE`, one user:password per line")
	f.StringVar(&o.issuer, "caller-jwt-issuer", "", "accept ServiceAccount tokens of the issuer with this `URL`")
	f.StringSliceVar(&o.audiences, "caller-jwt-audience", nil, "accept ServiceAccount tokens for this `AUDIENCE`; may be repeated")
	f.StringSliceVar(&o.subjects, "caller-jwt-subject", nil, "accept ServiceAccount tokens of this `SUBJECT`, system:serviceaccount:NAMESPACE:NAME; may be repeated (default: any subject, if the token is bound to a webhook configuration)")
	f.StringVar(&o.jwksFile, "caller-jwks-file", "", "read the issuer's keys from this `FILE`, a JSON Web Key Set (default: from the cluster)")
}

// check finds flags that make no sense, or less than they seem to.
func (o *callerOptions) check(standalone bool) error {
	tokens := o.issuer != "" || len(o.audiences) > 0 || len(o.subjects) > 0 || o.jwksFile != ""
	certificates := o.caFile != "" || len(o.names) > 0
	given := tokens || certificates || o.tokenFile != "" || o.basicAuthFile != ""
	switch o.authentication {
	case "none":
		if given {
			return errors.New("callers are not authenticated: add --caller-authentication optional or required")
		}
		return nil
	case "optional", "required":
	default:
		return fmt.Errorf("--caller-authentication must be none, optional or required, not %q", o.authentication)
	}
	switch {
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

// callerCluster is what serve knows of the cluster whose API servers call.
type callerCluster struct {
	kubeconfig    string
	configuration string // the name of the webhook configurations
}

// source is where a part of the credentials comes from.
type source struct {
	name    string // of the file, for people
	read    func(context.Context) ([]byte, error)
	use     func(*authentication.Credentials, []byte) error // an error leaves the credentials as they are
	content []byte                                          // that is in use
	problem error                                           // why what is there now is not
}

// callerCheck is the guard, and what keeps its credentials as the files and the
// cluster say. A nil one lets everyone call.
type callerCheck struct {
	guard *authentication.Guard
	clock *certs.Clock
	mode  string
	certs bool
	log   *slog.Logger

	mu    sync.Mutex // of what follows, which no request needs
	files []*source
	keys  *source // the cluster's, or nil

	missed   chan struct{}
	problems prometheus.Gauge
}

// newCallers reads the credentials for the first time; here a problem is an error.
// The cluster is not asked yet: it may not be there.
func (o *callerOptions) newCallers(ctx context.Context, of callerCluster, log *slog.Logger, registry prometheus.Registerer) (*callerCheck, error) {
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
	c.files = o.sources()
	credentials := &authentication.Credentials{}
	if o.issuer != "" {
		credentials.ServiceAccounts = &authentication.ServiceAccounts{
			Issuer: o.issuer, Audiences: o.audiences, Subjects: o.subjects, Configuration: of.configuration, Missed: c.miss,
		}
	}
	if o.issuer != "" && o.jwksFile == "" {
		read, err := clusterKeys(of.kubeconfig)
		if err != nil {
			return nil, err
		}
		c.keys = &source{name: "the cluster's keys", read: read, use: useKeys}
	}
	c.guard = authentication.NewGuard(o.authentication == "required", credentials, c.clock.Now)
	return c, c.reload(ctx, c.files...)
}

// sources are the files that the options name.
func (o *callerOptions) sources() []*source {
	var all []*source
	add := func(name string, use func(*authentication.Credentials, []byte) error) {
		if name != "" {
			all = append(all, &source{name: name, use: use, read: func(context.Context) ([]byte, error) { return os.ReadFile(name) }})
		}
	}
	add(o.caFile, func(c *authentication.Credentials, content []byte) error {
		parsed, err := authentication.ParseCertificates(content, o.names)
		if err == nil {
			c.Certificates = parsed
		}
		return err
	})
	add(o.tokenFile, func(c *authentication.Credentials, content []byte) error {
		parsed, err := authentication.ParseTokens(content)
		if err == nil {
			c.Tokens = parsed
		}
		return err
	})
	add(o.basicAuthFile, func(c *authentication.Credentials, content []byte) error {
		parsed, err := authentication.ParsePasswords(content)
		if err == nil {
			c.Passwords = parsed
		}
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
	accounts := *c.ServiceAccounts // a request may be reading it
	accounts.Keys = keys
	c.ServiceAccounts = &accounts
	return nil
}

// clusterKeys asks for the keys of the cluster's own issuer. Every ServiceAccount
// may, by the ClusterRole system:service-account-issuer-discovery.
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

// reload puts in use what is new and good, each source for itself: one that is
// broken does not keep another from being rotated. It returns what is wrong.
func (c *callerCheck) reload(ctx context.Context, sources ...*source) error {
	var wrong []error
	for _, s := range sources {
		content, err := s.read(ctx) // may take a while
		wrong = append(wrong, c.take(s, content, err))
	}
	return errors.Join(wrong...)
}

// take is what follows from having read a source.
func (c *callerCheck) take(s *source, content []byte, err error) error {
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
	c.problems.Set(float64(len(c.wrong())))
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

// wrong are the problems that there are now.
func (c *callerCheck) wrong() []string {
	var all []string
	for _, s := range c.all() {
		if s.problem != nil {
			all = append(all, s.problem.Error())
		}
	}
	return all
}

func (c *callerCheck) all() []*source {
	if c.keys == nil {
		return c.files
	}
	return append(slices.Clip(c.files), c.keys)
}

// miss tells that a token named a key that is unknown. Requests call it.
func (c *callerCheck) miss() {
	select {
	case c.missed <- struct{}{}:
	default:
	}
}

// follow keeps the credentials current until ctx is done.
func (c *callerCheck) follow(ctx context.Context) {
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
			_ = c.reload(ctx, c.files...) // has been told
		}
	}
}

// followKeys asks the cluster for its keys: at the start, from time to time, and
// if a token names one that is unknown; never more often than every keysAgain,
// whoever sends what. The key sets of OIDC libraries ask while they verify a token,
// and a request must not wait for the API server.
func (c *callerCheck) followKeys(ctx context.Context) {
	for {
		next := time.After(keysEvery)
		if err := c.reload(ctx, c.keys); err != nil {
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

// check tells who may call. Credentials that cannot be reloaded are told, but
// leave Pillion ready; the keys of the cluster must have come once.
func (c *callerCheck) check() (string, error) {
	if c == nil {
		return "callers are not authenticated", nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys != nil && c.keys.content == nil {
		return "", fmt.Errorf("the keys of ServiceAccount tokens are not loaded yet: %s", strings.Join(c.wrong(), "; "))
	}
	detail := "authentication is " + c.mode
	if problems := c.wrong(); len(problems) > 0 {
		detail += "; the last valid credentials are in use: " + strings.Join(problems, "; ")
	}
	return detail, nil
}

// configure has the server ask for client certificates. They are not checked in
// the handshake: a caller without a good one may have a token, and what the CAs
// are may change while the connection lasts.
func (c *callerCheck) configure(config *tls.Config) {
	if c != nil && c.certs {
		config.ClientAuth = tls.RequestClientCert
	}
}

// use is for the handler.
func (c *callerCheck) use() *authentication.Guard {
	if c == nil {
		return nil
	}
	return c.guard
}
