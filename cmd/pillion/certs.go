// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/manifests"
)

// certsOptions are the flags of certs.
type certsOptions struct {
	cluster.Options
	configuration string
	endpoints     []string
	output        string
	now           func() time.Time
}

func newCerts() *cobra.Command {
	o := &certsOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:         "certs",
		Short:       "Check whether API servers can verify Pillion's certificate",
		Annotations: cli.FailsIf("they cannot"),
		Long: `Certs checks whether API servers can verify Pillion's serving certificate. It
prints every link of the chain:

  * the issuer and the Certificate, if cert-manager makes the certificate
  * the Secret with the certificate
  * the caBundle of every webhook, which is what API servers trust
  * the certificate that every endpoint of the Service serves

If you can connect to no endpoint, certs checks the certificate of the Secret
instead, and prints a note. For each problem, certs prints what is wrong and what
to do. If you are not allowed to read something, it prints a note.

The exit code is 0 if there is no problem, 1 if there is one or if you are not
allowed to read enough, and 2 if certs was called with wrong flags or arguments.

-o json and -o yaml write one object:

  source       the issuer of the certificate: cert-manager, self-managed (Pillion) or own
               (you)
  host         the name that API servers verify
  issuer       kind, name, ready, reason, message
  certificate  namespace, name, ready, issuing, reason, message, expires, renewal
  secret       name (namespace/name), certificate
  trust        for each webhook: configuration (Kind/name), webhook, certificates
  served       from (host:port, or Secret/namespace/name), certificate, error, and
               verified: whether every caBundle verifies it now
  notes        sentences that are not about problems
  problems     sentences about problems, causes first

Each certificate has subject, issuer, names, begins, expires and sha256, its
fingerprint. Times are in RFC 3339. Fields that do not apply are left out.`,
		Example: `  pillion certs
  pillion certs --endpoint 10.2.3.4:8443 -o json`,
		Args:    cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return checkEndpoints(o.endpoints) },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			report, err := o.readReport(cmd.Context())
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			err = cli.Print(w, o.output, report, func() string { return chainText(report, o.now(), cli.WidthOf(w)) })
			if err == nil && len(report.Problems) > 0 {
				return cli.ErrTold
			}
			return err
		}),
	}
	f := cmd.Flags()
	o.Flags(cmd)
	f.StringVar(&o.configuration, "webhook-configuration", manifests.Name, "check the webhook configurations with this `NAME`, and NAME-advise")
	endpointFlag(cmd, &o.endpoints)
	cli.OutputFlag(cmd, &o.output, "text", "json", "yaml")
	return cmd
}

// endpointFlag adds --endpoint.
func endpointFlag(cmd *cobra.Command, endpoints *[]string) {
	cmd.Flags().StringSliceVar(endpoints, "endpoint", nil, "connect to this `HOST:PORT` instead of the endpoints of the Service; may be repeated")
}

// checkEndpoints checks the values of --endpoint.
func checkEndpoints(endpoints []string) error {
	for _, endpoint := range endpoints {
		if host, port, err := net.SplitHostPort(endpoint); err != nil || host == "" || port == "" {
			return fmt.Errorf("--endpoint must be HOST:PORT, not %q", endpoint)
		}
	}
	return nil
}

func (o *certsOptions) readReport(ctx context.Context) (*certs.ChainReport, error) {
	client, err := o.Connect()
	if err != nil {
		return nil, err
	}
	chain, err := client.Chain(ctx, o.configuration, o.endpoints, o.now())
	if err != nil {
		return nil, err
	}
	return chain.Report(), nil
}
