// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/cmd/pillion/update"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// rolloutOptions are the flags of rollout.
type rolloutOptions struct {
	cluster.Query

	cluster     cluster.Options
	bounds      cluster.Bounds
	limits      update.Limits
	unavailable string
	dryRun      bool
	pause       bool
	qps         int
	output      string
}

func newRollout() *cobra.Command {
	o := &rolloutOptions{}
	cmd := &cobra.Command{
		Use:         "rollout [NAMESPACE...]",
		Short:       "Bring running pods to what the templates say now",
		Annotations: cli.FailsIf("the rollout stops before its end, or pods are left that it cannot update"),
		Long: `Rollout updates the pods that pillion status reports as outdated, missing or altered.
For each of them, it computes what the pod would be if it were created now.

  in place  only images, CPU and memory of the templates' own containers differ. Rollout
            changes them in the running pod. Apps are not restarted
  restart   more differs. Rollout restarts the Deployment, StatefulSet or DaemonSet, as
            kubectl rollout restart does
  evict     more differs, and another controller creates a new pod. Rollout evicts the pod
  await     the workload is already replacing the pods. Rollout waits for it
  finish    the pods of a Job need a new pod. Rollout leaves them until the Job ends
  cannot    rollout leaves the pods to you, and prints the reason

Only what Pillion itself has put into a pod is changed. If somebody else has changed the
image or resources of a sidecar since the pod was created, they stay, and are reported.
With --template, only the changes of one template are made. Pods stay outdated if other
templates have changed too.

Rollout works in waves: first the number of workloads of --first, then waves of
--parallel workloads. Of each workload, at most --max-unavailable pods change at a time,
and not more than PodDisruptionBudgets allow. A wave ends when its pods are Ready. If a
container does not start, an image cannot be pulled, a node cannot resize a pod, or
nothing happens for --timeout, rollout stops and prints what is half done. To go back,
apply the old template and run rollout again.

It keeps no state: if you interrupt it, run it again. The first Ctrl-C completes the pods
that are being changed, the second one does not.

-o json writes one object per line for each event: time, type (plan, wave, pod, workload,
skipped, waiting, failed, stopped or done), namespace, workload, pod, way, pods, changes,
message, done and total.

The exit code is 0 if all pods are updated, or left until their Job ends. It is 1 if
rollout stopped, or if pods are left that it cannot update, and 2 if it was called with
wrong flags or arguments. With --dry-run, it is 0 if the plan can be made.

You need the rights to list pods, their owners and PodDisruptionBudgets, to patch pods,
pods/resize, Deployments, StatefulSets and DaemonSets, and to create pods/eviction.`,
		Example: `  # Print the plan.
  pillion rollout --dry-run

  # Update one workload, then waves of ten, and ask before each wave.
  pillion rollout --first 1 --parallel 10 --pause

  # Only one template.
  pillion rollout shop -l app=web --template log-agent

  pillion rollout -o json | jq -r 'select(.type == "failed") | .message'`,
		PreRunE: func(_ *cobra.Command, args []string) error { return o.check(args) },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			kube.Quiet()
			return o.run(cmd)
		}),
	}
	o.flags(cmd)
	return cmd
}

func (o *rolloutOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVarP(&o.Namespaces, "namespace", "n", nil, "update this `NAMESPACE`, the same as an argument; may be repeated")
	f.BoolVarP(&o.All, "all-namespaces", "A", false, "update all namespaces, including those that did not opt in, and ignore --namespace")
	f.StringVarP(&o.Selector, "selector", "l", "", "update only pods whose labels match this `SELECTOR`, for example app=web,tier!=test")
	f.StringVar(&o.bounds.Template, "template", "", "make only changes of the template with this `NAME`, or NAMESPACE/NAME")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the plan, and change nothing")
	f.IntVar(&o.limits.First, "first", 0, "update this `NUMBER` of workloads before all others")
	f.IntVar(&o.limits.Parallel, "parallel", 10, "update this `NUMBER` of workloads at a time")
	f.StringVar(&o.unavailable, "max-unavailable", "25%", "change at most this `NUMBER` or percentage of a workload's pods at a time, and at least one")
	f.DurationVar(&o.limits.Timeout, "timeout", 5*time.Minute, "stop if a pod or a restart makes no progress for this `TIME`")
	f.DurationVar(&o.limits.MinReady, "min-ready", 5*time.Second, "continue after a pod has been ready for this `TIME`")
	f.BoolVar(&o.pause, "pause", false, "ask before each wave but the first")
	f.IntVar(&o.qps, "qps", 50, "send at most this `NUMBER` of requests per second to the API server")
	o.cluster.Flags(cmd, nil)
	cmd.ValidArgsFunction = o.cluster.CompleteNamespaces
	_ = cmd.RegisterFlagCompletionFunc("template", o.cluster.CompleteTemplates(new([]string))) // the flag exists
	cli.OutputFlag(cmd, &o.output, "text", "json")
}

