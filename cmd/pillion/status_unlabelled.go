// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/survey"
	"github.com/pillion-dev/pillion/templates"
)

// unlabelledOptions are the flags of status unlabelled.
type unlabelledOptions struct {
	cluster    clusterOptions
	namespaces []string
	output     string
}

func newUnlabelled() *cobra.Command {
	o := &unlabelledOptions{}
	cmd := &cobra.Command{
		Use:   "unlabelled [NAMESPACE...]",
		Short: "List the namespaces that have not opted in, why, and what helps",
		Long: `Unlabelled lists the namespaces that have not opted in, or those of them that you name.
For each it prints why: it has no label pillion.dev/inject, a label that means nothing,
only the label shadow, or the label, and the API server does not call Pillion all the
same; and the command that opts it in.

It prints no command for namespaces that have to stay outside (Kubernetes' own,
Pillion's own, those that --exclude-namespace or the webhooks' selectors exclude, and
those of webhooks that Pillion itself waits for), for those that opted out (disabled),
or while Pillion itself has a problem.

-o json and -o yaml write one object: summary, namespaces (namespace, code, why,
intended, command), problems, doubts and notes. -o name writes the namespaces that
could opt in, a line each, as kubectl does.

The exit code is 0 if every namespace has opted in or is outside on purpose; 1 if one
could opt in and has not, has a label that means nothing or has no effect, if something
is wrong with Pillion itself, or if the cluster could not be read; 2 if the command was
called wrongly. With -o name it is 0.`,
		Example: `  pillion status unlabelled
  pillion status unlabelled shop

  # Opt them all in.
  pillion status unlabelled -o name |
    xargs -r kubectl label --overwrite pillion.dev/inject=enabled`,
		PreRunE: func(_ *cobra.Command, args []string) error {
			o.namespaces = append(o.namespaces, args...)
			return oneOf("output", o.output, statusOutputs()...)
		},
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			quiet()
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	cmd.Flags().StringSliceVarP(&o.namespaces, "namespace", "n", nil, "a `NAMESPACE` to look at, as if it were an argument; may be repeated")
	o.cluster.flags(cmd, nil)
	cmd.ValidArgsFunction = o.cluster.completeNamespaces
	outputFlag(cmd, &o.output, statusOutputs()...)
	return cmd
}

func (o *unlabelledOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	c, err := o.cluster.connect()
	if err != nil {
		return err
	}
	r, err := (&podLister{c, newProgress(stderr)}).outsiders(ctx, o.namespaces)
	if err != nil {
		return err
	}
	r.Run(o.cluster.commands(nil, nil))
	switch o.output {
	case "name":
		for _, problem := range r.Problems {
			fmt.Fprintln(stderr, fold(stderr, "pillion: label nothing yet: "+problem))
		}
		for i := range r.Namespaces {
			if r.Namespaces[i].Command != "" && !r.Namespaces[i].Intended {
				fmt.Fprintln(stdout, "namespace/"+r.Namespaces[i].Namespace)
			}
		}
		return nil
	case "json":
		err = writeJSON(stdout, r)
	case "yaml":
		err = writeYAML(stdout, r)
	default:
		_, err = io.WriteString(stdout, r.Text(widthOf(stdout)))
	}
	if err == nil && len(r.Names())+len(r.Problems) > 0 {
		return errTold
	}
	return err
}

// commands are those for the same cluster; that of status repeats these arguments, and all the templates.
func (o *clusterOptions) commands(arguments, paths []string) survey.Commands {
	var files []string
	for _, path := range paths {
		files = append(files, "--templates "+quote(path))
	}
	program := o.cmd.Root().CommandPath()
	flags := o.given("kubeconfig", "context", "system-namespace")
	join := func(parts ...[]string) string { return strings.Join(slices.Concat(parts...), " ") }
	return survey.Commands{
		Status:     join([]string{program, "status"}, arguments, files, flags),
		Unlabelled: join([]string{program, "status", "unlabelled"}, flags),
		Explain:    join([]string{program, "explain"}, files, flags),
		Kubectl:    o.kubectl(),
	}
}

// outsiders are the namespaces that have not opted in, of those that are named or of all.
func (l *podLister) outsiders(ctx context.Context, names []string) (*survey.Outsiders, error) {
	k := &look{podLister: l, notes: map[string]bool{}, report: survey.NewReport(&templates.Set{})}
	d, err := l.deployed(ctx, k.note)
	if err != nil {
		return nil, err
	}
	k.injector = inject.New(&templates.Set{}, d.options.excluded...)
	if err := k.webhooks(ctx); err != nil {
		return nil, err
	}
	var found []survey.Outside
	of := 0
	each := func(ns *unstructured.Unstructured) error {
		of++
		if o := survey.NewOutside(k.scope(ns), k.known(ns)); o != nil {
			found = append(found, *o)
		}
		return nil
	}
	if len(names) > 0 {
		err = k.eachNamed(ctx, names, each)
	} else {
		err = k.pages(ctx, k.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), "", each, func() { found, of = nil, 0 })
		err = forbidden(err, "list", "namespaces", "", "name those that you may read: pillion status unlabelled NAMESPACE...")
	}
	if err != nil {
		return nil, err
	}
	k.usable(ctx, d)
	r := survey.NewOutsiders(found, of)
	r.Problems, r.Doubts, r.Notes = k.report.Problems, k.report.Doubts, slices.Sorted(maps.Keys(k.notes))
	return r, nil
}

