// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/pillion-dev/pillion/inject"
)

// TestOverview checks the summary of many reports, and that those with problems come first and keep their order.
func TestOverview(t *testing.T) {
	t.Parallel()
	object := func(kind, name string) Object { return Object{Kind: kind, Name: name} }
	fine := &Report{Object: object("Deployment", "fine"), Same: []Object{object("Deployment", "also")}}
	outdated := &Report{Object: object("Deployment", "outdated"), Running: &Running{Behind: []Reason{{State: Outdated}}}}
	lacks := &Report{Object: object("Deployment", "lacks"), Running: &Running{Behind: []Reason{{State: Missing}}}}
	failed := &Report{Object: object("Pod", "failed"), Templates: []Template{{Code: inject.CodeConflict}}}
	denied := &Report{Object: object("Deployment", "denied"), Final: Final{Verdict: "denied"}, Same: []Object{object("Deployment", "too")}}
	outside := &Report{Object: object("Deployment", "outside"), OptedIn: "If the namespace opted in, the pod would get 1 template."}
	for want, reports := range map[string][]*Report{
		"No problems: 2 workloads in the namespace shop.":                                           {fine},
		"No problems: 1 workload in the namespace shop.":                                            {outdated},
		"No problems: 1 workload in the namespace shop; none of them has opted in.":                 {outside},
		"Problems: 1 of 1 pod in the namespace shop.":                                               {failed},
		"Problems: 4 of 7 workloads and pods in the namespace shop, of which 2 are denied or fail.": {fine, lacks, outdated, failed, denied},

		"Problems: 2 of 5 workloads in the namespace shop, of which 2 are denied or fail; 1 of them has not opted in.": {fine, outside, denied},
	} {
		if got := Overview(reports, " in the namespace shop"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	all := []*Report{fine, lacks, outdated, failed, denied}
	SortBySeverity(all)
	got := ""
	for _, r := range all {
		got += r.Object.Name + " "
	}
	if got != "denied lacks failed fine outdated " {
		t.Errorf("the order is %s", got)
	}
}
