// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/webhook"
)

// TestLintReplaces checks what the webhook says about a template of a namespace that replaces another one.
func TestLintReplaces(t *testing.T) {
	t.Parallel()
	of := func(kind, name, spec string) string {
		return "apiVersion: pillion.dev/v1alpha1\nkind: " + kind + "\nmetadata: {" + name + "}\nspec: {" + spec + "pod: {metadata: {annotations: {a: b}}}}\n"
	}
	e := newEdge(load(t, of("ClusterSidecarTemplate", "name: everywhere", ""), of("SidecarTemplate", "name: mine, namespace: team-a", ""),
		of("SidecarTemplate", "name: next, namespace: team-a", "replaces: mine, "), of("SidecarTemplate", "name: theirs, namespace: team-b", "")))
	e.Log, e.Fit = discard(), evaluator(t)
	for replaces, c := range map[string]struct {
		status int
		want   string
	}{
		"mine":       {http.StatusOK, `"allowed":true`},
		"everywhere": {http.StatusUnprocessableEntity, `everywhere is a ClusterSidecarTemplate; a SidecarTemplate can replace only one of its own namespace`},
		"next":       {http.StatusUnprocessableEntity, `next itself replaces mine; replace that one`},
		"theirs":     {http.StatusOK, `spec.replaces: there is no template theirs to replace; until then, no pod gets this template`},
		"a":          {http.StatusUnprocessableEntity, `a template cannot replace itself`},
	} {
		w := e.answer(post(t, webhook.PathLint, templateReview(`{"replaces":"`+replaces+`","share":10,"pod":{"metadata":{"annotations":{"a":"c"}}}}`)))
		body := w.Body.String()
		denied := strings.Contains(body, `"allowed":false`)
		if w.Code != http.StatusOK || denied != (c.status != http.StatusOK) || !strings.Contains(body, c.want) ||
			denied && !strings.Contains(body, `"field":"spec.replaces"`) || replaces == "mine" && strings.Contains(body, "spec.replaces") {
			t.Errorf("%s: %d %s", replaces, w.Code, body)
		}
	}
}
