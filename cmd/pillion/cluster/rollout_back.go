// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// wayBack is the content that pods go back to after a failed rollout of a template. Only the pods go back: the template keeps the
// content that has failed.
type wayBack struct {
	rollout.WayBack

	template *templates.Template // with the content that failed
	history  *History
	now      *inject.Injector
	earlier  map[string]earlier // by revision
}

// earlier is an injector with an earlier content of the template, or the reason why there is none.
type earlier struct {
	injector *inject.Injector
	why      string
}

// newWayBack reads the history of a template of the injector whose content has failed.
func (c *Client) newWayBack(ctx context.Context, now *inject.Injector, t *templates.Template) (*wayBack, error) {
	w := &wayBack{template: t, now: now, earlier: map[string]earlier{}}
	w.WayBack = rollout.WayBack{Template: t.Name, Replaces: t.Spec.Replaces, Failed: t.Revision, Earlier: func(revision string) (*inject.Injector, string) {
		e, ok := w.earlier[revision]
		if !ok {
			e.why = "it has changed meanwhile"
		}
		return e.injector, e.why
	}}
	var err error
	w.history, err = c.ReadHistory(ctx, types.NamespacedName{Namespace: t.Namespace, Name: t.Name})
	return w, err
}

// loadEarlier reads the content that a pod with these annotations goes back to, once for each content.
func (w *wayBack) loadEarlier(ctx context.Context, annotations map[string]string) error {
	if w == nil {
		return nil
	}
	revision, _ := w.Revision(annotations)
	if _, known := w.earlier[revision]; known || revision == "" && w.Replaces == "" {
		return nil
	}
	injector, why, err := w.readEarlier(ctx, revision)
	if err == nil {
		w.earlier[revision] = earlier{injector, why}
	}
	return err
}

// readEarlier returns an injector with an earlier content of the template, or why there is none.
func (w *wayBack) readEarlier(ctx context.Context, revision string) (i *inject.Injector, why string, err error) {
	all := slices.Clone(w.now.All().Templates)
	if revision == "" {
		return w.injectorWith(slices.DeleteFunc(all, func(t *templates.Template) bool { return t == w.template }), "the set without this template")
	}
	named := fmt.Sprintf("revision %s of the template, which the pod had before,", problem.OneLine(revision))
	at := slices.IndexFunc(w.history.Revisions, func(r *kube.Revision) bool { return r.Hash == revision })
	if at < 0 {
		return nil, named + " is not in its history", nil
	}
	content, err := w.history.Fetch(ctx, w.history.Revisions[at])
	if errors.Is(err, kube.ErrLost) {
		return nil, named + " cannot be used: " + err.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	t, err := w.history.compileContent(content)
	if err != nil {
		return nil, named + " is not valid: " + cli.OneLine(err), nil
	}
	all[slices.Index(all, w.template)] = t
	return w.injectorWith(all, named)
}

// injectorWith returns an injector with other templates, or why there is none.
func (w *wayBack) injectorWith(all []*templates.Template, what string) (i *inject.Injector, why string, err error) {
	set, problems := templates.Join(&templates.Set{Templates: all})
	if len(problems) > 0 {
		return nil, what + " cannot be used with the other templates: " + cli.OneLine(problems), nil
	}
	return w.now.With(set), "", nil
}
