// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// histories keeps the last contents of each template that is used. A template that exceeds the limits for tenants has no history,
// because a tenant may have many of those. Writing the history needs the rights of the component rollout.
type histories struct {
	read reader
	keep func(ctx context.Context, e *kube.Entry, now kube.Present, most int) error
	most int // how many contents of a template are kept; 0: none
	now  func() time.Time
	log  *slog.Logger

	kept    map[types.NamespacedName]content // of each template, in its history
	blocked time.Time                        // until when the controller does not try, because it lacks the rights
}

// retryRights is how often to find out whether the controller has been given the rights, with one request for all templates. A content
// that is replaced before that is not in the history, so no pod can go back to it.
const retryRights = 5 * time.Second

// content identifies the content of a template object.
type content struct {
	uid        types.UID
	generation int64
}

// Reconcile implements [reconcile.Reconciler].
func (h *histories) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	e, used := h.read.Get(request.NamespacedName)
	if e == nil || !used || h.most == 0 {
		delete(h.kept, request.NamespacedName)
		return reconcile.Result{}, nil
	}
	c, now := readyCondition(e.Status), h.now()
	is := content{e.UID, e.Generation}
	switch {
	case h.kept[request.NamespacedName] == is:
		return reconcile.Result{}, nil
	case c.Status != "True" || c.ObservedGeneration != e.Generation:
		return reconcile.Result{}, nil // when it is valid, its status changes
	case now.Before(h.blocked):
		return reconcile.Result{RequeueAfter: h.blocked.Sub(now)}, nil
	}
	text, err := h.read.Content(ctx, e)
	if err != nil {
		return reconcile.Result{RequeueAfter: retryAfter}, nil //nolint:nilerr // the event about the change or the end of the template is about to arrive
	}
	var of struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(text, &of); err != nil {
		return reconcile.Result{}, err
	}
	err = h.keep(ctx, e, kube.Present{Spec: of.Spec, Hash: e.Status.Revision, At: now}, h.most)
	if missingRight(err) {
		if h.blocked.IsZero() {
			h.log.Info("no history of templates is kept: the component rollout has the rights that the controller needs", "error", err)
		}
		h.blocked = now.Add(retryRights)
		return reconcile.Result{RequeueAfter: retryRights}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	h.kept[request.NamespacedName] = is
	return reconcile.Result{}, nil
}

// newController returns the controller that calls Reconcile for each template.
func (h *histories) newController(all manager.Manager, templates *followed) (controller.Controller, error) {
	of, err := controller.NewUnmanaged("histories", controller.Options{Reconciler: h, Logger: all.GetLogger()})
	if err != nil {
		return nil, err
	}
	return of, of.Watch(templates)
}
