// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// configuration follows the file of --config. It applies the settings that can change while
// serve runs, and reports that all others need a restart. An invalid file changes nothing.
// Viper can follow a file too, but it would replace the values before they are checked.
type configuration struct {
	path  string // "" for none
	flags *pflag.FlagSet
	live  map[string]func(next *Options) // flags, with the functions that apply a new value
	log   *slog.Logger

	mu       sync.Mutex
	read     []byte            // the content that was read last
	inUse    map[string]string // current values of the flags that can change
	pending  []string          // flags that need a restart
	rejected *rejection        // nil if the file is valid

	loads    *prometheus.CounterVec
	problems prometheus.Gauge
	restart  *prometheus.GaugeVec
}

// newConfiguration records the flags that serve was started with.
func newConfiguration(o *Options, flags *pflag.FlagSet, log *slog.Logger, registry prometheus.Registerer) *configuration {
	metrics := promauto.With(registry)
	c := &configuration{
		path: o.config, flags: flags, log: log, inUse: map[string]string{},
		live: map[string]func(*Options){
			"log-level": func(next *Options) { o.log.Use(next.log.Level) },
		},
		loads: loadsCounter(registry, "pillion_config_loads_total", "Changes of the configuration file, by whether the new file was valid."),
		problems: metrics.NewGauge(prometheus.GaugeOpts{
			Name: "pillion_config_problems",
			Help: "Problems of the configuration file. If there are any, the last valid file is in use.",
		}),
		restart: metrics.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pillion_config_restart_needed",
			Help: "1 for each flag whose value in the configuration file takes effect after a restart.",
		}, []string{"flag"}),
	}
	return c
}

// followFile applies changes of the file until ctx is done.
func (c *configuration) followFile(ctx context.Context) {
	if c.path != "" {
		followFiles(ctx, []string{c.path}, c.log, c.reloadFile)
	}
}

// reloadFile reads the file and applies the settings that can change.
func (c *configuration) reloadFile() {
	if c.path == "" {
		return
	}
	content, err := os.ReadFile(c.path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.read != nil && bytes.Equal(content, c.read) && c.rejected == nil {
		return
	}
	first := c.read == nil
	next := &Options{}
	flags, err := c.parseFlags(next)
	if err != nil {
		if c.rejected == nil || c.rejected.err.Error() != err.Error() {
			lines := strings.Split(err.Error(), "\n")
			c.rejected = &rejection{what: "a newer one", since: time.Now(), err: err}
			c.problems.Set(float64(len(lines)))
			c.loads.WithLabelValues("rejected").Inc()
			c.log.Error("the new configuration is invalid, the last valid one stays in use", "problems", lines)
		}
		return
	}
	if c.rejected != nil {
		c.log.Info("the configuration is valid again", "file", c.path)
	}
	if !first {
		c.loads.WithLabelValues("used").Inc()
	}
	c.read, c.rejected = content, nil
	c.problems.Set(0)
	c.applyFlags(next, flags)
}

// parseFlags reads the flags as serve does at its start. Flags from the command line keep their
// values.
func (c *configuration) parseFlags(next *Options) (*pflag.FlagSet, error) {
	cmd := &cobra.Command{}
	next.Flags(cmd)
	if err := cli.ConfigureAgain(cmd.Flags(), c.flags); err != nil {
		return nil, err
	}
	return cmd.Flags(), next.Check()
}

// applyFlags applies changed values, or records that they need a restart.
func (c *configuration) applyFlags(next *Options, flags *pflag.FlagSet) {
	var pending []string
	c.flags.VisitAll(func(f *pflag.Flag) {
		to := flags.Lookup(f.Name)
		if to == nil {
			return
		}
		before, changed := c.inUse[f.Name]
		if !changed {
			before = f.Value.String()
		}
		now := to.Value.String()
		apply := c.live[f.Name]
		switch {
		case now == before:
		case apply == nil:
			pending = append(pending, f.Name)
		default:
			c.inUse[f.Name] = now
			apply(next)
			c.log.Info("configuration changed", "flag", f.Name, "value", now, "from", cli.ValueSource(to))
		}
	})
	switch {
	case slices.Equal(pending, c.pending):
	case len(pending) > 0:
		c.log.Warn("the configuration needs a restart", "flags", pending)
	default:
		c.log.Info("the configuration no longer needs a restart")
	}
	c.pending = pending
	c.restart.Reset()
	for _, name := range pending {
		c.restart.WithLabelValues(name).Set(1)
	}
}

// checkReadiness reports the state of the file. Pillion stays ready if the file is invalid, because it
// keeps its settings.
func (c *configuration) checkReadiness() (string, error) {
	if c.path == "" {
		return "no file", nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	detail := c.path
	if len(c.pending) > 0 {
		detail += "; needs a restart: " + strings.Join(c.pending, ", ")
	}
	if c.rejected != nil {
		detail += "; " + c.rejected.String()
	}
	return detail, nil
}
