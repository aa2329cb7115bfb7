// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/manifest"
	"github.com/pillion-dev/pillion/inject"
)

func newInject() *cobra.Command {
	o := &injectOptions{}
	cmd := &cobra.Command{
		Use:         "inject",
		Short:       "Inject sidecars into manifests",
		Annotations: cli.FailsIf("with `--strict`, a pod cannot get a template that it requests or that is a default"),
		Long: `Inject changes the pods in manifests as the admission webhook changes pods. It
supports Pods, Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs,
ReplicationControllers, PodTemplates and lists of them, in YAML and JSON. Everything
else stays unchanged, byte for byte. Other kinds may not accept sidecars. If an object
of such a kind has a pod template, inject prints that it is not injected, and the flag
--pod-template-path with which it is.

Inject writes the objects to standard output. It writes one line for each object and
template to standard error. If there is an error, it writes only the error. With
--strict, it is also an error if a pod cannot get what it requests, if inject does not
know a kind with a pod template, or if the input has no pods.

Without --templates, inject uses the templates of the cluster of your kubeconfig. It
reads nothing else there.

The labels and annotations of a namespace come from a Namespace in the manifests.
--namespace-label and --namespace-annotation override them. If the manifests contain
the Namespace, its labels decide whether pods are injected. Otherwise the namespace
counts as opted in, unless --namespace-label sets pillion.dev/inject to a value other
than enabled, or removes it (pillion.dev/inject-).

ServiceAccounts in the manifests are used too, for templates that read them.
--service-account-annotation overrides their annotations.`,
		Example: `  # What would be added?
  pillion inject -f web.yaml --templates templates/ | diff web.yaml -

  # From a pipe into the cluster.
  kustomize build . | pillion inject -f - --templates templates/ | kubectl apply -f -

  # With the templates of the cluster.
  pillion inject -f web.yaml --context staging

  # In a pipeline: fail if a pod cannot get what it requests.
  pillion inject -f web.yaml --templates templates/ --strict > injected.yaml

  # Also the pods of a kind that is not one of Kubernetes' own.
  pillion inject -f web.yaml -t templates/ --pod-template-path Rollout=spec.template

  # As JSON patches, for a namespace that sets a parameter.
  pillion inject -f web.yaml --templates templates/ -o patch \
    --namespace shop --namespace-annotation log-agent.pillion.dev/level=debug`,
	}
	o.completeCommand(cmd, "yaml", "json", "patch")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "write nothing and exit with 1 if a pod cannot get what it requests, requests something that does not exist, or if there is no pod")
	return cmd
}

func newUninject() *cobra.Command {
	o := &injectOptions{uninject: true}
	cmd := &cobra.Command{
		Use:         "uninject",
		Short:       "Remove injected sidecars from manifests",
		Annotations: cli.FailsIf("what was injected has changed since, or the template has"),
		Long: `Uninject reverses inject for the same kinds of objects. A pod's annotations list the
templates that were injected. Uninject removes what these templates added, and the
annotations.

Use the same templates and the same namespace as before. Without --templates, uninject
uses the templates of the cluster of your kubeconfig. Uninject checks that inject
would produce its input again. If it would not, or if a template has changed since,
uninject writes nothing and prints the reason.

Uninject restores the exact bytes that inject read, including comments and white space.
For this, inject writes the annotation pillion.dev/uninject. It records which values of
the template the pod already had, and which empty values inject filled. If the templates
read what other templates add, it also records what was added.

If the webhook injected the pod, there is no such annotation. Uninject then also removes
values of the original pod that are the same as in the template, unless they come before
other values of the original pod.`,
		Example: `  pillion uninject -f web-injected.yaml --templates templates/ > web.yaml

  # Print a Deployment of the cluster without its sidecars.
  kubectl get deployment web -o yaml | pillion uninject -f - --templates templates/`,
	}
	o.completeCommand(cmd, "yaml", "json")
	return cmd
}

