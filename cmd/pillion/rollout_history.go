// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/report/yamldiff"
	"github.com/pillion-dev/pillion/templates/problem"
)

// templateOptions are the flags that name a template object.
type templateOptions struct {
	cluster cluster.Options
	name    types.NamespacedName
}

func (o *templateOptions) addFlags(cmd *cobra.Command) {
	o.cluster.Flags(cmd)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.cluster.CompleteTemplateObjects(cmd, args, typed)
	}
}

// parseName reads the only argument: NAME of a ClusterSidecarTemplate, or NAMESPACE/NAME of a SidecarTemplate.
func (o *templateOptions) parseName(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name one template, not %d", len(args))
	}
	o.name = types.NamespacedName{Name: args[0]}
	if namespace, name, ok := strings.Cut(args[0], "/"); ok {
		o.name = types.NamespacedName{Namespace: namespace, Name: name}
	}
	if o.name.Name == "" {
		return errors.New("the name of the template is empty")
	}
	return cluster.CheckNamespaces(o.name.Namespace)
}

// historyOptions are the flags of rollout history.
type historyOptions struct {
	templateOptions

	revision int64
	output   string
}

func newRolloutHistory() *cobra.Command {
	o := &historyOptions{}
	cmd := &cobra.Command{
		Use:         "history [NAMESPACE/]TEMPLATE",
		Short:       "List the last revisions of a template",
		Annotations: cli.FailsIf("the template or its history cannot be read"),
		Long: `History lists the last revisions of a template object. Pillion controller keeps them, by
default ten, if it has the component rollout.

A revision is a content of the template without spec.rollout. HASH is what pods record in
their annotation NAME.pillion.dev/injected, and PODS is how many record it. If the
template gets the content of an earlier revision again, that one gets a new number.

--revision prints the content of one revision as YAML, or with -o json as JSON.

-o json and -o yaml write one object: template, and revisions (revision, hash, changed,
current, images, pods, problem). Without the right to list pods, pods is absent. A revision
has a problem if somebody has deleted or changed its content, so that undo cannot use it.

The exit code is 0 also if there is no history yet. It is 1 if the template or its history
cannot be read, and 2 if the command was called with wrong flags or arguments.

You need the rights to get the template, and to get controllerrevisions in its namespace,
or in Pillion's for a ClusterSidecarTemplate.`,
		Example: `  pillion rollout history log-agent
  pillion rollout history log-agent --revision 3

  # A SidecarTemplate.
  pillion rollout history shop/proxy`,
		PreRunE: func(_ *cobra.Command, args []string) error {
			if o.revision < 0 {
				return fmt.Errorf("--revision must be at least 0, not %d", o.revision)
			}
			return o.parseName(args)
		},
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			kube.Quiet()
			return o.run(cmd.Context(), cmd.OutOrStdout())
		}),
	}
	cmd.Flags().Int64Var(&o.revision, "revision", 0, "print the content of the revision with this `NUMBER`")
	o.addFlags(cmd)
	cli.OutputFlag(cmd, &o.output, "text", "json", "yaml")
	return cmd
}

// templateHistory is what history prints. Its JSON is a stable format for scripts.
type templateHistory struct {
	Template  string             `json:"template"`
	Revisions []templateRevision `json:"revisions"`
}

// templateRevision is a revision of a template.
type templateRevision struct {
	Revision int64     `json:"revision"`
	Hash     string    `json:"hash"`
	Changed  time.Time `json:"changed"`
	Current  bool      `json:"current,omitempty"`
	Images   []string  `json:"images,omitempty"`
	Pods     *int      `json:"pods,omitempty"`
	Problem  string    `json:"problem,omitempty"` // why its content cannot be used
}

func (o *historyOptions) run(ctx context.Context, stdout io.Writer) error {
	c, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	h, err := c.ReadHistory(ctx, o.name)
	if err != nil {
		return err
	}
	if o.revision > 0 {
		return o.printRevision(ctx, h, stdout)
	}
	pods, err := c.CountPods(ctx, h)
	if err != nil {
		return err
	}
	out := &templateHistory{Template: h.ID, Revisions: []templateRevision{}}
	for _, r := range slices.Backward(h.Revisions) {
		one := templateRevision{Revision: r.Revision, Hash: r.Hash, Changed: r.Changed.UTC(), Current: r.Has(h.Content)}
		if _, err := h.Fetch(ctx, r); errors.Is(err, kube.ErrLost) {
			one.Problem = err.Error()
		} else if err != nil {
			return err
		}
		one.Images = r.Images
		if pods != nil {
			one.Pods = new(pods[r.Hash])
		}
		out.Revisions = append(out.Revisions, one)
	}
	return cli.Print(stdout, o.output, out, out.text)
}

// printRevision prints the content of one revision.
func (o *historyOptions) printRevision(ctx context.Context, h *cluster.History, stdout io.Writer) error {
	r, err := kube.Earlier(h.Revisions, h.Content, o.revision)
	if err != nil {
		return noEarlier(h, err)
	}
	content, err := h.Fetch(ctx, r)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return cli.WriteJSON(stdout, json.RawMessage(content))
	}
	_, err = io.WriteString(stdout, yamldiff.Encode(yamldiff.Decode(content)))
	return err
}

// noEarlier explains an error of [kube.Earlier].
func noEarlier(h *cluster.History, err error) error {
	switch {
	case errors.Is(err, kube.ErrNoEarlier) && len(h.Revisions) == 0:
		return fmt.Errorf("%s has no history: pillion controller keeps one from the moment when it has the component rollout", h.ID)
	case errors.Is(err, kube.ErrNoEarlier):
		return fmt.Errorf("%s has no earlier revision: it has not changed since the history began", h.ID)
	}
	return fmt.Errorf("%s: %w", h.ID, err)
}

func (h *templateHistory) text() string {
	if len(h.Revisions) == 0 {
		return h.Template + " has no history yet. Pillion controller keeps one from the moment when it has the component rollout.\n"
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(&out, "%s\n", h.Template)
	fmt.Fprintln(table, "REVISION\tHASH\tCHANGED\tPODS\tIMAGES")
	current, problems := int64(0), ""
	for i := range h.Revisions {
		r := &h.Revisions[i]
		pods := "?"
		if r.Pods != nil {
			pods = strconv.Itoa(*r.Pods)
		}
		if r.Current {
			current = r.Revision
		}
		if r.Problem != "" {
			problems += problem.OneLine(r.Problem) + ".\n"
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", r.Revision, r.Hash, r.Changed.Format(time.RFC3339), pods, problem.OneLine(strings.Join(r.Images, ", ")))
	}
	_ = table.Flush() // a strings.Builder has no errors
	if current != 0 {
		fmt.Fprintf(&out, "Revision %d is the present content.\n", current)
	} else {
		out.WriteString("The present content is not in the history yet.\n")
	}
	return out.String() + problems
}
