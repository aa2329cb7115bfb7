// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// Options are the flags of pillion controller.
type Options struct {
	adminListen string
	kubeconfig  string
	log         cli.LogOptions
	limits      executor.Limits
	qps         int
	history     int
	events      bool // about pods

	templateLimits kube.Limits
	memoryLimit    cli.MemoryLimit
}

// Flags adds the flags to a command.
func (o *Options) Flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.adminListen, "admin-listen", ":8080", "serve /livez, /readyz and /metrics at this `ADDRESS`")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "use this kubeconfig `FILE` (default: the cluster that Pillion runs in)")
	f.DurationVar(&o.limits.Timeout, "rollout-timeout", 5*time.Minute, "stop a rollout if a pod or a restart makes no progress for this `TIME`")
	f.DurationVar(&o.limits.MinReady, "rollout-min-ready", 5*time.Second, "in a rollout, continue after a pod has been ready for this `TIME`")
	f.IntVar(&o.qps, "rollout-qps", 50, "for rollouts, send at most this `NUMBER` of requests per second to the API server")
	f.IntVar(&o.history, "history", 10, "keep this `NUMBER` of the last revisions of each template, for pillion rollout undo; 0 keeps no new ones")
	f.BoolVar(&o.events, "pod-events", true, "create an Event if the pods of a workload lack a sidecar because of a mistake")
	o.templateLimits.Flags(f)
	o.memoryLimit.Flags(f)
	o.log.Flags(cmd)
}

// Logger returns a logger with the configured level and format.
func (o *Options) Logger(w io.Writer) *slog.Logger { return o.log.Logger(w) }

// parallel is the number of workloads that are updated at a time.
const parallel = 50

// Check reports a flag with an invalid value.
func (o *Options) Check() error {
	switch {
	case o.qps < 1:
		return fmt.Errorf("--rollout-qps must be at least 1, not %d", o.qps)
	case o.history < 0:
		return fmt.Errorf("--history must be at least 0, not %d", o.history)
	case o.limits.Timeout <= 0:
		return fmt.Errorf("--rollout-timeout must be more than 0s, not %s", o.limits.Timeout)
	case o.limits.MinReady < 0:
		return fmt.Errorf("--rollout-min-ready must be at least 0s, not %s", o.limits.MinReady)
	}
	if err := o.templateLimits.Check(); err != nil {
		return err
	}
	if err := o.memoryLimit.Check(); err != nil {
		return err
	}
	o.limits.Parallel, o.limits.Poll = parallel, time.Second
	return nil
}
