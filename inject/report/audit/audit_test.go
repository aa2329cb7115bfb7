// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"
)

// update is the event of a webhook's patch to a pod that exists.
func update(namespace, uid string) string {
	return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"update","responseStatus":{"code":200},` +
		`"objectRef":{"resource":"pods","namespace":"` + namespace + `","name":"web"},"responseObject":{"metadata":{"uid":"` + uid + `"}},` +
		`"annotations":{"x.pillion.dev/a":"b","mutation.webhook.admission.k8s.io/round_0_index_0":"{\"webhook\":\"w\",\"mutated\":true}",` +
		`"patch.webhook.admission.k8s.io/round_0_index_0":"p","failed-open.mutation.webhook.admission.k8s.io/round_0_index_1":"a.pillion.dev"}}`
}

// FuzzAdd checks that every line of a log is counted or reported in one line, and that the report
// can be parsed.
func FuzzAdd(f *testing.F) {
	for _, line := range []string{"", "{", "[]", `{"kind":"Event"}`, update("shop", "u"), update(`\u001b[2J\n`, ""), strings.Replace(update("shop", "u"), "round_0", "round_1", 2)} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		l := New()
		for range loopAt + 1 {
			if err := l.Add([]byte(line)); err != nil && strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Errorf("the error is %q", err)
			}
		}
		r := l.Report()
		if text := r.Text(); strings.Count(text, "\n") > 20+strings.Count(line, "/")+strings.Count(line, ",") {
			t.Errorf("the text is %q", text)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
		if r.Requests+r.DryRuns > l.Events() || r.Decided > r.Requests {
			t.Errorf("%+v of %d events", r, l.Events())
		}
	})
}

// TestBounded checks that memory does not grow with the log, and that a loop is found among many
// other requests.
func TestBounded(t *testing.T) {
	t.Parallel()
	l := New()
	for i := range maxPatches + 10 {
		if err := l.Add([]byte(update("shop", fmt.Sprint(i)))); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.patches) != 10 || len(l.counts) != 2 {
		t.Errorf("it remembers %d patches and %d counts", len(l.patches), len(l.counts))
	}
	for i := range loopAt {
		if got := len(l.Report().Loops); got != 0 {
			t.Errorf("%d loops after %d of the same", got, i)
		}
		_ = l.Add([]byte(update("shop", "again")))
	}
	if got := l.Report().Loops; len(got) != 1 || got[0].Requests != 1 {
		t.Errorf("loops are %v", got)
	}
}
