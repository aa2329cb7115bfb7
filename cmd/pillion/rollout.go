// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// rolloutOptions are the flags of rollout.
type rolloutOptions struct {
	cluster.Query

	cluster     cluster.Options
	scope       cluster.NamespaceFlags
	bounds      cluster.Bounds
	limits      executor.Limits
	unavailable string
	first       string
	shares      []string
	stopIn      string // --scope
	bake        time.Duration
	dryRun      bool
	pause       bool
	yes         bool
	qps         int
	output      string
}

func newRollout() *cobra.Command {
	o := &rolloutOptions{}
	cmd := &cobra.Command{
		Use:         "rollout [NAMESPACE...] [KIND/NAME...]",
		Short:       "Update the sidecars of running pods",
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

Name what to update: namespaces, workloads, --selector, --template, or --all-namespaces.
If you name no namespace, rollout updates only pods of the kubeconfig's. On a terminal,
it prints the plan and asks. Scripts need --yes. --dry-run only prints the plan.

Only what Pillion itself has put into a pod is changed. If somebody else has changed the
image or resources of a sidecar since the pod was created, they stay, and are reported.
With --template, only the changes of one template are made. Pods stay outdated if other
templates have changed too.

Of each workload, at most --max-unavailable pods are unready because of the rollout, and
not more than PodDisruptionBudgets allow. Pods that are unready for other reasons count
too. A changed pod keeps its place until it has been ready for --min-ready, for
minReadySeconds of the workload, and for --bake. So a failure that comes within this time
never reaches more pods. With --bake 0s and --min-ready 0s, the next pod follows as soon
as one is ready. A restart follows the strategy of the workload instead, after one pod was
evicted and the new one has been ready for that long.

Rollout works in waves: first the number of pods of --first, or the workloads of
--first-workloads, then the shares of --waves. If a container does not start, an image
cannot be pulled, a node cannot resize a pod, a changed pod becomes unready, or nothing
happens for --timeout, rollout stops in the namespace, or with --scope all everywhere, and
prints what is half done. To go back, apply the old template, or use pillion rollout undo,
and run rollout again.

It keeps no state: if you interrupt it, run it again. The first Ctrl-C completes the pods
that are being changed, the second one does not.

-o json writes one object per line for each event: time, type (plan, wave, pod, workload,
skipped, gone, waiting, failed, stopped or done), namespace, workload, pod, way, pods,
changes, message, blocked, done and total.

The exit code is 0 if all pods are updated, gone, or left until their Job ends. It is 1 if
rollout stopped, if you did not confirm the plan, or if pods are left that it cannot
update, and 2 if it was called with wrong flags or arguments. With --dry-run, it is 0 if
the plan can be made.

You need the rights to list pods, their owners and PodDisruptionBudgets, to patch pods,
pods/resize, Deployments, StatefulSets and DaemonSets, and to create pods/eviction.`,
		Example: `  # Print the plan for all namespaces.
  pillion rollout --all-namespaces --dry-run

  # Update one pod, then 10% and 50% of all, and ask before each wave.
  pillion rollout shop --first 1 --waves 10%,50% --pause

  # Only one workload, or only one template.
  pillion rollout deployment/web -n shop
  pillion rollout shop -l app=web --template log-agent

  # The namespaces history and undo, which are also names of commands.
  pillion rollout -n history -n undo

  # In a script.
  pillion rollout shop --yes -o json | jq -r 'select(.type == "failed") | .message'`,
		PreRunE: func(cmd *cobra.Command, args []string) error { return o.checkFlags(cmd, args) },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			kube.Quiet()
			return o.run(cmd)
		}),
	}
	o.addFlags(cmd)
	cmd.AddCommand(newRolloutHistory(), newRolloutUndo())
	return cmd
}

func (o *rolloutOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	o.scope.Add(cmd, &o.cluster, "update")
	f.StringVarP(&o.Selector, "selector", "l", "", "update only pods whose labels match this `SELECTOR`, for example app=web,tier!=test")
	f.StringVar(&o.bounds.Template, "template", "", "make only changes of the template with this `NAME`, or NAMESPACE/NAME")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the plan, and change nothing")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask whether to begin")
	f.IntVar(&o.limits.First, "first", rollout.DefaultFirst, "update this `NUMBER` of pods before all others")
	f.StringVar(&o.first, "first-workloads", "", "update this `NUMBER` or percentage of workloads before all others")
	f.StringSliceVar(&o.shares, "waves", rollout.DefaultShares(), "end waves after these `PERCENTAGES` of all pods")
	f.IntVar(&o.limits.Parallel, "parallel", 50, "update this `NUMBER` of workloads at a time")
	f.StringVar(&o.unavailable, "max-unavailable", rollout.DefaultMaxUnavailable, "let at most this `NUMBER` or percentage of a workload's pods be unready, and at least one (without the flag: the template's, if it has one)")
	f.DurationVar(&o.limits.Timeout, "timeout", 5*time.Minute, "stop if a pod or a restart makes no progress for this `TIME`")
	f.DurationVar(&o.limits.MinReady, "min-ready", rollout.DefaultMinReady, "a changed pod must be ready for this `TIME`, or for that of the template or the workload, if it is longer")
	f.DurationVar(&o.bake, "bake", rollout.DefaultBake, "watch a changed pod for this `TIME` before another one changes in its place (without the flag: the template's, if it has one)")
	f.StringVar(&o.stopIn, "scope", "namespace", "stop in this `SCOPE` if a pod fails: its namespace, or all")
	f.BoolVar(&o.pause, "pause", false, "ask before each wave but the first")
	f.IntVar(&o.qps, "qps", 50, "send at most this `NUMBER` of requests per second to the API server")
	o.cluster.Flags(cmd)
	cmd.ValidArgsFunction = o.cluster.CompleteNamespaces
	_ = cmd.RegisterFlagCompletionFunc("template", o.cluster.CompleteTemplates(new([]string))) // the flag exists
	cli.OutputFlag(cmd, &o.output, "text", "json")
}

func (o *rolloutOptions) checkFlags(cmd *cobra.Command, args []string) error {
	namespaces, err := o.splitArgs(args)
	if err != nil {
		return err
	}
	most, err := rollout.ParseUnavailable(o.unavailable)
	if err != nil {
		return fmt.Errorf("--max-unavailable %w", err)
	}
	if cmd.Flags().Changed("max-unavailable") {
		o.limits.MaxUnavailable = []rollout.Unavailable{most}
	}
	if cmd.Flags().Changed("bake") {
		o.limits.Bake = &o.bake
	}
	if o.first != "" {
		if o.limits.FirstWorkloads, err = rollout.ParseUnavailable(o.first); err != nil {
			return fmt.Errorf("--first-workloads %w", err)
		}
		if !cmd.Flags().Changed("first") {
			o.limits.First = 0
		}
	}
	if o.limits.Shares, err = rollout.ParseShares(o.shares); err != nil {
		return fmt.Errorf("--waves %w", err)
	}
	o.limits.StopAll = o.stopIn == "all"
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
	case o.bake < 0:
		return fmt.Errorf("--bake must be at least 0s, not %s", o.bake)
	case o.stopIn != "namespace" && o.stopIn != "all":
		return fmt.Errorf("--scope must be namespace or all, not %q", o.stopIn)
	case o.pause && o.output == "json":
		return errors.New("--pause cannot be used with -o json")
	}
	o.limits.Poll = time.Second
	if err := errors.Join(o.CheckSelector(), o.scope.Complete(namespaces)); err != nil {
		return err
	}
	return o.checkTarget()
}

// splitArgs returns the arguments that are namespaces. The others are workloads.
func (o *rolloutOptions) splitArgs(args []string) (namespaces []string, err error) {
	for _, arg := range args {
		if !strings.Contains(arg, "/") {
			namespaces = append(namespaces, arg)
			continue
		}
		w, err := cluster.ParseWorkload(arg)
		if err != nil {
			return nil, err
		}
		o.bounds.Workloads = append(o.bounds.Workloads, w)
	}
	return namespaces, nil
}

// checkTarget returns an error if the user has not named what to update.
func (o *rolloutOptions) checkTarget() error {
	switch {
	case len(o.bounds.Workloads) > 0 && o.scope.All():
		return errors.New("--all-namespaces cannot be used with a workload")
	case !o.dryRun && !o.scope.Chosen() && len(o.bounds.Workloads) == 0 && o.Selector == "" && o.bounds.Template == "":
		return errors.New("name what to update: a namespace, a workload, --selector or --template, or --all-namespaces; --dry-run prints the plan")
	}
	return nil
}

func (o *rolloutOptions) run(cmd *cobra.Command) error {
	switch terminal := cli.IsTerminalInput(cmd.InOrStdin()); {
	case o.pause && !terminal:
		return cli.UsageError{Err: errors.New("--pause asks questions, but standard input is not a terminal: use --first and --dry-run instead")}
	case !o.yes && !o.dryRun && !terminal:
		return cli.UsageError{Err: errors.New("rollout asks before it begins, but standard input is not a terminal: use --yes, or --dry-run to print the plan")}
	}
	client, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	o.Namespaces = o.scope.Of(client)
	client.About(o.Namespaces...)
	if err := client.Limit(o.qps); err != nil {
		return err
	}
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	targets, err := client.Rollout(cmd.Context(), o.Query, o.bounds, stderr)
	if err != nil {
		return err
	}
	targets.Notes = append(targets.Notes, o.scope.Notes()...)
	s := &rolloutScreen{w: stdout, stderr: stderr, json: o.output == "json"}
	s.printPlan(targets)
	if o.dryRun {
		return s.err
	}
	if s.acts > 0 && !o.yes && !s.confirmStart(cmd.InOrStdin()) {
		return errors.New("nothing was updated")
	}
	if s.acts > 0 {
		err := o.executeRollout(cmd, &executor.Rollout{Cluster: client.Executor(), Limits: o.limits, Template: rollout.ClaimName(o.bounds.Template), Plan: targets.Plan, Report: s.reportEvent}, targets, s)
		if err != nil {
			return err
		}
	}
	s.printEnd()
	if s.err == nil && s.left > 0 {
		return cli.ErrTold
	}
	return s.err
}

// executeRollout runs the rollout until its end or the second signal.
func (o *rolloutOptions) executeRollout(cmd *cobra.Command, r *executor.Rollout, targets *cluster.Targets, s *rolloutScreen) error {
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
			s.printNote("Stopping after the pods that are being changed. Press Ctrl-C again to stop at once.")
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
		r.Pause = func(_ context.Context, wave int, next []rollout.Part) error {
			return s.askNextWave(cmd.InOrStdin(), wave, next)
		}
	}
	err := r.Run(ctx, targets.Workloads)
	s.clearBar()
	if err != nil {
		s.printStopped(err)
	}
	if errors.Is(err, executor.ErrStopped) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("the rollout was stopped after %d of %d pods; run the same command again to continue%s", s.done, s.total, incompletePhrase(err))
	}
	if err != nil {
		err = fmt.Errorf("the rollout has stopped after %d of %d pods: %w. Fix the cause, or apply the old template, and run the same command again", s.done, s.total, err)
	}
	return err
}

// confirmStart asks whether to begin.
func (s *rolloutScreen) confirmStart(in io.Reader) bool {
	return s.isYes(in, fmt.Sprintf("Update %s of %s? [y/N] ", explain.Plural(s.total, "pod"), explain.Plural(s.acts, "workload")))
}

// askNextWave asks whether to continue with the next wave.
func (s *rolloutScreen) askNextWave(in io.Reader, wave int, next []rollout.Part) error {
	s.clearBar()
	pods := 0
	for _, p := range next {
		pods += len(p.Pods)
	}
	if !s.isYes(in, fmt.Sprintf("%d of %d pods are done. Continue with wave %d (%s of %s)? [y/N] ", s.done, s.total, wave, explain.Plural(pods, "pod"), explain.Plural(len(next), "workload"))) {
		return executor.ErrStopped
	}
	return nil
}
