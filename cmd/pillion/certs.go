// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pillion-dev/pillion/certs"
	"github.com/pillion-dev/pillion/manifests"
)

// certsOptions are the flags of certs.
type certsOptions struct {
	kubeconfig    string
	namespace     string
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
when nothing is, 1 when something is, and 2 when certs was called wrongly.

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
fingerprint. Times are as in RFC 3339. What the cluster has not is left out.`,
		Example: `  pillion certs
  pillion certs --endpoint 10.2.3.4:8443 -o json`,
		Args:    noArguments,
		PreRunE: func(*cobra.Command, []string) error { return oneOf("output", o.output, "text", "json") },
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
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "the `FILE` that says how to reach the cluster (default: as kubectl finds it)")
	f.StringVarP(&o.namespace, "namespace", "n", manifests.Namespace, "the `NAMESPACE` that Pillion runs in")
	f.StringVar(&o.configuration, "webhook-configuration", manifests.Name, "the `NAME` of both webhook configurations")
	f.StringSliceVar(&o.endpoints, "endpoint", nil, "a `HOST:PORT` to ask instead of the Service's; may be repeated")
	outputFlag(cmd, &o.output, "text", "json")
	return cmd
}

func (o *certsOptions) report(ctx context.Context) (*certs.ChainReport, error) {
	config, err := o.restConfig()
	if err != nil {
		return nil, err
	}
	client, err := newReader(config)
	if err != nil {
		return nil, err
	}
	chain, err := o.gather(ctx, client)
	if err != nil {
		return nil, err
	}
	return chain.Report(), nil
}

// restConfig finds the cluster as kubectl does.
func (o *certsOptions) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is known: say --kubeconfig FILE")
	}
	if err != nil {
		return nil, err
	}
	config.UserAgent = "pillion/" + buildVersion().Version
	config.Timeout = 15 * time.Second
	return config, nil
}
