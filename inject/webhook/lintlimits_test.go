// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/webhook"
)

// TestLintLimits checks that a template that exceeds a limit is denied with it, before it is compiled, and that one whose
// spec does not change is not.
func TestLintLimits(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	e.Log, e.Fit = discard(), evaluator(t)
	const limit = "of a namespace, Pillion uses only the oldest 50 templates"
	var asked string
	e.Admits = func(namespace, name string, text []byte) string {
		asked = namespace + "/" + name + " " + string(text)
		return limit
	}
	const spec = `{"pod":{"metadata":{"annotations":{"a":"${nonsense}"}}}}`
	body := e.answer(post(t, webhook.PathLint, templateReview(spec))).Body.String()
	if !strings.Contains(body, `"allowed":false`) || !strings.Contains(body, limit) || strings.Contains(body, "nonsense") {
		t.Errorf("the answer is %s", body)
	}
	if want := `team-a/a {"apiVersion":"pillion.dev/v1alpha1","kind":"SidecarTemplate","metadata":{"name":"a","namespace":"team-a"},"spec":` + spec + `}`; asked != want {
		t.Errorf("asked is %s, want %s", asked, want)
	}
	same := strings.Replace(string(templateReview(spec)), `"object":`, `"oldObject":{"spec":`+spec+`},"object":`, 1)
	if w := e.answer(post(t, webhook.PathLint, []byte(same))); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"allowed":true`) {
		t.Errorf("without a change of the spec, the answer is %s", w.Body)
	}
}
