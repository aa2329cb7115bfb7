// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// logOptions configure logging.
type logOptions struct {
	format, level string
	lowest        slog.LevelVar // the lowest level; it may change while loggers are in use
}

func (o *logOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.format, "log-format", "json", "write log lines as")
	cmd.Flags().StringVar(&o.level, "log-level", "info", "write log lines of this level and higher:")
	cli.Choices(cmd, "log-format", "json", "text")
	cli.Choices(cmd, "log-level", "debug", "info", "warn", "error")
}

// logger returns a logger that writes to w.
func (o *logOptions) logger(w io.Writer) *slog.Logger {
	o.use(o.level)
	options := &slog.HandlerOptions{Level: &o.lowest}
	if o.format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// use sets the lowest level, also for loggers in use.
func (o *logOptions) use(level string) {
	_ = o.lowest.UnmarshalText([]byte(level)) // the flag allows only valid levels
}
