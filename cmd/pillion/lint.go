// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	psa "k8s.io/pod-security-admission/api"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/manifest"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// lintOptions are the flags of lint.
type lintOptions struct {
	output  string
	files   []string // of --filename, as further arguments
	values  []string
	pods    injectOptions // files, and their namespaces
	server  bool
	level   string // of --pod-security
	cluster cluster.Options
	ns      string
}

const lintHelp = `Lint checks template files, all template files in folders, or standard input (-).
It loads them as serve and inject do. It prints one line for each problem:

  file:line: path: message

Lint tries each valid template on sample pods. If a template has a condition, lint
makes sample pods that meet it, and prints the fields that do so. With --pod, lint
tries the templates on your own pods instead. If other templates are invalid, it
prints only problems and warnings. Otherwise, it prints:

  * the strictest Pod Security level that a pod with the template satisfies, and
    what it lacks for the next level
  * weaker levels that values of the parameters lead to, with these values and who
    may set them; images, commands and paths of the host that they choose; and what
    else they change
  * the changes of a pod's quality of service class
  * what a pod requests in addition
  * hints: probable mistakes, and pods that do not get the template
  * conflicts between templates
  * for a template that could not be tried, the part of its condition that was not
    met

Lint tries the values that annotations may give each parameter: all of them if there
are few, and otherwise those that matter for the fields that Pod Security checks. If
it cannot exclude a weaker level, it says so. It also tries them on the pods of the
templates' tests: the files *_test.yaml beside the templates, and in the folder
tests there. With --pod-security, lint fails if a level is or may be weaker than the
given one.

With --server, lint sends each of these pods to an API server as a dry run, which
creates nothing. This needs the right to create pods.

Lint also tries each template on pods with other labels and annotations than the
sample pod, or none. If the template fails for such a pod, lint prints a warning. If
the template is required or its validate.mode is Deny, it is a problem instead,
because the pod would be denied. If a template fails for a pod of --pod, that is a
problem.

The exit code is 0 if there is no problem, 1 if there is one, and 2 if lint was
called with wrong flags or arguments. With --server, a pod that the API server
rejects or cannot check is a problem too.

-o json and -o yaml write one object:

  problems     file, line, path, message
  warnings     sentences about the pods of --pod
  templates    for each template, or for each template and pod of --pod:

    template            its name
    revision            of its content, as in the annotations of injected pods
    pod                 with --pod: the object, Kind/name
    sample              the fields of the sample pod that meet the condition
    podSecurity         the level, if the template was tried
    podSecurityWorst    the weakest level that values of the parameters lead to
    allows              what they lead to: podSecurity, why, path, parameters (name,
                        value, setBy, annotation), uncertain
    choices             images, commands and paths of the host that parameters choose
    byValue             what else single values change, such as the class
    cut                 whether there are more values than lint tries
    podSecurityWithout  the pod's level without the template, if not restricted
    why                 why it is not a stricter level, or was not tried
    unmet               the parts of the condition that were not met
    fails               for which pods the template fails, and how: sentences
    qos                 the classes that change: from and to
    qosWhy              why they change
    requests            what a pod requests in addition
    hints               sentences
    needs               the parameters without a default
    tried               the values that lint chose for such parameters
    denied              whether a pod without these parameters is denied
    conflicts           with other templates
    accepted, rejected  with --server: whether it accepts the pod, or why not

Fields that do not apply are left out.`

func newLint() *cobra.Command {
	o := &lintOptions{}
	cmd := &cobra.Command{
		Use:         "lint PATH...",
		Short:       "Check templates, and try them on pods",
		Annotations: cli.FailsIf("a template has a problem, with `--pod-security` a weaker level, or with `--server` an API server rejects it"),
		Long:        lintHelp,
		Example: `  pillion lint templates/
  pillion lint log-agent.yaml proxy.yaml -o json

  # Set a parameter that has no default.
  pillion lint templates/ --set fluent-bit.host=logs.example.com

  # Try the templates on your own pods.
  pillion lint templates/ --pod web.yaml
  kustomize build . | pillion lint templates/ --pod -

  # Fail if a value of a parameter can make a pod violate the level restricted.
  pillion lint templates/ --pod-security restricted

  # Does the API server accept the pods?
  pillion lint templates/ --server -n sandbox`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args)+len(o.files) == 0 {
				return errors.New("name the files or folders to check")
			}
			if slices.Contains(append(args, o.files...), "-") && slices.Contains(o.pods.files, "-") {
				return errors.New("standard input cannot be both the manifests of --pod and the templates")
			}
			return nil
		},
		PreRunE: func(*cobra.Command, []string) error { return o.checkFlags() },
		RunE: cli.Action(func(cmd *cobra.Command, paths []string) error {
			return o.run(cmd, append(paths, o.files...))
		}),
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "check this `PATH`, like an argument; may be repeated")
	f.StringArrayVar(&o.values, "set", nil, "set a parameter of the pods, `TEMPLATE.PARAM=VALUE`; may be repeated")
	f.StringArrayVar(&o.pods.files, "pod", nil, "try the templates on the pods in this `FILE` or folder, or - for standard input; may be repeated")
	f.StringArrayVar(&o.pods.labels, "namespace-label", nil, "with --pod: set a label of the namespaces: `KEY=VALUE`, or KEY- to remove it; may be repeated")
	f.StringArrayVar(&o.pods.annotations, "namespace-annotation", nil, "with --pod: set an annotation of the namespaces: `KEY=VALUE`, or KEY- to remove it; may be repeated")
	f.StringArrayVar(&o.pods.accountAnnotations, accountFlag, nil, "with --pod: set an annotation of the ServiceAccounts: `K=V`, or K- to remove it; may be repeated")
	f.StringVar(&o.level, "pod-security", "", "fail if pods with a template, or with values that its parameters allow, violate this `LEVEL`: restricted, baseline or privileged")
	f.BoolVar(&o.server, "server", false, "send a pod for each template to an API server, as a dry run")
	o.cluster.Flags(cmd)
	o.cluster.NamespaceFlag(cmd, &o.ns, "with --server, send the pods to this `NAMESPACE`, and with --pod use it for objects without one")
	cli.OutputFlag(cmd, &o.output, "text", "json", "yaml")
	return cmd
}

