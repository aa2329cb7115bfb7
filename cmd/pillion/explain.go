// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/manifest"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/terminal"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

func newExplain() *cobra.Command {
	o := &explainOptions{}
	cmd := &cobra.Command{
		Use:         "explain [-f FILE | KIND/NAME... | KIND [NAME...]]",
		Short:       "Explain whether a pod gets its sidecars",
		Annotations: cli.FailsIf("the API server would deny the pod"),
		Long: `Explain prints for each template whether a pod gets it and which rule decided. If the
pod gets it, explain also prints the parameters, what is added, and what the pod keeps.
It also prints the result of the validating webhook. The word in parentheses is a
reason code. Every code has a section in
https://github.com/pillion-dev/pillion/blob/main/inject/README.md.

With --filename, explain reads manifests of all kinds that contain pods, and
AdmissionReviews, and uses the templates of --templates, or without this flag those of
the cluster of your kubeconfig. If the manifests contain a Namespace, its labels decide
whether its pods are injected. Otherwise the namespace counts as opted in, unless
--namespace-label changes that (pillion.dev/inject- removes the label).

With KIND/NAME or KIND NAME, explain reads the object from the cluster of your
kubeconfig. It uses what the cluster uses: the labels of the namespace, the webhook
configurations, the templates, excluded namespaces, the endpoints of Pillion, and
whatever else changes pods. It lists the resources that you are not allowed to read.
It compares an existing pod, or the running pods of a workload, with what they should
be. For a kind that is not one of Kubernetes' own, such as an Argo Rollout or a Tekton
TaskRun, it explains the pod templates in the object, and the pods that belong to it.

Without a name, explain prints all objects of the kind. Without a kind, it prints all
workloads of the namespace, and pods without a workload. The namespace is the
kubeconfig's, or that of --namespace. The first line counts problems, and the objects
with problems come first. Workloads with the same result
share one entry. Use --namespace-label to see the effect of another label of the
namespace.

One line lists the templates that do not apply and that the pod does not name. Use
--all or --template to see the reasons.

Explain prints which limits would deny the pod, and whether they would deny it without
Pillion too: the Pod Security labels of the namespace, and in a cluster also its
LimitRanges and quotas.

The exit code is 1 if the API server would deny or reject the pod, or if a workload cannot create
its pods, or if templates are invalid or cannot be read. Explain treats an existing pod
as if it were created again.`,
		Example: `  # Before it is applied.
  pillion explain -f web.yaml --templates templates/

  # Why has it no sidecar?
  pillion explain deploy/web -n shop
  pillion explain pod web-7d4b9c-x2x8z -n shop
  pillion explain rollout/web -n shop

  # All workloads of a namespace, and what an opt-in would change.
  pillion explain -n shop
  pillion explain -n shop --namespace-label pillion.dev/inject=enabled

  # For a script: the fields are in inject/report/explain/README.md of the sources.
  pillion explain deploy/web -o json |
    jq -r '.reports[].templates[] | "\(.template) \(.code)"'`,
		PreRunE: func(_ *cobra.Command, args []string) error { return o.checkFlags(args) },
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		}),
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "read this `FILE`, a folder of *.yaml, *.yml and *.json, or - for standard input; may be repeated")
	f.StringSliceVarP(&o.templates, "templates", "t", nil, "use the templates in this file or folder (`PATH`), or - for standard input; may be repeated (default: the cluster's)")
	f.StringArrayVar(&o.labels, "namespace-label", nil, "override a label of the namespaces: `KEY=VALUE`, or KEY- to remove it; may be repeated")
	f.StringArrayVar(&o.annotations, "namespace-annotation", nil, "override an annotation of the namespaces: `KEY=VALUE`, or KEY- to remove it; may be repeated")
	f.StringArrayVar(&o.accountAnnotations, accountFlag, nil, "override an annotation of the ServiceAccounts: `K=V`, or K- to remove it; may be repeated")
	f.StringArrayVar(&o.only, "template", nil, "explain only the template with this `NAME`; may be repeated")
	f.BoolVar(&o.all, "all", false, "explain all templates, including those that do not apply")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "like --all, and print the rules that did not apply and the webhooks that are not called")
	f.StringVarP(&o.selector, "selector", "l", "", "in a cluster: explain only objects whose labels match this `SELECTOR`, for example app=web")
	f.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "in a cluster: explain objects of all namespaces, and ignore --namespace")
	o.cluster.Flags(cmd)
	o.cluster.NamespaceFlag(cmd, &o.namespace, "explain the objects of this `NAMESPACE`, or with --filename use it for objects without one")
	cmd.ValidArgsFunction = o.cluster.CompleteObjects(&o.namespace)
	_ = cmd.RegisterFlagCompletionFunc("template", o.cluster.CompleteTemplates(&o.templates)) // the flag exists
	cli.OutputFlag(cmd, &o.output, "text", "json", "yaml")
	return cmd
}

