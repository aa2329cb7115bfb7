// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/serve"
)

func newServe() *cobra.Command {
	o := &serve.Options{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the admission webhooks",
		Long: `Serve answers the API server's admission webhooks over TLS: /mutate adds what
the templates say, /validate judges what came out, /shadow tells what would become
of a pod and changes nothing, and /advise tells who writes a workload what will be
wrong with its pods. The admin address serves /livez, /readyz (?verbose tells more)
and /metrics in plain HTTP.

Templates, certificate files and the file of --config are followed: a changed one is
used without a restart, and a bad one leaves the last good one in use. Of the
configuration, the log level, --max-request-memory and --uninjected-pods change at
once; /readyz?verbose says what needs a restart. A flag wins over the environment,
and that over the file.
SIGTERM and SIGINT turn readiness off, wait until the API server sends no more, and
finish what is left. SIGHUP changes nothing.`,
		Example: `  # In a cluster.
  pillion serve --templates /etc/pillion/templates \
    --tls-cert-file /etc/pillion/tls/tls.crt --tls-key-file /etc/pillion/tls/tls.key

  # To try it, without a cluster and without a certificate.
  pillion serve -t templates/ --standalone --tls-self-signed --listen 127.0.0.1:8443`,
		Args:    cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return o.Check() },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			strange := cli.StrangeVariables(cmd.Root(), os.Environ())
			if o.PrintConfig {
				for _, sentence := range strange {
					fmt.Fprintln(cmd.ErrOrStderr(), cli.Fold(cmd.ErrOrStderr(), "pillion: "+sentence))
				}
				return cli.PrintConfig(cmd.OutOrStdout(), cmd.Flags())
			}
			log, err := o.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			klog.SetSlogLogger(log) // what client-go has to say
			for _, sentence := range strange {
				log.Warn("an environment variable is not understood", "problem", sentence)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			// Files are followed anyway, and nobody's pod is to wait because nobody reads the log.
			signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
			return o.Run(ctx, cmd.Flags(), log)
		}),
	}
	o.Flags(cmd)
	return cmd
}

var errNoTemplatesFlag = errors.New("name the templates: --templates PATH")
