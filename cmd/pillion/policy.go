// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject/policy"
	"github.com/pillion-dev/pillion/templates"
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
		Use:   "policy",
		Short: "Write templates as admission policies",
		Long: `Policy writes templates as admission policies of Kubernetes, which the API server
evaluates itself, with no server in the path:

  --as validating  a ValidatingAdmissionPolicy (Kubernetes 1.30 or later) for each
                   required template. It refuses, or warns about, as
                   spec.validate.mode says, pods that lack one of the template's
                   containers, have it in the wrong list or without its
                   restartPolicy, or, where spec.validate.protect names image, with
                   another image. It looks at nothing else. It holds while Pillion
                   is down, too, and no pod can opt out of it. Of a pod that has
                   nothing of a template in the mode Warn it warns; the webhook
                   denies that pod, unless --uninjected-pods=Warn is set.
  --as mutating    a MutatingAdmissionPolicy (Kubernetes 1.36 or later) for each
                   template. It injects what the webhook injects, with no webhook.

Both are for the same pods as the webhooks: labels, annotations and parameters
mean the same. What a policy cannot say is refused with the reasons, and then
nothing is written.

Where a mutating policy is more careful than the webhook:
  * A pod with the annotation <template>.pillion.dev/customize is left alone.
  * A container of the template's name that is there already is never filled in;
    without the annotation <template>.pillion.dev/injected the pod is left alone.
  * The paths of mounts are compared as they are written, a slash at the end aside;
    where a container to be mounted into has one with // or /../ the pod is left alone.
  * A port of the node counts as taken by init containers, and at any address.
  * Nobody is told why nothing was injected: pillion inject says it for a manifest.
  * The API server runs policies in no certain order. Containers come out in the
    order of the templates all the same; what several templates add to one list of
    volumes, mounts or variables may not. What a template's expressions read may
    have been added by another one already; a line on standard error says which.

The objects are the same for the same templates. After a template was removed or
renamed, delete its policy: all have the label
app.kubernetes.io/managed-by=pillion-policy.`,
		Example: `  # Enforce the required templates, whatever happens to Pillion.
  pillion policy --templates templates/ | kubectl apply -f -

  # Inject two templates with no webhook at all.
  pillion policy -t templates/ --as mutating --template log-agent,proxy | kubectl apply -f -

  # What would change in the cluster?
  pillion policy --templates templates/ | kubectl diff -f -`,
		Args:    noArguments,
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	f := cmd.Flags()
	f.StringSliceVarP(&o.templates, "templates", "t", nil, "a file or folder (`PATH`) of templates; may be repeated")
	f.StringSliceVar(&o.only, "template", nil, "the `NAME` of a template to write (default: all); may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("template", completeTemplateFiles(&o.templates)) // of a flag that is there
	f.StringVar(&o.as, "as", "validating", "write policies that are")
	choices(cmd, "as", "validating", "mutating")
	f.StringSliceVar(&o.excluded, "exclude-namespace", nil, "a `NAMESPACE` that is left alone, besides the system's; may be repeated")
	outputFlag(cmd, &o.output, "yaml", "json")
	return cmd
}

// check finds flags that make no sense.
func (o *policyOptions) check() error {
	if len(o.templates) == 0 {
		return errNoTemplatesFlag
	}
	return errors.Join(oneOf("as", o.as, "validating", "mutating"), oneOf("output", o.output, "yaml", "json"))
}

// run writes all objects, or none.
func (o *policyOptions) run(stdout, stderr io.Writer) error {
	set, err := loadTemplates(o.templates)
	if err != nil {
		return fmt.Errorf("the templates cannot be used:\n%w", err)
	}
	chosen, err := o.chosen(set)
	if err != nil {
		return err
	}
	options := policy.Options{Templates: o.only, Excluded: o.excluded}
	express := policy.Mutating
	if o.as == "validating" {
		express = policy.Validating
		if err := required(chosen, stderr); err != nil {
			return err
		}
	}
	objects, err := express(set, options)
	if problems := policy.Problems(nil); errors.As(err, &problems) {
		fmt.Fprintln(stderr, fold(stderr, problems.Error()))
		return errTold
	} else if err != nil {
		return err
	}
	if o.as == "mutating" {
		for _, note := range policy.Notes(set, options) {
			fmt.Fprintln(stderr, fold(stderr, note))
		}
	}
	out, err := policyOutput(o.output, objects)
	if err != nil {
		return err
	}
	_, err = forDocument(stdout).Write(out)
	return err
}

// required says which templates are left out because they are not required. It is
// an error when none is left.
func required(chosen []*templates.Template, stderr io.Writer) error {
	some := false
	for _, t := range chosen {
		some = some || t.Spec.Required
		if !t.Spec.Required {
			fmt.Fprintln(stderr, fold(stderr, "template "+t.Name+": skipped: it is not required, so a pod may do without it"))
		}
	}
	if !some {
		return errors.New("there is nothing to enforce: none of the templates has required: true (--as mutating does without that)")
	}
	return nil
}

// chosen are the templates that --template names, else all.
func (o *policyOptions) chosen(set *templates.Set) ([]*templates.Template, error) {
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
			message := fmt.Sprintf("there is no template %q", name)
			if closest := templates.Closest(name, names); closest != "" {
				message += fmt.Sprintf("; did you mean %q?", closest)
			}
			return nil, usageError{errors.New(message)}
		}
		chosen = append(chosen, t)
	}
	return chosen, nil
}

// policyOutput writes objects as a YAML stream or a List, without what only a
// server fills in.
func policyOutput(output string, objects []runtime.Object) ([]byte, error) {
	items := []any{}
	var stream bytes.Buffer
	for i, object := range objects {
		item, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		delete(item, "status")
		if metadata, ok := item["metadata"].(map[string]any); ok {
			delete(metadata, "creationTimestamp")
		}
		text, err := yaml.Marshal(item)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			stream.WriteString("---\n")
		}
		stream.Write(text)
		items = append(items, item)
	}
	if output == "yaml" {
		return stream.Bytes(), nil
	}
	var out bytes.Buffer
	err := writeJSON(&out, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	return out.Bytes(), err
}
