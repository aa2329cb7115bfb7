// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/server"
)

func newServe() *cobra.Command {
	o := &server.Options{}
	cmd := &cobra.Command{
		Use:         "serve",
		Short:       "Serve the admission webhooks",
		Annotations: cli.FailsIf("it cannot start, or fails"),
		Long: `Serve serves the admission webhooks over TLS:

  /mutate    adds what the templates define
  /validate  denies pods that are not as the templates require
  /shadow    logs and counts what /mutate would do, and changes nothing
  /advise    returns warnings when a workload's pods will have problems

The admin address serves /livez, /readyz and /metrics over plain HTTP.
/readyz?verbose prints details.

Serve watches templates, certificates and the file of --config. It uses changed
files without a restart. If a changed file is invalid, serve keeps using the last
valid one. In the file of --config, log-level, max-request-memory and
uninjected-pods take effect without a restart; /readyz?verbose lists other changes,
which need one. Flags override environment variables, which override the file.

On SIGTERM or SIGINT, serve reports that it is not ready, waits until the API
server sends no new requests, and finishes the current ones. It ignores SIGHUP.`,
		Example: `  # In a cluster.
  pillion serve --templates /etc/pillion/templates \
    --tls-cert-file /etc/pillion/tls/tls.crt --tls-key-file /etc/pillion/tls/tls.key

  # Try it without a cluster and without a certificate.
  pillion serve -t templates/ --standalone --tls-self-signed --listen 127.0.0.1:8443`,
		Args:    cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return o.Check() },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			if o.PrintConfig {
				for _, sentence := range cli.StrangeVariables(cmd.Root(), os.Environ()) {
					fmt.Fprintln(cmd.ErrOrStderr(), cli.Fold(cmd.ErrOrStderr(), "pillion: "+sentence))
				}
				return cli.PrintConfig(cmd.OutOrStdout(), cmd.Flags())
			}
			log := o.Logger(cmd.ErrOrStderr())
			return untilSignal(cmd, log, func(ctx context.Context) error { return o.Run(ctx, cmd.Flags(), log) })
		}),
	}
	o.Flags(cmd)
	return cmd
}

// untilSignal runs a server until SIGTERM or SIGINT. Everything is written to its log.
func untilSignal(cmd *cobra.Command, log *slog.Logger, run func(context.Context) error) error {
	klog.SetSlogLogger(log) // messages of client-go
	for _, sentence := range cli.StrangeVariables(cmd.Root(), os.Environ()) {
		log.Warn("an environment variable is unknown", "problem", sentence)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	// The process ignores these signals: it follows changes of its files anyway, and it must
	// not end if the reader of its log does.
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	return run(ctx)
}

var errNoTemplatesFlag = errors.New("name the templates: --templates PATH")
