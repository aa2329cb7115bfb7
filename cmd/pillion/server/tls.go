// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/manifests"
)

// certificate has the serving certificate and the functions that renew it.
type certificate struct {
	*certs.Serving
	authority *certs.Authority // nil: another source creates the certificates
	follow    []func(context.Context)
}

// newCertificate returns a certificate with a pair to serve, unless the pair comes from the
// cluster.
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
		c.follow = append(c.follow, func(ctx context.Context) { followCertificateFiles(ctx, files, log) })
	}
	if o.standalone {
		return c, nil
	}
	return c, c.inCluster(o, log)
}

// inCluster makes the certificate follow which CAs API servers trust. If configured, it also
// creates the pairs.
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
		trust = func(configuration certs.Configuration, bundles []certs.CABundle) {
			c.Trust(configuration, bundles)
			c.authority.Trust(configuration, bundles)
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
		Identity: host + "-" + strings.ToLower(rand.Text()[:8]), // unique for each start of a pod
		Policy:   o.tls.policy, Serving: c.Serving, Log: log,
	})
	c.follow = append(c.follow, c.authority.Run)
	return nil
}

// lookAgain is the interval for reading the files without an event, because a watch can miss
// events.
const lookAgain = 30 * time.Second

// followCertificateFiles loads the pair again when its files change, until ctx is done. The certwatcher of
// controller-runtime would serve a new pair at once; [certs.Serving] first waits until API
// servers trust it.
func followCertificateFiles(ctx context.Context, files certs.Files, log *slog.Logger) {
	load := func() { _ = files.Load() } // Load logs the error
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- watchFiles(watching, files.Paths(), load) }()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-failed:
			log.Warn("the certificate cannot be watched, so it is read periodically",
				"every", lookAgain.String(), "error", errors.Unwrap(err))
		case <-time.After(lookAgain):
			load()
		}
	}
}

// checkReadiness reports the readiness of the certificate.
func (c *certificate) checkReadiness() (string, error) {
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
