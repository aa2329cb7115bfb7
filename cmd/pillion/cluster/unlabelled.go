// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/templates"
)

// Outsiders finds the namespaces that have not opted in, among the named ones or all.
func (c *Client) Outsiders(ctx context.Context, names []string, stderr io.Writer) (*status.Outsiders, error) {
	l := &podLister{c, cli.NewProgress(stderr)}
	k := &survey{podLister: l, notes: map[string]bool{}, report: status.NewReport(&templates.Set{})}
	d, err := l.readServerConfig(ctx, k.addNote)
	if err != nil {
		return nil, err
	}
	k.injector = inject.New(&templates.Set{}, d.options.Excluded...)
	if err := k.readWebhooks(ctx); err != nil {
		return nil, err
	}
	var found []status.Outside
	inspected := 0
	each := func(ns *unstructured.Unstructured) error {
		inspected++
		if o := status.NewOutside(k.namespaceScope(ns), k.namespaceFacts(ns)); o != nil {
			found = append(found, *o)
		}
		return nil
	}
	if len(names) > 0 {
		err = k.eachNamed(ctx, names, each)
	} else {
		err = k.eachObject(ctx, k.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), "", each, func() { found, inspected = nil, 0 })
		err = explainForbidden(err, "list", "namespaces", "", "name those that you are allowed to read: pillion status unlabelled NAMESPACE...")
	}
	if err != nil {
		return nil, err
	}
	k.checkTemplates(ctx, d)
	r := status.NewOutsiders(found, inspected)
	r.Problems, r.Doubts, r.Notes = k.report.Problems, k.report.Doubts, slices.Sorted(maps.Keys(k.notes))
	return r, nil
}

// checkTemplates reports problems and doubts if the cluster's templates cannot be used, because pods that opt in may then be
// denied.
func (k *survey) checkTemplates(ctx context.Context, d *deployed) {
	var wrong unsure
	if _, err := d.readTemplateSet(ctx, &wrong); err != nil {
		text := "The templates are unknown: " + cli.OneLine(err)
		if apierrors.IsForbidden(err) || d.guessed {
			wrong.doubts = append(wrong.doubts, text)
		} else {
			wrong.problems = append(wrong.problems, text)
		}
	}
	k.report.Problems, k.report.Doubts = append(k.report.Problems, wrong.problems...), append(k.report.Doubts, wrong.doubts...)
}