// usable finds out whether the cluster's templates can be used: if not, pods that opt in may be denied.
func (k *look) usable(ctx context.Context, d *deployed) {
	var wrong unsure
	if _, err := d.set(ctx, &wrong); err != nil {
		text := "The templates cannot be used: " + oneLine(err)
		if apierrors.IsForbidden(err) || d.guessed {
			wrong.doubts = append(wrong.doubts, text)
		} else {
			wrong.problems = append(wrong.problems, text)
		}
	}
	k.report.Problems, k.report.Doubts = append(k.report.Problems, wrong.problems...), append(k.report.Doubts, wrong.doubts...)
}

// eachNamed reads namespaces that the user named, each once.
func (k *look) eachNamed(ctx context.Context, names []string, each func(*unstructured.Unstructured) error) error {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	k.found = len(names)
	for _, name := range names {
		object, err := k.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("there is no namespace %s", name)
		case err != nil:
			return forbidden(err, "get", "namespaces", "", "name others")
		}
		if err := each(object); err != nil {
			return err
		}
	}
	return nil
}

// webhooks reads what is called for pods.
func (k *look) webhooks(ctx context.Context) error {
	k.mutation, k.validation = k.podLister.mutation(ctx, k.note), k.podLister.validation(ctx, k.note)
	k.awaited = map[string]string{}
	of := k.labels(ctx)
	optedIn := func(namespace string) (map[string]string, bool) { // as if all had
		labels, known := of(namespace)
		if known && namespace != k.system {
			with := map[string]string{}
			maps.Copy(with, labels)
			with[inject.LabelInject] = inject.Enabled
			return with, known
		}
		return labels, known
	}
	for _, loop := range survey.Loops(k.mutation, k.validation, k.system, optedIn) {
		k.awaited[loop.Namespace] = fmt.Sprintf("the %s runs there and is called for Pillion's own pods: if it had to wait for Pillion, neither would start", loop.Webhook)
	}
	return k.installed(ctx, k.mutation)
}

// labels gives those of a namespace, and whether they can be read.
func (l *podLister) labels(ctx context.Context) func(namespace string) (map[string]string, bool) {
	return func(namespace string) (map[string]string, bool) {
		ns, err := get[corev1.Namespace](ctx, l.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), namespace)
		return ns.Labels, err == nil
	}
}

// known is what decides about a namespace beside its labels.
func (k *look) known(ns *unstructured.Unstructured) survey.Known {
	known := survey.Known{Awaited: k.awaited[ns.GetName()], Deleted: ns.GetDeletionTimestamp() != nil}
	switch name := ns.GetName(); {
	case name == k.system:
		known.Excluded = "Pillion itself runs in it"
	case slices.Contains(inject.SystemNamespaces(), name):
		known.Excluded = "nothing is ever injected there, so that the cluster does not depend on Pillion"
	case k.injector.Excludes(name):
		known.Excluded = "the flag --exclude-namespace of Pillion excludes it"
	}
	return known
}
