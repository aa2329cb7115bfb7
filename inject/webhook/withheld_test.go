// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// TestWithheld checks that a patch that does more than add, because of any defect, is not sent. The
// pod continues, and administrators get a log line and a metric.
func TestWithheld(t *testing.T) {
	pod := []byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"app","env":[{"name":"A"}]}]}}`)
	added := func(name string) jsontree.Node { // a member with the mark of an addition
		return *new(jsontree.Journal).Add(new(jsontree.Members()), name, jsontree.Items(jsontree.Text("x")))
	}
	for name, fault := range map[string]func(pod *jsontree.Node){
		"an existing key": func(pod *jsontree.Node) { *pod.At("metadata", "labels", "a") = added("a") },
		"a replaced list": func(pod *jsontree.Node) { *pod.At("spec", "containers").Items()[0].Get("env") = added("env") },
		"a missing parent": func(pod *jsontree.Node) {
			pod.Get("spec").Set("affinity", jsontree.Members())
			new(jsontree.Journal).Add(pod.At("spec", "affinity"), "x", jsontree.Text("y"))
		},
		"an index out of range": func(pod *jsontree.Node) {
			list := pod.At("spec", "containers")
			list.Append(jsontree.Text("1"))
			list.Append(jsontree.Text("2"))
			new(jsontree.Journal).Insert(list, 2, jsontree.Text("3"))
		},
	} {
		e := newEdge(load(t, sidecar))
		sound := webhook.Answered(t, e.Handler, pod, func(*inject.Result) {})
		if !strings.Contains(sound, `"patch":`) || e.log.Len() > 0 {
			t.Fatalf("without a fault: %s %s", sound, &e.log)
		}
		answer := webhook.Answered(t, e.Handler, pod, func(r *inject.Result) { fault(r.Injected()) })
		if strings.Contains(answer, `"patch":`) || !strings.Contains(answer, `"allowed":true`) ||
			!strings.Contains(answer, "because of a bug in Pillion") || !strings.Contains(answer, `"patch_withheld":`) || strings.Contains(answer, "injected: ") {
			t.Errorf("%s: %s", name, answer)
		}
		if n := testutil.ToFloat64(counter(t, e, "pillion_webhook_patches_withheld_total")); n != 1 {
			t.Errorf("%s: %v are counted", name, n)
		}
		if !bytes.Contains(e.log.Bytes(), []byte(`"msg":"patch withheld"`)) {
			t.Errorf("%s: the log says %s", name, &e.log)
		}
	}
}