func (o *rolloutOptions) check(args []string) error {
	var err error
	if o.limits.Unavailable, err = rollout.ParseUnavailable(o.unavailable); err != nil {
		return fmt.Errorf("--max-unavailable %w", err)
	}
	switch {
	case o.limits.First < 0:
		return fmt.Errorf("--first must be at least 0, not %d", o.limits.First)
	case o.limits.Parallel < 1:
		return fmt.Errorf("--parallel must be at least 1, not %d", o.limits.Parallel)
	case o.qps < 1:
		return fmt.Errorf("--qps must be at least 1, not %d", o.qps)
	case o.limits.Timeout <= 0:
		return fmt.Errorf("--timeout must be more than 0s, not %s", o.limits.Timeout)
	case o.limits.MinReady < 0:
		return fmt.Errorf("--min-ready must be at least 0s, not %s", o.limits.MinReady)
	case o.pause && o.output == "json":
		return errors.New("--pause cannot be used with -o json")
	}
	o.limits.Poll = time.Second
	return o.Complete(args)
}

func (o *rolloutOptions) run(cmd *cobra.Command) error {
	if o.pause && !cli.IsTerminalInput(cmd.InOrStdin()) {
		return cli.UsageError{Err: errors.New("--pause asks questions, but standard input is not a terminal: use --first and --dry-run instead")}
	}
	client, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	client.About(o.Namespaces...)
	if err := client.Limit(o.qps); err != nil {
		return err
	}
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	targets, err := client.Rollout(cmd.Context(), o.Query, o.bounds, stderr)
	if err != nil {
		return err
	}
	s := &rolloutScreen{w: stdout, stderr: stderr, json: o.output == "json"}
	s.plan(targets)
	if o.dryRun {
		return s.err
	}
	if s.acts > 0 {
		err := o.execute(cmd, &update.Rollout{Cluster: client.Executor(), Limits: o.limits, Plan: targets.Plan, Report: s.report}, targets, s)
		if err != nil {
			return err
		}
	}
	s.end()
	if s.err == nil && s.left > 0 {
		return cli.ErrTold
	}
	return s.err
}

// execute runs the rollout until its end or the second signal.
func (o *rolloutOptions) execute(cmd *cobra.Command, r *update.Rollout, targets *cluster.Targets, s *rolloutScreen) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	signals, stop := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			s.line("Stopping after the pods that are being changed. Press Ctrl-C again to stop at once.")
			close(stop)
		}
		select {
		case <-ctx.Done():
		case <-signals:
			cancel()
		}
	}()
	r.Stop = stop
	if o.pause {
		r.Pause = func(_ context.Context, wave int, next []*rollout.Workload) error {
			return s.ask(cmd.InOrStdin(), wave, next)
		}
	}
	err := r.Run(ctx, targets.Workloads)
	s.clear()
	if err != nil {
		s.stopped(err)
	}
	if errors.Is(err, update.ErrStopped) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("the rollout was stopped after %d of %d pods; run the same command again to continue%s", s.done, s.total, halfOf(err))
	}
	if err != nil {
		err = fmt.Errorf("the rollout has stopped after %d of %d pods: %w. Fix the cause, or apply the old template, and run the same command again", s.done, s.total, err)
	}
	return err
}

// ask asks whether to continue with the next wave.
func (s *rolloutScreen) ask(in io.Reader, wave int, next []*rollout.Workload) error {
	s.clear()
	fmt.Fprintf(s.stderr, "%d of %d pods are done. Continue with wave %d (%d workloads)? [y/N] ", s.done, s.total, wave, len(next))
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && answer == "" {
		return update.ErrStopped
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return update.ErrStopped
	}
	return nil
}
