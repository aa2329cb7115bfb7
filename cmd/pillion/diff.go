// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/report/diff"
	"github.com/pillion-dev/pillion/templates"
)

// diffOptions are the flags of diff.
type diffOptions struct {
	twoSets

	cluster cluster.Options
	scope   cluster.NamespaceFlags
	diffs   int
	output  string
}

const diffHelp = `Diff reports what new or changed templates would do to new pods, before you apply them.
It changes nothing.

In a cluster, it compares the templates that Pillion uses now with the same templates
after kubectl apply of the files: a template of a file replaces the one with the same
name, and --without removes one. It reads the pods and workloads of the kubeconfig's
namespace, or of those of --namespace. With --all-namespaces, it reads those of all
namespaces that opted in, and of pods that opted in themselves. If Pillion runs outside
of the cluster, or if you may not read its templates, --templates names them.

With --with, it uses no cluster. It compares what the workloads, pods and namespaces of
the files would get by the templates of --templates and of --with: all of them, or those
of --namespace. Objects without a namespace are in that of --namespace, or in the
kubeconfig's.

For each template, diff counts the pods of workloads that

  get it    their new pods have it, and have not had it before
  lose it   the opposite
  change    in place: only images and resources of its own containers differ, which
            Kubernetes can change in running pods; all other changes need new pods
  rejected  new pods are rejected and were not before: by Pillion, Pod Security, a
            LimitRange or a quota
  accepted  the opposite
  fails     new pods should get it and cannot, for example because of a conflict

Then it prints one diff for each distinct change, with an example.

Diff starts from the pod template of the workload. For a pod without a workload, and for
one of an owner that has no pod template that diff knows, it starts from a running pod
without what was injected. It compares these by both sets of templates. So it does not
report how running pods differ from the templates: that is what pillion status does. A
workload without pods counts as 0 pods. In files, a workload has as many pods as its
replicas. A quota rejects pods if it has not enough left for what all new pods of the
namespace need more than the old ones.

-o json and -o yaml write one object: summary, changed, compared, templates (with
causes), owners (with effects), diffs, problems and notes.

The exit code is 0 if nothing changes for new pods, 1 if something does, and 2 if there
was an error, or if diff could not read everything.`

func newDiff() *cobra.Command {
	o := &diffOptions{}
	failing := cli.FailsIf("something would change for new pods; errors exit with 2")
	failing[cli.Trouble] = "2"
	cmd := &cobra.Command{
		Use:         "diff (-f FILE | --without NAME | -f FILE --with PATH)",
		Short:       "Report what new templates would change",
		Annotations: failing,
		Long:        diffHelp,
		Example: `  # Before kubectl apply -f log-agent.yaml.
  pillion diff -f log-agent.yaml --all-namespaces

  # Only in one namespace, and without one of the templates.
  pillion diff -f templates/ --without old-agent --namespace shop

  # Without a cluster: what does a branch change?
  pillion diff -f manifests/ --templates main/templates --with branch/templates

  # For a script: the workloads whose pods cannot be changed in place.
  pillion diff -f log-agent.yaml -A -o json |
    jq -r '.owners[] | select(.effects[].how == "new pod") | "\(.namespace) \(.kind)/\(.name)"'`,
		Args:    cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return o.checkFlags() },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			kube.Quiet()
			return o.run(ctx, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "read templates, or with --with manifests, from this `FILE`, a folder, or - for standard input; may be repeated")
	f.StringSliceVarP(&o.old, "templates", "t", nil, "the old templates are in this file or folder (`PATH`), or - for standard input; may be repeated (default: the cluster's; with --with: none)")
	f.StringSliceVar(&o.with, "with", nil, "compare without a cluster; the new templates are in this file or folder (`PATH`), or - for standard input; may be repeated")
	f.StringSliceVar(&o.without, "without", nil, "remove the template with this `NAME`, or NAMESPACE/NAME; may be repeated")
	o.scope.Add(cmd, &o.cluster, "compare the pods of")
	f.IntVar(&o.diffs, "diffs", 10, "print at most this `NUMBER` of diffs")
	o.cluster.Flags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("without", o.cluster.CompleteTemplates(new([]string{}))) // of the cluster
	cli.OutputFlag(cmd, &o.output, "text", "json", "yaml")
	return cmd
}

func (o *diffOptions) checkFlags() error {
	stdin := 0
	for _, path := range slices.Concat(o.files, o.old, o.with) {
		if path == "-" {
			stdin++
		}
	}
	switch {
	case len(o.with) > 0 && len(o.files) == 0:
		return errors.New("name the manifests: --filename FILE, or --filename - for standard input")
	case len(o.files)+len(o.without) == 0:
		return errors.New("name the new templates: --filename FILE, or --filename - for standard input; or a template to remove: --without NAME")
	case stdin > 1:
		return errors.New("standard input can be only one of --filename, --templates and --with")
	case o.diffs < 0:
		return fmt.Errorf("--diffs must be at least 0, not %d", o.diffs)
	}
	return o.scope.Complete(nil)
}

func (o *diffOptions) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	compare := o.inCluster
	if len(o.with) > 0 {
		var err error
		if o.namespace, err = o.cluster.NamespaceOr(cmp.Or(append(o.scope.Named(), "")...)); err != nil {
			return err
		}
		o.namespaces, compare = o.scope.Named(), o.compareFiles
	}
	report, err := compare(ctx, stdin, stderr)
	if err != nil {
		return err
	}
	if o.output == "text" {
		colour, width := cli.WantsColour(stdout), cli.WidthOf(stdout)
		if colour {
			stdout = cli.Raw(stdout) // the report is escaped already, apart from its colors
		}
		_, err = io.WriteString(stdout, report.Text(width, colour, o.diffs))
	} else {
		err = cli.Print(stdout, o.output, report, nil)
	}
	switch {
	case err != nil:
		return err
	case len(report.Problems) > 0:
		return cli.ErrIncomplete
	case report.Changed.Owners > 0:
		return cli.ErrTold
	}
	return nil
}

// inCluster compares the templates of the cluster with those after the change.
func (o *diffOptions) inCluster(ctx context.Context, stdin io.Reader, stderr io.Writer) (*diff.Report, error) {
	set := templates.NewSet(nil)
	if len(o.files) > 0 {
		var err error
		if set, err = cli.LoadPart(stdin, o.files); err != nil {
			return nil, err
		}
	}
	c, err := o.cluster.Connect()
	if err != nil {
		return nil, err
	}
	namespaces := o.scope.Of(c)
	c.About(namespaces...)
	report, err := c.Compare(ctx, cluster.Change{Files: set, Without: o.without, Namespaces: namespaces, Installed: o.old}, stderr)
	if err == nil {
		report.Notes = append(report.Notes, o.scope.Notes()...)
	}
	return report, err
}
