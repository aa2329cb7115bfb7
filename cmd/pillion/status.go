// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/report/status"
)

// statusOptions are the flags of status.
type statusOptions struct {
	cluster.Query

	cluster        cluster.Options
	scope          cluster.NamespaceFlags
	output         string
	failOnOutdated bool
	watch          bool
	interval       time.Duration
}

func newStatus() *cobra.Command {
	o := &statusOptions{}
	cmd := &cobra.Command{
		Use:         "status [NAMESPACE...]",
		Short:       "Report which pods have their sidecars, and why not",
		Annotations: cli.FailsIf("a pod is missing something or altered, a pod cannot be created, or Pillion does not work; with `--fail-on-outdated`, also if a pod is outdated"),
		Long: `Status reports whether pods have their sidecars. It checks the pods of the kubeconfig's
namespace, or of the namespaces that you name, even if they have not opted in. With
--all-namespaces, it checks the pods of all namespaces that opted in, and pods that opted
in themselves.

For each template, a pod is

  current   injected with the current template, and complete
  outdated  injected with a revision of the template that is no longer current, or
            injected although a new pod would not be
  missing   not injected, although it should be
  altered   injected and then changed by something else

Each pod counts once, with the worst state of its templates. The order is missing,
altered, outdated, current. Status ignores pods that have ended, pods that are being
deleted, and mirror pods of static pods. It groups reasons by owner: the Deployment,
StatefulSet, DaemonSet, CronJob, Job or other object that made the pods. Status also
lists other webhooks and policies that change or check new pods, and the effect of their
order.

Status uses the cluster's templates and webhook configuration. It reads pods in pages.
If Pillion runs outside of the cluster, or if you may not read its templates, --templates
names them. Pillion diff reports what other templates would change.

-o json and -o yaml write one object: summary, pods (counts), namespaces, templates,
owners (with reasons, mistakes and an example of a pod for each), mutators, validators,
problems, doubts, failing (owners whose pods cannot be created) and notes.

-o name lists the Deployments, StatefulSets and DaemonSets to restart, one per line, as
arguments for kubectl rollout restart. These have outdated, missing or altered pods,
and their new pods would be current. To decide this, status reads their pod templates,
the endpoints of Pillion, the templates, and the limits of the namespace. If it cannot
be certain, it lists nothing and prints the reason.

The exit code is 0 if no pod is missing or altered, Pillion answers, all templates are
valid, and all pods can be created. It is 1 if one of these is false or if status
cannot read the cluster, and 2 if status was called with wrong flags or arguments.
Outdated pods work, and every change of a template causes some. So they change the exit
code only with --fail-on-outdated. Templates and parameters that do not exist, and
invalid labels of namespaces, are reported and do not change the exit code.
With -o name, and if you interrupt --watch, the exit code is 0.`,
		Example: `  pillion status
  pillion status -n shop
  pillion status -n shop -l app=web
  pillion status --all-namespaces
  pillion status --watch

  # Restart the workloads whose pods are not current.
  pillion status -A -o name | xargs -r -L1 kubectl rollout restart

  # In a pipeline: fail unless every pod is current.
  pillion status -n shop --fail-on-outdated

  # For a script.
  pillion status -A -o json | jq '.owners[] | select(.missing > 0)'`,
		PreRunE: func(_ *cobra.Command, args []string) error { return o.checkFlags(args) },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			kube.Quiet()
			return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	o.addFlags(cmd)
	cmd.AddCommand(newUnlabelled())
	return cmd
}

func (o *statusOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	o.scope.Add(cmd, &o.cluster, "check")
	f.StringVarP(&o.Selector, "selector", "l", "", "check only pods whose labels match this `SELECTOR`, for example app=web,tier!=test")
	f.StringSliceVarP(&o.Templates, "templates", "t", nil, "the templates that Pillion uses are in this file or folder (`PATH`), or - for standard input; may be repeated (default: read from the cluster)")
	f.BoolVar(&o.failOnOutdated, "fail-on-outdated", false, "also exit with 1 if pods are outdated")
	f.BoolVarP(&o.watch, "watch", "w", false, "check repeatedly")
	f.DurationVar(&o.interval, "interval", 5*time.Second, "wait this `TIME` between the checks of --watch")
	o.cluster.Flags(cmd)
	cmd.ValidArgsFunction = o.cluster.CompleteNamespaces
	cli.OutputFlag(cmd, &o.output, "text", "json", "yaml", "name")
}

func (o *statusOptions) checkFlags(args []string) error {
	switch {
	case o.watch && slices.Contains(o.Templates, "-"):
		return errors.New("--watch cannot be used with --templates -, because it reads the templates repeatedly")
	case o.watch && o.output == "name":
		return errors.New("--watch cannot be used with -o name")
	case o.interval < time.Second:
		return fmt.Errorf("--interval must be at least 1s, not %s", o.interval)
	}
	return errors.Join(o.CheckSelector(), o.scope.Complete(args))
}

// run writes one report, or, with --watch, reports until ctx is done.
func (o *statusOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	c, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	o.Namespaces = o.scope.Of(c)
	c.About(o.Namespaces...)
	report, err := o.writeReport(ctx, c, stdout, stderr)
	if err != nil && (!o.watch || ctx.Err() == nil) {
		return err
	}
	if o.watch {
		return o.watchReports(ctx, c, stdout, stderr)
	}
	bad := report.Pods.Missing + report.Pods.Altered
	if o.failOnOutdated {
		bad = report.Pods.Pods - report.Pods.Current - report.Pods.NotWanted
	}
	if o.output == "name" {
		for _, why := range slices.Concat(report.Problems, report.Doubts) {
			fmt.Fprintln(stderr, cli.Fold(stderr, "pillion: restart nothing yet: "+why))
		}
		for i := range report.Failing {
			fmt.Fprintln(stderr, cli.Fold(stderr, "pillion: "+report.Failing[i].String()))
		}
		return nil
	}
	if bad+len(report.Problems)+len(report.Failing) > 0 {
		return cli.ErrTold
	}
	return nil
}

// suggestedCommands returns the commands for the same cluster and templates.
func (o *statusOptions) suggestedCommands() status.Commands {
	var arguments []string
	for _, name := range o.Namespaces {
		arguments = append(arguments, cli.Quote(name))
	}
	if o.scope.All() {
		arguments = append(arguments, "--all-namespaces")
	}
	if o.Selector != "" {
		arguments = append(arguments, "--selector "+cli.Quote(o.Selector))
	}
	return o.cluster.Commands(arguments, o.Templates)
}

// writeReport writes one report. With --watch on a terminal, it replaces the previous report.
func (o *statusOptions) writeReport(ctx context.Context, c *cluster.Client, stdout, stderr io.Writer) (*status.Report, error) {
	report, err := c.Report(ctx, o.Query, stderr)
	if err != nil {
		return nil, err
	}
	report.Run(o.suggestedCommands())
	report.Notes = append(report.Notes, o.scope.Notes()...)
	var page bytes.Buffer
	if o.watch && o.output == "text" {
		head := "\n" // separates the report from the previous one
		if cli.IsTerminal(stdout) {
			head = ""
			fmt.Fprint(cli.Raw(stdout), "\x1b[H\x1b[2J") // ECMA-48: to the first line, and erase all
		}
		fmt.Fprintf(&page, "%s%s\n", head, time.Now().Format(time.TimeOnly))
	}
	switch o.output {
	case "name":
		for _, line := range report.Restarts() {
			fmt.Fprintln(&page, line)
		}
	case "json":
		indent := "  "
		if o.watch { // one line for each error
			indent = ""
		}
		err = cli.JSONEncoder(&page, indent).Encode(report)
	case "yaml":
		if o.watch {
			page.WriteString("---\n")
		}
		err = cli.WriteYAML(&page, report)
	default:
		colour := cli.WantsColour(stdout)
		page.WriteString(report.Text(cli.WidthOf(stdout), colour))
		if colour {
			stdout = cli.Raw(stdout) // the report is escaped already, apart from its colors
		}
	}
	if err == nil {
		_, err = stdout.Write(page.Bytes())
	}
	return report, err
}

// watchReports writes a report at every interval until ctx is done. It prints errors and continues.
func (o *statusOptions) watchReports(ctx context.Context, c *cluster.Client, stdout, stderr io.Writer) error {
	ticker := time.NewTicker(o.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if _, err := o.writeReport(ctx, c, stdout, stderr); err != nil && ctx.Err() == nil {
			fmt.Fprintln(stderr, cli.Fold(stderr, "pillion: "+err.Error()))
		}
	}
}