// completeCommand adds to a command what inject and uninject have in common.
func (o *injectOptions) completeCommand(cmd *cobra.Command, outputs ...string) {
	cmd.Args = cli.NoArguments
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.checkFlags() }
	cmd.RunE = cli.Action(func(cmd *cobra.Command, _ []string) error {
		return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "read this `FILE`, a folder of *.yaml, *.yml and *.json, or - for standard input; may be repeated")
	f.StringSliceVarP(&o.templates, "templates", "t", nil, "use the templates in this file or folder (`PATH`), or - for standard input; may be repeated (default: the cluster's)")
	o.cluster.Flags(cmd)
	o.cluster.NamespaceFlag(cmd, &o.namespace, "use this `NAMESPACE` for objects without one")
	f.StringArrayVar(&o.labels, "namespace-label", nil, "set a label of the namespaces: `KEY=VALUE`, or KEY- to remove it; may be repeated")
	f.StringArrayVar(&o.annotations, "namespace-annotation", nil, "set an annotation of the namespaces: `KEY=VALUE`, or KEY- to remove it; may be repeated")
	f.StringArrayVar(&o.accountAnnotations, accountFlag, nil, "set an annotation of the ServiceAccounts: `K=V`, or K- to remove it; may be repeated")
	f.StringArrayVar(&o.podPathValues, podPathFlag, nil, "change the pods of a kind that Pillion does not know: `KIND=PATH`, for example Rollout=spec.template; may be repeated")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not print the decisions")
	cli.OutputFlag(cmd, &o.output, outputs...)
}

// checkFlags returns an error for flags that contradict each other.
func (o *injectOptions) checkFlags() error {
	if len(o.files) == 0 {
		return errors.New("name the manifests: --filename FILE, or --filename - for standard input")
	}
	if slices.Contains(o.files, "-") && slices.Contains(o.templates, "-") {
		return errors.New("standard input cannot be both the manifests and the templates")
	}
	var err error
	if o.podPaths, err = manifest.ParsePaths(o.podPathValues); err != nil {
		return fmt.Errorf("--%s: %w", podPathFlag, err)
	}
	_, err = o.namespaceFor("x")
	return errors.Join(err, cluster.CheckNamespaces(o.namespace))
}

// errNoPods is the error of commands that need a pod. The program that wrote the manifests has probably failed.
var errNoPods = errors.New("the input has no pods and no pod templates")

func parsePairs(flag string, texts []string) (map[string]string, error) {
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

// loadInjector returns an injector with the named templates, or with those of the cluster and notes about them. It is
// an error if some of these are unknown.
func (o *injectOptions) loadInjector(ctx context.Context, stdin io.Reader) (*inject.Injector, []string, error) {
	if len(o.templates) > 0 {
		set, err := cli.LoadTemplates(stdin, o.templates)
		if err != nil {
			return nil, nil, err
		}
		return inject.New(set), nil, nil
	}
	c, err := o.cluster.Connect()
	if err != nil && !o.cluster.Selects() {
		return nil, nil, cli.UsageError{Err: errors.New("name the templates: --templates PATH, or the cluster that has them: --kubeconfig FILE")}
	}
	if err != nil {
		return nil, nil, err
	}
	return c.Injector(ctx)
}

// run reads everything before it writes anything. An incomplete set of manifests in a pipe to
// a cluster would be worse than none.
func (o *injectOptions) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	injector, notes, err := o.loadInjector(ctx, stdin)
	if err != nil {
		return err
	}
	if o.namespace, err = o.cluster.NamespaceOr(o.namespace); err != nil {
		return err
	}
	files, err := o.readFiles(stdin)
	if err != nil {
		return err
	}
	j := newInjection(o, injector, stderr)
	for _, note := range notes {
		j.printLine(note)
	}
	for _, file := range files {
		if err := j.changeFile(file.name, file.data); err != nil {
			return err
		}
	}
	switch {
	case len(j.wrong) > 0:
		return fmt.Errorf("nothing is written (--strict), because of\n%s", strings.Join(j.wrong, "\n"))
	case j.found == 0 && o.strict:
		return errNoPods
	case j.found == 0:
		j.printLine("The input has no pods and no pod templates, so it stays unchanged. If a controller makes pods from it in its own way, as of a Tekton TaskRun, the webhook injects into these pods.")
	}
	out, err := j.encodeOutput()
	if err != nil {
		return err
	}
	if !o.quiet {
		if _, err := io.WriteString(stderr, j.told.String()); err != nil {
			return err
		}
	}
	_, err = cli.ForDocument(stdout).Write(out)
	return err
}
