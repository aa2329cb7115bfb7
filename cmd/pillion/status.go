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
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/survey"
)

// statusOptions are the flags of status.
type statusOptions struct {
	cluster.Query

	cluster        cluster.Options
	output         string
	failOnOutdated bool
	watch          bool
	interval       time.Duration
}

func newStatus() *cobra.Command {
	o := &statusOptions{}
	cmd := &cobra.Command{
		Use:   "status [NAMESPACE...]",
		Short: "Say which pods have their sidecars, and which do not, and why",
		Long: `Status looks at the pods of all namespaces that opted in, and at those that opted in
by themselves; not only at the kubeconfig's namespace, as kubectl would. It looks at the
namespaces that you name, opted in or not, and with --all-namespaces at every one. For
each template a pod is

  current   injected by the template as it is now, and all of it is there
  outdated  injected by another revision of the template than a new pod would be, or
            injected though a new pod would not be
  missing   to be injected, and it was not
  altered   injected, but not as the template says: something else changed it

and counts as the worst of these (missing, altered, outdated, current) over all its
templates. Pods that have ended, that are being deleted, or that only mirror a static
pod do not count. Reasons are given by owner: the Deployment, StatefulSet, DaemonSet,
CronJob, Job or other object that made the pods. Status also lists the other webhooks
and policies that change pods when they are created, and what their order means, and
those that judge them.

It goes by the templates and the webhook configuration that the cluster uses. It reads
pods in pages, one after another, however many there are.

-o json and -o yaml write one object: summary, pods (counts), namespaces, templates, owners (with
the reasons and mistakes, and an example of a pod for each), mutators, validators,
problems, doubts, failing (who cannot make pods) and notes.

-o name lists what to restart, a line each: the Deployments, StatefulSets and
DaemonSets with pods that are outdated, missing or altered, if a new pod would be
right: status looks at what their pods are made of, at who answers for Pillion, at
the templates in use, and at the namespace's limits. Where it cannot be certain it
lists none and says why. Each line is a set of arguments for kubectl rollout restart.

The exit code is 0 when nothing is missing or altered, Pillion answers, all its
templates can be used, and all pods can be made; 1 when not, or when status could not
look; 2 when it was called wrongly. Outdated pods are whole, and every change of a
template makes some, so they count with --fail-on-outdated only.
What pods ask for that does not exist (templates, parameters) and namespaces whose
label means nothing are told, and change no exit code.
With -o name, and when --watch is interrupted, the exit code is 0.`,
		Example: `  pillion status
  pillion status shop
  pillion status shop -l app=web
  pillion status --all-namespaces
  pillion status --watch

  # Restart what is not as it should be.
  pillion status -o name | xargs -r -L1 kubectl rollout restart

  # In a pipeline: fail unless every pod is current.
  pillion status shop --fail-on-outdated

  # For a script.
  pillion status -o json | jq '.owners[] | select(.missing > 0)'`,
		PreRunE: func(_ *cobra.Command, args []string) error { return o.check(args) },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			kube.Quiet()
			return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	f := cmd.Flags()
	f.StringSliceVarP(&o.Namespaces, "namespace", "n", nil, "a `NAMESPACE` to look at, as if it were an argument; may be repeated")
	f.BoolVarP(&o.All, "all-namespaces", "A", false, "look at all namespaces, also those that did not opt in; --namespace does not count then")
	f.StringVarP(&o.Selector, "selector", "l", "", "look only at pods whose labels match this `SELECTOR`, such as app=web,tier!=test")
	f.StringSliceVarP(&o.Templates, "templates", "t", nil, "a file or folder (`PATH`) of templates; may be repeated (default: the cluster's)")
	f.BoolVar(&o.failOnOutdated, "fail-on-outdated", false, "exit with 1 where pods are outdated, too")
	f.BoolVarP(&o.watch, "watch", "w", false, "look again and again")
	f.DurationVar(&o.interval, "interval", 5*time.Second, "the `TIME` between two looks of --watch")
	o.cluster.Flags(cmd, nil)
	cmd.ValidArgsFunction = o.cluster.CompleteNamespaces
	cli.OutputFlag(cmd, &o.output, statusOutputs()...)
	cmd.AddCommand(newUnlabelled())
	return cmd
}

func (o *statusOptions) check(args []string) error {
	if o.All {
		o.Namespaces = nil // also those of the environment
	}
	o.Namespaces = append(o.Namespaces, args...)
	selector, err := labels.Parse(o.Selector)
	switch {
	case err != nil:
		return fmt.Errorf("--selector must be a label selector such as app=web, not %q: %w", o.Selector, err)
	case o.All && len(args) > 0:
		return fmt.Errorf("--all-namespaces does not go with a namespace: leave out one of it and %s", args[0])
	case o.watch && o.output == "name":
		return errors.New("--watch does not go with -o name")
	case o.interval < time.Second:
		return fmt.Errorf("--interval must be a second or more, not %s", o.interval)
	}
	o.Selector = selector.String() // without spaces
	return cli.OneOf("output", o.output, statusOutputs()...)
}

// run looks once, or until ctx ends.
func (o *statusOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	c, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	report, err := o.look(ctx, c, stdout, stderr)
	if err != nil && (!o.watch || ctx.Err() == nil) {
		return err
	}
	if o.watch {
		return o.again(ctx, c, stdout, stderr)
	}
	bad := report.Pods.Missing + report.Pods.Altered
	if o.failOnOutdated {
		bad = report.Pods.Pods - report.Pods.Current - report.Pods.NotWanted
	}
	if o.output == "name" {
		for _, why := range slices.Concat(report.Problems, report.Doubts) {
			fmt.Fprintln(stderr, cli.Fold(stderr, "pillion: nothing is to be restarted yet: "+why))
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

// commands are those that look where this one does.
func (o *statusOptions) commands() survey.Commands {
	var arguments []string
	for _, name := range o.Namespaces {
		arguments = append(arguments, cli.Quote(name))
	}
	if o.All {
		arguments = append(arguments, "--all-namespaces")
	}
	if o.Selector != "" {
		arguments = append(arguments, "--selector "+cli.Quote(o.Selector))
	}
	return o.cluster.Commands(arguments, o.Templates)
}

// look writes one report. On a terminal that is watched it takes the last one's place.
func (o *statusOptions) look(ctx context.Context, c *cluster.Client, stdout, stderr io.Writer) (*survey.Report, error) {
	report, err := c.Report(ctx, o.Query, stderr)
	if err != nil {
		return nil, err
	}
	report.Run(o.commands())
	var page bytes.Buffer
	if o.watch && o.output == "text" {
		head := "\n" // after the last report
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
		if o.watch { // then a line each
			indent = ""
		}
		err = cli.JSONEncoder(&page, indent).Encode(report)
	case "yaml":
		if o.watch {
			page.WriteString("---\n")
		}
		err = cli.WriteYAML(&page, report)
	default:
		page.WriteString(report.Text(cli.WidthOf(stdout)))
	}
	if err == nil {
		_, err = stdout.Write(page.Bytes())
	}
	return report, err
}

// again looks every interval until ctx ends. A look that fails is said, and the
// next one may not.
func (o *statusOptions) again(ctx context.Context, c *cluster.Client, stdout, stderr io.Writer) error {
	ticker := time.NewTicker(o.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if _, err := o.look(ctx, c, stdout, stderr); err != nil && ctx.Err() == nil {
			fmt.Fprintln(stderr, cli.Fold(stderr, "pillion: "+err.Error()))
		}
	}
}
