// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// Options are the flags of pillion controller.
type Options struct {
	adminListen string
	kubeconfig  string
	log         cli.LogOptions
}

// Flags adds the flags to a command.
func (o *Options) Flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.adminListen, "admin-listen", ":8080", "serve /livez, /readyz and /metrics at this `ADDRESS`")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "use this kubeconfig `FILE` (default: the cluster that Pillion runs in)")
	o.log.Flags(cmd)
}

// Logger returns a logger with the configured level and format.
func (o *Options) Logger(w io.Writer) *slog.Logger { return o.log.Logger(w) }
