// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject"
)

func newInject() *cobra.Command {
	o := &injectOptions{}
	cmd := &cobra.Command{
		Use:   "inject",
		Short: "Inject into manifests, offline",
		Long: `Inject does to the pods in manifests what the admission webhook does to pods:
to Pods, Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs,
ReplicationControllers, PodTemplates and lists of them. Every other byte is
written as it was read, in YAML and JSON alike.

The objects go to standard output, and one line for each of them and each
template to standard error. Where anything is wrong nothing is written at all;
with --strict also where a pod cannot have what it asks for.

A namespace is known by a Namespace in the manifests, and by what --namespace-label and
--namespace-annotation say of it, which win. Where a Namespace is in the manifests, its
labels decide whether pods are injected. Otherwise it counts as opted in, unless
--namespace-label says of pillion.dev/inject something else than enabled, or
pillion.dev/inject- for a namespace without the label.`,
		Example: `  # What would be added?
  pillion inject -f web.yaml --templates templates/ | diff web.yaml -

  # From a pipe into the cluster.
  kustomize build . | pillion inject -f - --templates templates/ | kubectl apply -f -

  # In a pipeline: fail where a pod cannot have what it asks for.
  pillion inject -f web.yaml --templates templates/ --strict > injected.yaml

  # As JSON patches, for a namespace that sets a parameter.
  pillion inject -f web.yaml --templates templates/ -o patch \
    --namespace shop --namespace-annotation log-agent.pillion.dev/level=debug`,
		Args:    cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	o.flags(cmd, "yaml", "json", "patch")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "write nothing and exit with 1 where a pod cannot have what it asks for, or asks for what does not exist")
	return cmd
}

func newUninject() *cobra.Command {
	o := &injectOptions{uninject: true}
	cmd := &cobra.Command{
		Use:   "uninject",
		Short: "Take out of manifests what was injected",
		Long: `Uninject undoes inject, for the same kinds of objects. A pod's annotations say
which templates were injected; what these templates added is taken out, and the
annotations too.

Name the templates that were used, and the same namespace. Uninject makes sure
that injecting again would give the pod that it read. Where it would not, or the
template has changed since, nothing is written and the error says why.

It gives back the exact bytes that inject read, comments and white space included.
If the webhook injected the pod, nothing shows what the pod had before just as the
template has it: that is taken out too, unless it is before something else that is
the pod's own. Inject notes this, and the empty values that it fills, in the
annotation pillion.dev/uninject.`,
		Example: `  pillion uninject -f web-injected.yaml --templates templates/ > web.yaml

  # What would a Deployment of the cluster be without its sidecars?
  kubectl get deployment web -o yaml | pillion uninject -f - --templates templates/`,
		Args:    cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	o.flags(cmd, "yaml", "json")
	return cmd
}

func (o *injectOptions) flags(cmd *cobra.Command, outputs ...string) {
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "a `FILE`, a folder of *.yaml, *.yml and *.json, or - for standard input; may be repeated")
	f.StringSliceVarP(&o.templates, "templates", "t", nil, "a file or folder (`PATH`) of templates; may be repeated")
	f.StringVarP(&o.namespace, "namespace", "n", "default", "the `NAMESPACE` of objects that name none")
	f.StringArrayVar(&o.labels, "namespace-label", nil, "a label of the namespaces, `KEY=VALUE`, or KEY- for none; may be repeated")
	f.StringArrayVar(&o.annotations, "namespace-annotation", nil, "an annotation of the namespaces, `KEY=VALUE`, or KEY- for none; may be repeated")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not say what was decided")
	cli.OutputFlag(cmd, &o.output, outputs...)
	o.outputs = outputs
}

// check finds flags that make no sense.
func (o *injectOptions) check() error {
	if len(o.files) == 0 {
		return errors.New("name the manifests: --filename FILE, or --filename - for standard input")
	}
	if len(o.templates) == 0 {
		return errNoTemplatesFlag
	}
	if err := cli.OneOf("output", o.output, o.outputs...); err != nil {
		return err
	}
	_, err := o.about("x")
	return err
}

func pairs(flag string, texts []string) (map[string]string, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	all := make(map[string]string, len(texts))
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--%s must be KEY=VALUE, not %q", flag, text)
		}
		all[key] = value
	}
	return all, nil
}

// run reads everything before it writes anything: half a set of manifests in a
// pipe into a cluster is worse than none.
func (o *injectOptions) run(stdin io.Reader, stdout, stderr io.Writer) error {
	set, err := cli.LoadTemplates(o.templates)
	if err != nil {
		return fmt.Errorf("the templates cannot be used:\n%w", err)
	}
	files, err := o.read(stdin)
	if err != nil {
		return err
	}
	j := newInjection(o, inject.New(set), stderr)
	if o.quiet {
		j.report = io.Discard
	}
	for _, file := range files {
		if err := j.file(file.name, file.data); err != nil {
			return err
		}
	}
	switch {
	case len(j.wrong) > 0:
		return fmt.Errorf("nothing is written (--strict), because of\n%s", strings.Join(j.wrong, "\n"))
	case j.found == 0:
		fmt.Fprintln(j.report, "There is no pod in what was read, and nothing that makes pods.")
	}
	out, err := j.output()
	if err != nil {
		return err
	}
	_, err = cli.ForDocument(stdout).Write(out)
	return err
}
