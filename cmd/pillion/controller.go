// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/controller"
)

func newController() *cobra.Command {
	o := &controller.Options{}
	cmd := &cobra.Command{
		Use:         "controller",
		Short:       "Write the status of templates in the cluster",
		Annotations: cli.FailsIf("it cannot start, fails, or no longer leads"),
		Long: `Controller writes the status of each ClusterSidecarTemplate and SidecarTemplate:
whether Pillion uses it, and why not; its revision; and how many pods have that
revision or another one. When a template is no longer used, or is used again, the
controller creates an Event. The webhooks do not need the controller.

If the spec.rollout of a template has the strategy InPlace or InPlaceOrRestart, the
controller also updates the running pods of namespaces with the label
pillion.dev/rollout: enabled, as pillion rollout does. It needs the rights of the
component rollout for that.

Of several replicas, the one that holds the Lease pillion-controller writes. Another
one takes over when it ends.

The admin address serves /livez, /readyz and /metrics over plain HTTP. On SIGTERM or
SIGINT, the controller releases the Lease and ends.`,
		Example: `  # In a cluster.
  pillion controller

  # Outside a cluster, with your own permissions.
  pillion controller --kubeconfig ~/.kube/config --admin-listen 127.0.0.1:8080`,
		Args:    cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return o.Check() },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			log := o.Logger(cmd.ErrOrStderr())
			return untilSignal(cmd, log, func(ctx context.Context) error { return o.Run(ctx, log) })
		}),
	}
	o.Flags(cmd)
	return cmd
}
