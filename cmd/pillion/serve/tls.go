// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates"
)

// tlsOptions are the flags of serve about its certificate.
type tlsOptions struct {
	certFile      string
	keyFile       string
	secret        string
	selfSigned    bool
	configuration string
	policy        certs.Policy
}

func (o *tlsOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.certFile, "tls-cert-file", "", "the `FILE` of the serving certificate with its chain, PEM")
	f.StringVar(&o.keyFile, "tls-key-file", "", "the `FILE` of the serving certificate's key, PEM")
	f.StringVar(&o.secret, "tls-secret", "", "make CA and certificate, keep them in this Secret (`NAMESPACE/NAME`) for all replicas, and keep the webhook configurations' caBundles")
	f.BoolVar(&o.selfSigned, "tls-self-signed", false, "serve with a certificate made at the start, for trying things out")
	f.StringSliceVar(&o.policy.Hosts, "tls-host", []string{manifests.ServiceHost}, "a `HOST` that a certificate of --tls-secret is for; may be repeated")
	f.DurationVar(&o.policy.LeafLifetime, "tls-lifetime", 90*24*time.Hour, "the `TIME` that a certificate of --tls-secret is valid; it is renewed at two thirds")
	f.DurationVar(&o.policy.CALifetime, "tls-ca-lifetime", 10*365*24*time.Hour, "the `TIME` that a CA of --tls-secret is valid; it is renewed at two thirds")
	f.StringVar(&o.configuration, "webhook-configuration", manifests.Name,
		"the `NAME` of the webhook configurations, NAME-advise with --advise: a new certificate is served once their caBundles verify it")
}

// check finds flags that make no sense.
func (o *tlsOptions) check(standalone bool) error {
	files := o.certFile != "" || o.keyFile != ""
	sources := 0
	for _, used := range []bool{files, o.selfSigned, o.secret != ""} {
		if used {
			sources++
		}
	}
	switch {
	case sources == 0:
		return errors.New("say --tls-cert-file and --tls-key-file, or --tls-secret, or --tls-self-signed to try things out")
	case sources > 1:
		return errors.New("say only one of --tls-cert-file with --tls-key-file, --tls-secret, and --tls-self-signed")
	case files && (o.certFile == "" || o.keyFile == ""):
		return errors.New("--tls-cert-file and --tls-key-file go together")
	case standalone && o.secret != "":
		return errors.New("--standalone does not go with --tls-secret")
	case standalone && o.configuration != manifests.Name:
		return errors.New("--standalone does not go with --webhook-configuration")
	}
	if o.secret == "" {
		return nil
	}
	switch _, _, ok := splitName(o.secret); {
	case !ok:
		return fmt.Errorf("--tls-secret must be NAMESPACE/NAME, not %q", o.secret)
	case len(o.policy.Hosts) == 0:
		return errors.New("--tls-host must name a host")
	case o.policy.LeafLifetime < time.Second || o.policy.CALifetime < 3*o.policy.LeafLifetime:
		return errors.New("--tls-ca-lifetime must be three times --tls-lifetime or more")
	}
	return nil
}

// splitName splits NAMESPACE/NAME.
func splitName(text string) (namespace, name string, ok bool) {
	namespace, name, _ = strings.Cut(text, "/")
	return namespace, name, namespace != "" && name != "" && !strings.Contains(name, "/")
}

// certificate is the serving certificate and what keeps it fresh.
type certificate struct {
	*certs.Serving
	authority *certs.Authority // nil: somebody else makes the certificates
	follow    []func(context.Context)
}

// newCertificate has a pair to serve already, unless its source is the cluster.
func (o *Options) newCertificate(log *slog.Logger) (*certificate, error) {
	c := &certificate{Serving: certs.NewServing(log)}
	c.follow = append(c.follow, c.Run)
	switch {
	case o.tls.selfSigned:
		pair, err := certs.SelfSigned("localhost", "127.0.0.1", manifests.ServiceHost)
		if err == nil {
			c.Offer(pair)
		}
		return c, err
	case o.tls.secret == "":
		files := certs.Files{Cert: o.tls.certFile, Key: o.tls.keyFile, Serving: c.Serving}
		if err := files.Load(); err != nil {
			return nil, fmt.Errorf("%s and %s: %w", files.Cert, files.Key, err)
		}
		c.follow = append(c.follow, func(ctx context.Context) { followPair(ctx, files, log) })
	}
	if o.standalone {
		return c, nil
	}
	return c, c.inCluster(o, log)
}

// inCluster has the certificate know what API servers trust, and makes it where
// that is asked for.
func (c *certificate) inCluster(o *Options, log *slog.Logger) error {
	client, err := kube.NewClient(o.kubeconfig)
	if err != nil {
		return err
	}
	trust := c.Trust
	if o.tls.secret != "" {
		if err := c.newAuthority(o, client, log); err != nil {
			return err
		}
		trust = func(configuration certs.Configuration, anchors []certs.Anchor) {
			c.Trust(configuration, anchors)
			c.authority.Trust(configuration, anchors)
		}
	}
	configurations := &certs.Configurations{Client: client, Name: o.tls.configuration, Trust: trust, Blind: c.Blind}
	for _, which := range certs.AllConfigurations() {
		if which != certs.Advising || o.advise {
			c.Await(which)
			c.follow = append(c.follow, func(ctx context.Context) { configurations.Follow(ctx, which) })
		}
	}
	return nil
}

func (c *certificate) newAuthority(o *Options, client dynamic.Interface, log *slog.Logger) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	namespace, name, _ := splitName(o.tls.secret)
	c.authority = certs.NewAuthority(certs.AuthorityOptions{
		Client: client, Namespace: namespace, Name: name, Configuration: o.tls.configuration,
		Identity: host + "-" + strings.ToLower(rand.Text()[:8]), // of one life of a pod
		Policy:   o.tls.policy, Serving: c.Serving, Log: log,
	})
	c.follow = append(c.follow, c.authority.Run)
	return nil
}

// lookAgain is how often the files are read without a cause: a watch can miss things.
const lookAgain = 30 * time.Second

// followPair loads the pair again when its files change, until ctx is done.
func followPair(ctx context.Context, files certs.Files, log *slog.Logger) {
	load := func() { _ = files.Load() } // which tells it
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- templates.Watch(watching, files.Paths(), load) }()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-failed:
			log.Warn("the certificate cannot be watched, so it is read from time to time",
				"every", lookAgain.String(), "error", errors.Unwrap(err))
		case <-time.After(lookAgain):
			load()
		}
	}
}

// check is the readiness of the certificate.
func (c *certificate) check() (string, error) {
	detail, err := c.Status().Detail()
	if c.authority == nil {
		return detail, err
	}
	status := c.authority.Status()
	switch {
	case status.Problem != nil && err != nil:
		return "", fmt.Errorf("%w; %w", err, status.Problem)
	case status.Problem != nil:
		detail += "; " + strings.ReplaceAll(status.Problem.Error(), "\n", " ")
	case status.Leading:
		detail += "; renewed by this replica"
	}
	return detail, err
}
