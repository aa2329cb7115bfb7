// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/inject/policy"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// policyOptions are the flags of policy.
type policyOptions struct {
	templates []string
	only      []string
	as        string
	excluded  []string
	output    string
}

func newPolicy() *cobra.Command {
	o := &policyOptions{}
	cmd := &cobra.Command{
		Use:         "policy",
		Short:       "Write templates as Kubernetes admission policies",
		Annotations: cli.FailsIf("a template cannot be written as a policy"),
		Long: `Policy writes templates as Kubernetes admission policies. The API server
evaluates these policies itself, without a webhook.

  --as validating  One ValidatingAdmissionPolicy for each required template. The
                   policy denies pods, or warns about them, as spec.validate.mode
                   says. It finds that a container of the template is missing, is
                   in the wrong list or lacks its restartPolicy. If
                   spec.validate.protect names image, it also finds another image.
                   It checks nothing else. It also applies while Pillion is down,
                   and no pod can opt out. In mode Warn, it only warns about a pod
                   that has nothing of the template. The webhook denies that pod,
                   unless --uninjected-pods=Warn is set.
  --as mutating    One MutatingAdmissionPolicy for each template (Kubernetes 1.36
                   or later). It adds what the webhook adds.

The policies apply to the same pods as the webhooks. Labels, annotations and
parameters have the same meaning. If a template uses something that a policy
cannot express, the command prints the reasons and writes nothing.

A mutating policy leaves out some pods that the webhook injects into:
  * A pod with the annotation <template>.pillion.dev/customize is left unchanged.
  * A pod that has a container of the template's name is left unchanged, unless it
    has the annotation <template>.pillion.dev/injected. The policy never adds to
    such a container.
  * Mount paths are compared as strings, without a slash at the end. If a container
    that gets a mount has a path with // or /../, the pod is left unchanged.
  * A hostPort counts as used even if an init container uses it, or another address.

It also differs from the webhook in what users see:
  * It does not report why nothing was injected. Use pillion inject on the manifest.
  * The API server runs policies in any order. Containers are in the order of the
    templates, but volumes, mounts and variables of several templates may not be.
    No expression sees containers of templates, but it may see something else that
    another template added. Then the command prints a note to standard error.

The same templates always give the same objects. If you remove or rename a template,
delete its policy. All policies have the label
app.kubernetes.io/managed-by=pillion-policy.`,
		Example: `  # Enforce the required templates, whatever happens to Pillion.
  pillion policy --templates templates/ | kubectl apply -f -

  # Inject two templates with no webhook at all.
  pillion policy -t templates/ --as mutating --template log-agent,proxy | kubectl apply -f -

  # What would change in the cluster?
  pillion policy --templates templates/ | kubectl diff -f -`,
		Args: cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error {
			if len(o.templates) == 0 {
				return errNoTemplatesFlag
			}
			return cluster.CheckNamespaces(o.excluded...)
		},
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	f := cmd.Flags()
	f.StringSliceVarP(&o.templates, "templates", "t", nil, "use the templates in this file or folder (`PATH`), or - for standard input; may be repeated")
	f.StringSliceVar(&o.only, "template", nil, "write only the template with this `NAME` (default: all templates); may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("template", cluster.CompleteTemplateFiles(&o.templates)) // the flag exists
	f.StringVar(&o.as, "as", "validating", "write policies of this kind:")
	cli.Choices(cmd, "as", "validating", "mutating")
	f.StringSliceVar(&o.excluded, "exclude-namespace", nil, "exclude this `NAMESPACE`, in addition to the system namespaces; may be repeated")
	cli.OutputFlag(cmd, &o.output, "yaml", "json")
	return cmd
}

// run writes all objects, or none.
func (o *policyOptions) run(stdin io.Reader, stdout, stderr io.Writer) error {
	set, err := cli.LoadTemplates(stdin, o.templates)
	if err != nil {
		return err
	}
	chosen, err := o.chosenTemplates(set)
	if err != nil {
		return err
	}
	options := policy.Options{Templates: o.only, Excluded: o.excluded}
	express := policy.Mutating
	if o.as == "validating" {
		express = policy.Validating
		if err := checkSomeRequired(chosen, stderr); err != nil {
			return err
		}
	}
	objects, err := express(set, options)
	if problems := policy.Problems(nil); errors.As(err, &problems) {
		fmt.Fprintln(stderr, cli.Fold(stderr, problems.Error()))
		return cli.ErrTold
	} else if err != nil {
		return err
	}
	if o.as == "mutating" {
		for _, note := range policy.Notes(set, options) {
			fmt.Fprintln(stderr, cli.Fold(stderr, note))
		}
	}
	out, err := policyOutput(o.output, objects)
	if err != nil {
		return err
	}
	_, err = cli.ForDocument(stdout).Write(out)
	return err
}

// checkSomeRequired prints the names of the templates that are not required. It returns an error if none is
// required.
func checkSomeRequired(chosen []*templates.Template, stderr io.Writer) error {
	some := false
	for _, t := range chosen {
		some = some || t.Spec.Required
		if !t.Spec.Required {
			fmt.Fprintln(stderr, cli.Fold(stderr, "template "+t.Name+": left out, because it is not required"))
		}
	}
	if !some {
		return errors.New("there is nothing to enforce, because no template has required: true; --as mutating does not need it")
	}
	return nil
}

// chosenTemplates returns the templates that --template names, or all.
func (o *policyOptions) chosenTemplates(set *templates.Set) ([]*templates.Template, error) {
	if len(o.only) == 0 {
		return set.Templates, nil
	}
	byName, names := map[string]*templates.Template{}, []string{}
	for _, t := range set.Templates {
		byName[t.Name], names = t, append(names, t.Name)
	}
	var chosen []*templates.Template
	for _, name := range o.only {
		t := byName[name]
		if t == nil {
			return nil, cli.UsageError{Err: fmt.Errorf("there is no template %q%s", name, problem.DidYouMean(name, names))}
		}
		chosen = append(chosen, t)
	}
	return chosen, nil
}

// policyOutput returns objects as a YAML stream or a List.
func policyOutput(output string, objects []runtime.Object) ([]byte, error) {
	if output == "yaml" {
		return policy.YAML(objects)
	}
	items, err := policy.Unstructured(objects)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = cli.WriteJSON(&out, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	return out.Bytes(), err
}
