// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestProgress checks that progress prints nothing for two seconds, then a line now and then, and
// leaves no line behind.
func TestProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &Progress{w: &out}
	p.Start()
	p.Say("%d pods", 500)
	p.End()
	if out.Len() > 0 {
		t.Errorf("at once it says %q", &out)
	}
	p.Start()
	p.next = time.Now()
	p.Say("%d pods", 500)
	p.Say("%d pods", 501)
	if got := strings.TrimSpace(out.String()); got != "500 pods ..." {
		t.Errorf("it says %q", got)
	}
	p.End()
	if blank := "\r" + strings.Repeat(" ", 60) + "\r"; !strings.HasSuffix(out.String(), blank) {
		t.Errorf("it leaves %q", &out)
	}
	n := out.Len()
	if p.End(); out.Len() > n {
		t.Error("it removes the message twice")
	}
	new(Progress).End() // it never appears
}
