// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	injectOptions

	named      []namedObject
	selector   string
	everywhere bool
	only       []string // names of templates
	all        bool
	verbose    bool
	fits       *limits.Evaluator
	uncertain  bool    // templates are invalid or cannot be read
	failed     []error // objects that the user named and that cannot be read
}

// namedObject is an object of a cluster that the user named. Without a name, it is all objects of a
// kind.
type namedObject struct {
	argument string
	word     string // for the kind
	kind     cluster.Kind
	name     string
}

// parseArguments parses arguments as kubectl get does: KIND/NAME..., KIND NAME..., or KIND,KIND.
func parseArguments(args []string) (all []namedObject, err error) {
	if len(args) == 0 {
		return nil, nil
	}
	if strings.Contains(args[0], "/") {
		for _, arg := range args {
			kind, name, _ := strings.Cut(arg, "/")
			if kind == "" || name == "" || strings.Contains(name, "/") {
				return nil, fmt.Errorf("%q must be KIND/NAME, for example deploy/web; for a file, use --filename %s", arg, arg)
			}
			if _, err := os.Stat(arg); err == nil {
				return nil, fmt.Errorf("%s is no KIND/NAME; did you mean --filename %[1]s?", arg)
			}
			k, _ := cluster.KindOf(kind) // if the kind is not known here, the cluster may know it
			all = append(all, namedObject{arg, kind, k, name})
		}
		return all, nil
	}
	for kind := range strings.SplitSeq(args[0], ",") {
		k, err := cluster.KindOf(kind)
		if err != nil && len(args) == 1 {
			return nil, fmt.Errorf("%q must be KIND/NAME or KIND NAME, for example deploy/web; for a file, use --filename %s", args[0], args[0])
		}
		for _, name := range args[1:] {
			if strings.Contains(name, "/") || name == "" {
				return nil, fmt.Errorf("%q must be a name: use either KIND/NAME or KIND NAME, not both", name)
			}
			all = append(all, namedObject{kind + "/" + name, kind, k, name})
		}
		if len(args) == 1 {
			all = append(all, namedObject{kind, kind, k, ""})
		}
	}
	return all, nil
}

// checkFlags parses the arguments, and rejects flags that contradict them.
func (o *explainOptions) checkFlags(args []string) (err error) {
	for _, arg := range args {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(arg)) {
			return fmt.Errorf("%s is no KIND/NAME; did you mean --filename %[1]s?", arg)
		}
	}
	if o.named, err = parseArguments(args); err != nil {
		return err
	}
	some := o.everywhere || o.selector != ""
	named := len(o.named) > 0 && o.named[0].name != ""
	switch {
	case len(o.files) > 0 && len(args) > 0:
		return errors.New("--filename cannot be used with KIND/NAME")
	case len(o.files) > 0 && some:
		return errors.New("--filename cannot be used with --all-namespaces and --selector")
	case len(o.files) > 0:
		return o.injectOptions.checkFlags()
	case named && some:
		return errors.New("a name cannot be used with --all-namespaces and --selector")
	}
	if err := cluster.CheckNamespaces(o.namespace); err != nil {
		return err
	}
	if _, err := labels.Parse(o.selector); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	_, err = o.namespaceFor("x")
	return err
}

// whole reports whether the reports are about all objects of a cluster or a namespace, or all of some kinds.
func (o *explainOptions) whole() bool {
	return len(o.files) == 0 && (len(o.named) == 0 || o.named[0].name == "")
}

// where returns the part of the cluster that the reports are about.
func (o *explainOptions) where() string {
	in := cluster.InNamespace(o.namespace)
	if o.everywhere {
		in = " in all namespaces"
	}
	if o.selector != "" {
		in = " with " + o.selector + in
	}
	return in
}

// nothingFound returns the sentence for a cluster without matching objects.
func (o *explainOptions) nothingFound() string {
	what := "workload or pod"
	if len(o.named) > 0 {
		what = strings.Join(o.askedKinds(), " or ")
	}
	return "there is no " + what + o.where()
}

func (o *explainOptions) askedKinds() (names []string) {
	for _, a := range o.named {
		names = append(names, a.kind.Name())
	}
	return names
}

// fromCluster explains objects with the templates and settings of the cluster.
func (o *explainOptions) fromCluster(ctx context.Context) ([]*explain.Report, error) {
	c, err := o.cluster.Connect()
	if err != nil {
		if err := o.unknownKind(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w; to explain manifests, use --filename FILE", err)
	}
	namespace := c.NamespaceOr(o.namespace)
	o.namespace = namespace
	within := cli.Quote(namespace)
	if o.everywhere {
		namespace, within = "", "--all-namespaces"
	} else {
		c.About(namespace)
	}
	overlay := func(ns request.Namespace) (request.Namespace, error) {
		if o.declared.Namespaces = nil; ns.Known {
			o.declared.Namespaces = map[string]request.Namespace{ns.Name: ns}
		}
		return o.namespaceFor(ns.Name)
	}
	i, err := c.Installed(ctx, o.templates, cluster.Explaining{
		Fits: o.fits, Overlay: overlay, Overlaid: len(o.labels)+len(o.annotations)+len(o.accountAnnotations) > 0,
		Commands: o.cluster.Commands([]string{within}, o.templates),
	})
	if err != nil {
		return nil, err
	}
	o.uncertain = i.Uncertain()
	if len(o.named) == 0 || o.named[0].name == "" {
		var kinds []cluster.Kind
		for _, a := range o.named {
			kinds = append(kinds, a.kind)
		}
		return i.Every(ctx, namespace, kinds, o.selector)
	}
	var reports []*explain.Report
	for _, a := range o.named {
		found, err := explainNamed(ctx, i, a, namespace)
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err): // continue, because the other objects may exist
			o.failed = append(o.failed, fmt.Errorf("%s: %w", problem.OneLine(a.argument), err))
		case err != nil:
			return nil, fmt.Errorf("%s: %w", problem.OneLine(a.argument), err)
		default:
			reports = append(reports, found...)
		}
	}
	return reports, nil
}

// unknownKind returns an error about a kind that only a cluster may know.
func (o *explainOptions) unknownKind() error {
	for _, a := range o.named {
		if _, err := cluster.KindOf(a.word); err != nil {
			return cli.UsageError{Err: err}
		}
	}
	return nil
}

// explainNamed explains one object that the user named.
func explainNamed(ctx context.Context, i *cluster.Installation, a namedObject, namespace string) ([]*explain.Report, error) {
	kind, err := i.FindKind(a.word)
	if err != nil {
		return nil, err
	}
	if kind.IsOther() {
		return i.ExplainOther(ctx, kind, namespace, a.name)
	}
	r, err := i.Explain(ctx, kind, namespace, a.name)
	return []*explain.Report{r}, err
}
