// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// TestHistories checks when the controller writes the history of a template: once for each valid content, and again after
// an error.
func TestHistories(t *testing.T) {
	r := newRolled()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var writes []string
	var fails error
	h := &histories{
		read: r, most: 10, now: func() time.Time { return now }, log: slog.New(slog.DiscardHandler), kept: map[types.NamespacedName]content{},
		keep: func(_ context.Context, e *kube.Entry, now kube.Present, most int) error {
			writes = append(writes, fmt.Sprint(e.Generation, string(now.Spec) != "", now.Hash, most))
			return fails
		},
	}
	step := func(what string, want int, again time.Duration, fail bool) {
		t.Helper()
		before := len(writes)
		result, err := h.Reconcile(t.Context(), reconcile.Request{NamespacedName: r.of})
		if len(writes)-before != want || result.RequeueAfter != again || (err != nil) != fail {
			t.Errorf("%s: it writes %v, again after %s, %v", what, writes[before:], result.RequeueAfter, err)
		}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "controllerrevisions"}, "", errors.New(`User "x" cannot list resource "controllerrevisions" in API group "apps"`))
	fails = forbidden
	step("without the right", 1, retryRights, false)
	step("without the right, at once", 0, retryRights, false)
	now, fails = now.Add(retryRights), errors.New("exceeded quota")
	step("with an error", 1, 0, true)
	fails = nil
	step("a content", 1, 0, false)
	step("the same content", 0, 0, false)
	r.rollout(map[string]any{"strategy": "OnCreate"})
	step("another generation", 1, 0, false)
	r.put("", "two")
	step("a content that is not used yet", 0, 0, false)
	r.rollout(nil)
	step("a content that is used now", 1, 0, false)
	r.objects[r.of].SetUID("2")
	step("another template of this name", 1, 0, false)
	delete(r.objects, r.of)
	if step("no template", 0, 0, false); len(h.kept) != 0 {
		t.Errorf("%v is kept in memory", h.kept)
	}
}
