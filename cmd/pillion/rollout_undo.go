// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/report/terminal"
	"github.com/pillion-dev/pillion/inject/report/yamldiff"
)

// undoOptions are the flags of rollout undo.
type undoOptions struct {
	templateOptions

	revision int64
	dryRun   bool
	yes      bool
}

func newRolloutUndo() *cobra.Command {
	o := &undoOptions{}
	cmd := &cobra.Command{
		Use:         "undo [NAMESPACE/]TEMPLATE",
		Short:       "Give a template the content of an earlier revision",
		Annotations: cli.FailsIf("there is no such revision, you did not confirm it, or the API server denies the change"),
		Long: `Undo writes the content of an earlier revision into a template object, with your own
rights. New pods get it from then on. Running pods get it as after any other change of the
template: from pillion controller, or by pillion rollout. spec.rollout does not change.

It prints what changes, and asks. Scripts need --yes. --dry-run only prints the change,
and has the API server check it.

If a file or a GitOps tool applies the template, change it there too. Otherwise it writes
its own content again.

The exit code is 0 also if the template has this content already. It is 1 if there is no
such revision, if you did not confirm the change, or if the API server denies it. It is 2
if the command was called with wrong flags or arguments.

You need the rights to get and patch the template, and to get controllerrevisions in its
namespace, or in Pillion's for a ClusterSidecarTemplate.`,
		Example: `  # Print the change.
  pillion rollout undo log-agent --dry-run

  pillion rollout undo log-agent
  pillion rollout undo log-agent --to-revision 3 --yes

  # A SidecarTemplate.
  pillion rollout undo shop/proxy`,
		PreRunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.revision < 0:
				return fmt.Errorf("--to-revision must be at least 0, not %d", o.revision)
			case !o.yes && !o.dryRun && !cli.IsTerminalInput(cmd.InOrStdin()):
				return errors.New("rollout undo asks before it changes the template, but standard input is not a terminal: use --yes, or --dry-run to print the change")
			}
			return o.parseName(args)
		},
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			kube.Quiet()
			return o.run(cmd)
		}),
	}
	f := cmd.Flags()
	f.Int64Var(&o.revision, "to-revision", 0, "go back to the revision with this `NUMBER` (default: the one before the present content)")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what changes, and change nothing")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	o.addFlags(cmd)
	return cmd
}

func (o *undoOptions) run(cmd *cobra.Command) error {
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	c, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	h, err := c.ReadHistory(ctx, o.name)
	if err != nil {
		return err
	}
	r, err := kube.Earlier(h.Revisions, h.Content, o.revision)
	if err != nil {
		return noEarlier(h, err)
	}
	if r.Has(h.Content) {
		return cli.Say(stdout, "", fmt.Sprintf("%s has the content of revision %d already.", h.ID, r.Revision))
	}
	content, err := h.Fetch(ctx, r)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(stdout, contentDiff(h, r, content)); err != nil {
		return err
	}
	if err := c.GoBack(ctx, h, content, true); err != nil {
		return err
	}
	if o.dryRun {
		return nil
	}
	screen := &rolloutScreen{w: stdout, stderr: stderr}
	if !o.yes && !screen.isYes(cmd.InOrStdin(), fmt.Sprintf("Change %s? [y/N] ", h.ID)) {
		return errors.New("nothing was changed")
	}
	if err := c.GoBack(ctx, h, content, false); err != nil {
		return err
	}
	screen.printLine(terminal.Bold, "%s has the content of revision %d (%s) again.", h.ID, r.Revision, r.Hash)
	if h.Acts {
		screen.printLine("", "The controller updates running pods in the namespaces with the label %s: enabled. To update others:", cluster.LabelRollout)
	} else {
		screen.printLine("", "New pods get it. To update running pods:")
	}
	of := o.name.Name
	if o.name.Namespace != "" {
		of = o.name.Namespace + "/" + of
	}
	screen.printLine(terminal.Cyan, "  %s", o.cluster.Command("rollout --template "+cli.Quote(of)+" --dry-run"))
	screen.printLine("", "If a file or a GitOps tool applies this template, change it there too: otherwise it writes its own content again.")
	return screen.err
}

// contentDiff returns what changes in the content of a template, as a unified diff.
func contentDiff(h *cluster.History, r *kube.Revision, content []byte) string {
	was, is := yamldiff.Encode(yamldiff.Decode(h.Content)), yamldiff.Encode(yamldiff.Decode(content))
	return strings.TrimSuffix(yamldiff.Of(h.ID, was, fmt.Sprintf("revision %d", r.Revision), is), "\n") + "\n"
}
