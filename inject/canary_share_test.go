// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"testing"

	"github.com/pillion-dev/pillion/inject/workloads"
)

// TestHundredth checks that the numbers of workloads never change, and that they are even.
func TestHundredth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		namespace string
		of        workloads.Owner
		template  string
		want      int
	}{ // computed apart from this code
		{"shop", workloads.Owner{Kind: "Deployment", Name: "web"}, "agent-next", 6},
		{"shop", workloads.Owner{Kind: "Deployment", Name: "cart"}, "agent-next", 65},
		{"", workloads.Owner{Kind: "Pod", Name: ""}, "agent-next", 70},
	} {
		if got := shareBucket(c.namespace, c.of, c.template); got != c.want {
			t.Errorf("%v in %s has the number %d for %s, want %d", c.of, c.namespace, got, c.template, c.want)
		}
	}
	const n = 100_000
	var counts [100]int
	for i := range n {
		counts[shareBucket("shop", workloads.Owner{Kind: "Deployment", Name: fmt.Sprint("web-", i)}, "agent-next")]++
	}
	for number, same := range counts {
		if same < n/100*8/10 || same > n/100*12/10 {
			t.Errorf("%d of %d workloads have the number %d", same, n, number)
		}
	}
	same := 0
	for i := range 1000 {
		of := workloads.Owner{Kind: "Deployment", Name: fmt.Sprint("web-", i)}
		if (shareBucket("shop", of, "a") < 50) == (shareBucket("shop", of, "b") < 50) {
			same++
		}
	}
	if same < 400 || same > 600 {
		t.Errorf("two templates take the same %d of 1000 workloads", same)
	}
}
