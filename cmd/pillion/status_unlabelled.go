// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// unlabelledOptions are the flags of status unlabelled.
type unlabelledOptions struct {
	cluster    cluster.Options
	namespaces []string
	output     string
}

func newUnlabelled() *cobra.Command {
	o := &unlabelledOptions{}
	cmd := &cobra.Command{
		Use:         "unlabelled [NAMESPACE...]",
		Short:       "List the namespaces that have not opted in, and how to opt them in",
		Annotations: cli.FailsIf("one of them could opt in, or Pillion does not work"),
		Long: `Unlabelled lists the namespaces that have not opted in, or those of them that you name.
It prints the reason for each: it has no label pillion.dev/inject, the label is
invalid, the label is shadow, or the label is right but the API server does not call
Pillion. It also prints the command that opts the namespace in.

It prints no command in these cases:

  * The namespace must stay out: Kubernetes' own, Pillion's own, namespaces that
    --exclude-namespace or the selectors of the webhooks exclude, and namespaces of
    webhooks that Pillion depends on.
  * The namespace opted out (disabled).
  * Pillion itself has a problem.

-o json and -o yaml write one object: summary, namespaces (namespace, code, why,
intended, command), problems, doubts and notes. -o name writes the namespaces that
could opt in, one per line, as kubectl does.

The exit code is 0 if every namespace has opted in or is out on purpose. It is 1 if a
namespace could opt in and has not, or has a label that is invalid or has no effect. It
is also 1 if Pillion has a problem, or if the cluster cannot be read. It is 2 if the
command was called with wrong flags or arguments. With -o name it is 0.`,
		Example: `  pillion status unlabelled
  pillion status unlabelled shop

  # Opt them all in.
  pillion status unlabelled -o name |
    xargs -r kubectl label --overwrite pillion.dev/inject=enabled`,
		PreRunE: func(_ *cobra.Command, args []string) error {
			o.namespaces = args
			return cluster.CheckNamespaces(o.namespaces...)
		},
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			kube.Quiet()
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	o.cluster.Flags(cmd)
	cmd.ValidArgsFunction = o.cluster.CompleteNamespaces
	cli.OutputFlag(cmd, &o.output, "text", "json", "yaml", "name")
	return cmd
}

func (o *unlabelledOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	c, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	r, err := c.Outsiders(ctx, o.namespaces, stderr)
	if err != nil {
		return err
	}
	r.Run(o.cluster.Commands(nil, nil))
	if o.output == "name" {
		for _, problem := range r.Problems {
			fmt.Fprintln(stderr, cli.Fold(stderr, "pillion: label nothing yet: "+problem))
		}
		for i := range r.Namespaces {
			if r.Namespaces[i].Command != "" && !r.Namespaces[i].Intended {
				fmt.Fprintln(stdout, "namespace/"+r.Namespaces[i].Namespace)
			}
		}
		return nil
	}
	err = cli.Print(stdout, o.output, r, func() string { return r.Text(cli.WidthOf(stdout)) })
	if err == nil && len(r.Names())+len(r.Problems) > 0 {
		return cli.ErrTold
	}
	return err
}
