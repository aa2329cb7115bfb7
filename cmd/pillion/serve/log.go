// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
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

// logger returns a logger that writes to w. The error names the invalid flag.
func (o *logOptions) logger(w io.Writer) (*slog.Logger, error) {
	if err := o.lowest.UnmarshalText([]byte(o.level)); err != nil {
		return nil, fmt.Errorf("--log-level must be debug, info, warn or error, not %q", o.level)
	}
	options := &slog.HandlerOptions{Level: &o.lowest}
	switch o.format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format must be json or text, not %q", o.format)
}