// run writes one report for each object.
func (o *explainOptions) run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	var reports []*explain.Report
	var err error
	if o.fits, err = limits.NewEvaluator(); err != nil {
		return err
	}
	missing := errNoPods.Error()
	if len(o.files) > 0 {
		reports, err = o.fromFiles(ctx, stdin)
	} else {
		reports, err = o.fromCluster(ctx)
		missing = o.nothingFound()
	}
	if err != nil {
		return err
	}
	failed := errors.Join(o.failed...)
	if len(reports) == 0 && failed == nil {
		return errors.New(missing)
	}
	if len(reports) == 0 {
		return failed
	}
	for _, r := range reports {
		if err := r.Only(o.only); err != nil {
			return cli.UsageError{Err: err}
		}
	}
	if err := errors.Join(o.writeReports(stdout, reports), failed); err != nil {
		return err
	}
	if o.uncertain || slices.ContainsFunc(reports, func(r *explain.Report) bool { return r.Severity() == explain.Denied }) {
		return cli.ErrTold
	}
	return nil
}

// writeReports prints the reports. As JSON and YAML, they are always an object with a list. Before those of a whole namespace,
// there is a summary.
func (o *explainOptions) writeReports(w io.Writer, reports []*explain.Report) error {
	summary := ""
	if o.whole() {
		explain.SortBySeverity(reports)
		summary = explain.Overview(reports, o.where())
	}
	if o.output == "text" {
		if summary != "" {
			if err := cli.Say(w, terminal.Bold, summary); err != nil {
				return err
			}
		}
		colour, width := cli.WantsColour(w), cli.WidthOf(w)
		if colour {
			w = cli.Raw(w) // the report is escaped already, apart from its colors
		}
		for i, r := range reports {
			if i > 0 || summary != "" {
				fmt.Fprintln(w)
			}
			if _, err := io.WriteString(w, r.Text(width, colour, o.detailLevel())); err != nil {
				return err
			}
		}
		return nil
	}
	return cli.Print(w, o.output, struct {
		Summary string            `json:"summary,omitempty"`
		Reports []*explain.Report `json:"reports"`
	}{summary, reports}, nil)
}

func (o *explainOptions) detailLevel() explain.Detail {
	switch {
	case o.verbose:
		return explain.Verbose
	case o.all:
		return explain.All
	}
	return explain.Brief
}

// fromFiles explains the objects in manifests.
func (o *explainOptions) fromFiles(ctx context.Context, stdin io.Reader) (_ []*explain.Report, err error) {
	if o.namespace, err = o.cluster.NamespaceOr(o.namespace); err != nil {
		return nil, err
	}
	injector, notes, err := o.loadInjector(ctx, stdin)
	if err != nil {
		return nil, err
	}
	files, err := o.readFiles(stdin)
	if err != nil {
		return nil, err
	}
	var reports []*explain.Report
	for _, file := range files {
		for _, d := range yamledit.Split(file.data) {
			if d.Empty() {
				continue
			}
			found, err := o.explainDocument(injector, d)
			if err != nil {
				return nil, locateError(d, file.name, err)
			}
			reports = append(reports, found...)
		}
	}
	for _, r := range reports {
		r.Notes = append(r.Notes, notes...)
	}
	return reports, nil
}

