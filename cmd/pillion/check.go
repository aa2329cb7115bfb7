// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/check"
	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/manifests"
)

// checkOptions are the flags of check.
type checkOptions struct {
	cluster.Options
	pre       bool
	overlay   string
	namespace string
	endpoints []string
	output    string
	verbose   bool
	now       func() time.Time
}

func newCheck() *cobra.Command { return newCheckAt(time.Now) }

// newCheckAt returns the command with a clock.
func newCheckAt(now func() time.Time) *cobra.Command {
	o := &checkOptions{now: now}
	cmd := &cobra.Command{
		Use:         "check",
		Short:       "Check whether Pillion works in a cluster",
		Annotations: cli.FailsIf("a check fails"),
		Long: `Check checks the whole installation of Pillion. Run it after you have installed or
upgraded Pillion. It checks

  cluster   the version of the API server, the rights of Pillion's ServiceAccounts, and the
            kinds of templates
  webhooks  whether they are registered and reachable, and what pillion certs checks
  pillion   whether all replicas are ready and use the same templates, whether the
            controller runs, and whether the templates are accepted
  pods      which namespaces opted in, and what a pod gets in one of them. Check sends the
            pod to the API server as a dry run, so nothing is created

With --pre, it checks whether you can install Pillion: the version of the API server,
native sidecars, your rights, cert-manager, and webhooks of another Pillion.

Each check is ok, a warning, failed or not checked, for example because you are not
allowed to read something. Check prints what failed first, with what to do next and a
command, and last what it could not check. With -v, it prints all checks in groups.

The checks do not depend on each other: if one cannot run, it is not checked, with the
reason, and the others follow. They run at the same time. If a namespace denies the pod for reasons of its own, such
as a quota, check tries up to five that opted in.

The exit code is 0 if no check failed. It is 1 if a check failed or if the cluster does
not answer, and 2 if check was called with wrong flags or arguments. Rights that you lack
do not change the exit code.

-o json and -o yaml write one object with summary and checks. Each check has group, name,
result (ok, warning, failed or "not checked"), message, details, hint and command. Fields
that do not apply are left out.`,
		Example: `  pillion check
  pillion check --namespace shop

  # Before you install Pillion.
  pillion check --pre
  pillion check --pre --overlay self-signed

  # For a script.
  pillion check -o json | jq -r '.checks[] | select(.result == "failed") | .message'`,
		Args:    cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return o.checkFlags() },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			kube.Quiet()
			report, err := o.readReport(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			err = cli.Print(w, o.output, report, func() string {
				if o.verbose {
					return report.AllText(cli.WidthOf(w))
				}
				return report.Text(cli.WidthOf(w))
			})
			if err == nil && report.Failed() {
				return cli.ErrTold
			}
			return err
		}),
	}
	o.addFlags(cmd)
	return cmd
}

func (o *checkOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.pre, "pre", false, "check whether you can install Pillion")
	f.StringVar(&o.overlay, "overlay", manifests.OverlayCertManager, "with --pre, check what this overlay needs:")
	cli.Choices(cmd, "overlay", manifests.OverlayCertManager, manifests.OverlaySelfSigned)
	endpointFlag(cmd, &o.endpoints)
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print all checks in groups, and for each one that could not be made the right that you lack")
	o.Flags(cmd)
	o.NamespaceFlag(cmd, &o.namespace, "send the dry-run pod to this `NAMESPACE`, or if it has not opted in to others")
	cli.OutputFlag(cmd, &o.output, "text", "json", "yaml")
}

func (o *checkOptions) checkFlags() error {
	if err := checkEndpoints(o.endpoints); err != nil {
		return err
	}
	return cluster.CheckNamespaces(o.namespace)
}

func (o *checkOptions) readReport(ctx context.Context, stderr io.Writer) (*check.Report, error) {
	client, err := o.Connect()
	if err != nil {
		return nil, err
	}
	how := cluster.Checking{
		Commands:  check.Commands{Kubectl: o.Kubectl(), Pillion: o.Command},
		Namespace: o.namespace, Endpoints: o.endpoints, Overlay: o.overlay, Now: o.now(),
	}
	if o.pre {
		facts, err := client.CheckedBefore(ctx, how, stderr)
		if err != nil {
			return nil, err
		}
		return check.Before(facts), nil
	}
	facts, err := client.Checked(ctx, how, stderr)
	if err != nil {
		return nil, err
	}
	return check.After(facts), nil
}
