// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// LogOptions configure logging.
type LogOptions struct {
	Level  string // the value of the flag
	format string
	lowest slog.LevelVar // the lowest level; it may change while loggers are in use
}

// Flags adds the flags to a command.
func (o *LogOptions) Flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.format, "log-format", "json", "write log lines as")
	cmd.Flags().StringVar(&o.Level, "log-level", "info", "write log lines of this level and higher:")
	Choices(cmd, "log-format", "json", "text")
	Choices(cmd, "log-level", "debug", "info", "warn", "error")
}

// Logger returns a logger that writes to w.
func (o *LogOptions) Logger(w io.Writer) *slog.Logger {
	o.Use(o.Level)
	options := &slog.HandlerOptions{Level: &o.lowest}
	if o.format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// Use sets the lowest level, also for loggers in use.
func (o *LogOptions) Use(level string) {
	_ = o.lowest.UnmarshalText([]byte(level)) // the flag allows only valid levels
}