func (o *explainOptions) explainDocument(injector *inject.Injector, d yamledit.Document) ([]*explain.Report, error) {
	root, err := d.Parse()
	if err != nil || len(root.Content) == 0 {
		return nil, err
	}
	if isArray(root.Content[0]) {
		return nil, errArray
	}
	isReview := manifest.KindOf(root.Content[0]) == "AdmissionReview"
	if !isReview && !manifest.MayHoldPods(root.Content[0], o.podPaths) {
		return nil, nil
	}
	node, err := jsontree.FromYAML(root.Node)
	if err != nil {
		return nil, err
	}
	if isReview {
		r, err := o.explainReview(injector, &node)
		return []*explain.Report{r}, err
	}
	var reports []*explain.Report
	found, err := manifest.In(root.Node, &node, o.podPaths)
	if err != nil {
		return nil, err
	}
	for _, object := range found {
		req, mistakes, err := (&injection{options: &o.injectOptions, injector: injector}).requestFor(object)
		if err != nil {
			return nil, err
		}
		wrong := mistakes.All()
		if object.Foreign {
			wrong = append(wrong, "Pillion does not know this kind. This is about pods with the template at "+object.Where()+".")
		}
		if name := req.Namespace.Name; o.assumesOptIn(name) {
			wrong = append(wrong, fmt.Sprintf("nothing is known about the namespace %s, so it counts as opted in", name))
		}
		r, err := explain.New(injector, explain.Subject{
			Object:  explain.Object{Kind: object.Kind, Name: object.Name(), Namespace: req.Namespace.Name},
			Request: req, Misfits: o.misfitChecker(req.Namespace), Original: o.originalChecker(req.Namespace), Notes: wrong, Rejected: len(mistakes.Rejected) > 0,
			Misplaced: injector.Misplaced(object.APIVersion, object.Kind, object.Node),
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", object.Title(), err)
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// explainReview explains a request of an API server. The API server sends requests only about pods that opted in.
func (o *explainOptions) explainReview(injector *inject.Injector, node *jsontree.Node) (*explain.Report, error) {
	request := node.At("request")
	if request.At("resource", "group").Text() != "" || request.At("resource", "version").Text() != "v1" || request.At("resource", "resource").Text() != "pods" || request.At("operation").Text() != "CREATE" || request.At("subResource").Text() != "" {
		return nil, errors.New("the AdmissionReview is not about the creation of a pod; Pillion handles no other requests")
	}
	namespace, err := o.namespaceFor(request.At("namespace").Text())
	if err != nil {
		return nil, err
	}
	pod := request.At("object")
	if pod == nil {
		return nil, errors.New("the AdmissionReview has no request.object")
	}
	name := pod.At("metadata", "name").Text()
	if name == "" {
		name = pod.At("metadata", "generateName").Text()
	}
	return explain.New(injector, explain.Subject{
		Object: explain.Object{Kind: "Pod", Name: name, Namespace: namespace.Name},
		Request: inject.Request{
			Operation: "CREATE", Username: request.At("userInfo", "username").Text(), DryRun: request.At("dryRun").Kind() == jsontree.True,
			OptedIn: true, Namespace: namespace, Object: pod.AppendTo(nil),
		},
		Misfits: o.misfitChecker(namespace), Original: o.originalChecker(namespace),
	})
}

// misfitChecker checks the pod against the namespace's labels only.
func (o *explainOptions) misfitChecker(namespace request.Namespace) func(pod, injected []byte) ([]string, string) {
	return func(pod, injected []byte) ([]string, string) {
		return o.fits.Misfits(namespace.Labels, limits.Limits{}, pod, injected), ""
	}
}

// originalChecker checks the original pod against the namespace's labels only.
func (o *explainOptions) originalChecker(namespace request.Namespace) func(pod []byte) []string {
	return func(pod []byte) []string { return o.fits.Original(namespace.Labels, limits.Limits{}, pod) }
}