func (o *lintOptions) checkFlags() error {
	if len(o.pods.files) == 0 && len(o.pods.labels)+len(o.pods.annotations)+len(o.pods.accountAnnotations) > 0 {
		return errors.New("--namespace-label, --namespace-annotation and --service-account-annotation are for the pods of --pod")
	}
	if _, err := o.pods.namespaceFor("x"); err != nil {
		return err
	}
	if err := cluster.CheckNamespaces(o.ns); err != nil {
		return err
	}
	if o.level != "" {
		if _, err := psa.ParseLevel(o.level); err != nil {
			return fmt.Errorf("--pod-security must be restricted, baseline or privileged, not %q", o.level)
		}
	}
	_, err := parsePairs("set", o.values)
	return err
}

func (o *lintOptions) run(cmd *cobra.Command, paths []string) error {
	w, stdin := cmd.OutOrStdout(), cmd.InOrStdin()
	set, problems, unread := cli.LoadValid(stdin, paths)
	if len(set.Templates)+len(problems) == 0 {
		return unread
	}
	found := linted{Problems: append(problem.Problems{}, problems...), Templates: []trial{}, server: o.server, level: psa.Level(o.level), command: cmd.CommandPath(), paths: paths, pods: o.pods.files}
	if len(set.Templates) > 0 {
		if err := o.tryTemplates(cmd.Context(), stdin, &found, set); err != nil {
			return errors.Join(unread, problems.Err(), err)
		}
	}
	err := cli.Print(w, o.output, found, func() string { return cli.Fold(w, found.text()) })
	if err := errors.Join(err, unread); err != nil {
		return err
	}
	if found.hasProblems() {
		return cli.ErrTold
	}
	return nil
}

func (o *lintOptions) tryTemplates(ctx context.Context, stdin io.Reader, found *linted, set *templates.Set) error {
	values, err := parsePairs("set", o.values)
	if err != nil {
		return err
	}
	if err := limits.CheckValues(set, values); err != nil {
		return cli.UsageError{Err: fmt.Errorf("--set: %w", err)}
	}
	e, err := limits.NewEvaluator()
	if err != nil {
		return err
	}
	pods, err := o.readSubjects(e, inject.New(set), found, stdin)
	if err != nil {
		return err
	}
	for _, t := range e.Try(set, values, pods...) {
		found.Templates = append(found.Templates, trial{Trial: t})
	}
	if len(pods) == 0 {
		allowOnTests(e, found, set)
	}
	if !o.server {
		return nil
	}
	c, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	for i := range found.Templates {
		if t := &found.Templates[i]; t.Pod != nil {
			if t.Rejected, err = c.DryRun(ctx, c.NamespaceOr(o.ns), t.Pod); err != nil {
				return err
			}
			t.Accepted = t.Rejected == ""
		}
	}
	return nil
}

// readSubjects returns the pods of --pod.
func (o *lintOptions) readSubjects(e *limits.Evaluator, injector *inject.Injector, to *linted, stdin io.Reader) ([]limits.Subject, error) {
	if len(o.pods.files) == 0 {
		return nil, nil
	}
	var err error
	if o.pods.namespace, err = o.cluster.NamespaceOr(o.ns); err != nil {
		return nil, err
	}
	files, err := o.pods.readFiles(stdin)
	if err != nil {
		return nil, err
	}
	var all []limits.Subject
	var wrong []error
	for _, file := range files {
		for _, d := range yamledit.Split(file.data) {
			of, found := o.subjectsIn(e, injector, to, d)
			for _, err := range found {
				wrong = append(wrong, locateError(d, file.name, err))
			}
			all = append(all, of...)
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("--pod: %w", errNoPods)
	}
	return all, nil
}

// subjectsIn returns the pods in a document, or errors that begin with the line.
func (o *lintOptions) subjectsIn(e *limits.Evaluator, injector *inject.Injector, to *linted, d yamledit.Document) (all []limits.Subject, wrong []error) {
	found, err := manifest.InDocument(d)
	if err != nil {
		return nil, []error{err}
	}
	for _, object := range found {
		req, warnings, err := (&injection{options: &o.pods, injector: injector}).requestFor(object)
		if err != nil {
			return nil, []error{err}
		}
		for _, sentence := range warnings.All() {
			to.Warnings = append(to.Warnings, object.Title()+": "+sentence)
		}
		pod, err := jsontree.Parse(req.Object)
		if err != nil {
			return nil, []error{err}
		}
		at := slices.Concat(object.At, object.PodAt)
		mistyped := manifest.Schema().Mistyped(pod)
		for _, m := range mistyped {
			wrong = append(wrong, fmt.Errorf("line %d: %s: %s", d.LineOf(slices.Concat(at, manifest.Names(m.Pointer))), object.Title(), m.Sentence(object.Written(m.Pointer))))
		}
		if len(mistyped) > 0 {
			continue
		}
		subject, err := e.Subject(object.Title(), req.Object, req.Owner, req.Namespace)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("line %d: %s: %w", d.LineOf(at), object.Title(), err))
		}
		all = append(all, subject)
	}
	return all, wrong
}
