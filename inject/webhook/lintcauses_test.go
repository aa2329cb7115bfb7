// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/webhook"
)

// TestLintCauses checks that a denial has a cause for each of up to 50 problems, and one more that counts the others.
func TestLintCauses(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	e.Log, e.Fit = discard(), evaluator(t)
	for _, c := range []struct {
		problems, causes int
		last             string
	}{{1, 1, ""}, {50, 50, ""}, {51, 51, "and 1 more problems"}, {70, 51, "and 20 more problems"}} {
		var unknown []string
		for i := range c.problems {
			unknown = append(unknown, fmt.Sprintf(`"unknown%d":1`, i))
		}
		body := templateReview(`{` + strings.Join(unknown, ",") + `,"pod":{"metadata":{"annotations":{"a":"b"}}}}`)
		r, _ := checkContract(t, webhook.PathLint, body, e.answer(post(t, webhook.PathLint, body)))
		if r.Allowed || r.Result.Details == nil {
			t.Fatalf("%d problems are not denied with causes", c.problems)
		}
		causes := r.Result.Details.Causes
		if len(causes) != c.causes {
			t.Errorf("%d problems give %d causes, want %d", c.problems, len(causes), c.causes)
			continue
		}
		if last := causes[len(causes)-1]; c.last != "" && (last.Message != c.last || last.Field != "") || c.last == "" && last.Field == "" {
			t.Errorf("%d problems: the last cause is %+v, want %q", c.problems, last, c.last)
		}
	}
}
