// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/manifests"
)

// certsOptions are the flags of certs.
type certsOptions struct {
	clusterOptions
	configuration string
	endpoints     []string
	output        string
	now           func() time.Time
}

func newCerts() *cobra.Command {
	o := &certsOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Show the chain from the issuer to what API servers trust",
		Long: `Certs follows the chain of Pillion's serving certificate: cert-manager's issuer and
Certificate where there are some, the Secret, what the caBundle of every webhook
trusts, and what is presented to whoever connects. It asks the endpoints of the
Service for what they present; where none can be reached from here, the Secret
stands for it, and certs says so.

What is wrong is said in a sentence that also says what to do. The exit code is 0
when nothing is, 1 when something is or you may not read what would tell, and 2 when
certs was called wrongly.

-o json writes one object:

  source       cert-manager, self-managed (by Pillion) or own (yours)
  host         the name that API servers verify
  issuer       kind, name, ready, reason, message
  certificate  namespace, name, ready, issuing, reason, message, expires, renewal
  secret       name (namespace/name) and its certificate
  trust        for every webhook: configuration (Kind/name), webhook, certificates
  served       from (host:port, or Secret/namespace/name), certificate, error, and
               verified: whether every caBundle verifies it now
  notes        sentences about nothing wrong
  problems     sentences about what is wrong, causes first

A certificate is subject, issuer, names, begins, expires, and sha256, its
fingerprint. Times are as in RFC 3339. What the cluster has not, or does not show
you, is left out.`,
		Example: `  pillion certs
  pillion certs --endpoint 10.2.3.4:8443 -o json`,
		Args:    noArguments,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			report, err := o.report(cmd.Context())
			if err != nil {
				return err
			}
			if o.output == "json" {
				err = writeJSON(cmd.OutOrStdout(), report)
			} else {
				err = writeChain(cmd.OutOrStdout(), report, o.now())
			}
			if err == nil && len(report.Problems) > 0 {
				return errTold
			}
			return err
		}),
	}
	f := cmd.Flags()
	o.flags(cmd, nil)
	f.StringVar(&o.configuration, "webhook-configuration", manifests.Name, "the `NAME` of the webhook configurations; that of the component advise is NAME-advise")
	f.StringSliceVar(&o.endpoints, "endpoint", nil, "a `HOST:PORT` to ask instead of the Service's; may be repeated")
	outputFlag(cmd, &o.output, "text", "json")
	return cmd
}

func (o *certsOptions) check() error {
	for _, endpoint := range o.endpoints {
		if host, port, err := net.SplitHostPort(endpoint); err != nil || host == "" || port == "" {
			return fmt.Errorf("--endpoint must be HOST:PORT, not %q", endpoint)
		}
	}
	return oneOf("output", o.output, "text", "json")
}

func (o *certsOptions) report(ctx context.Context) (*certs.ChainReport, error) {
	client, err := o.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	chain, err := o.gather(ctx, client)
	if err != nil {
		return nil, noAnswer(err)
	}
	return chain.Report(), nil
}
