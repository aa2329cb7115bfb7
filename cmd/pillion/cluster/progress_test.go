// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestProgress: nothing for two seconds, then a line now and then, and none left behind.
func TestProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &progress{w: &out}
	p.start()
	p.say(500, 1, 3)
	p.end()
	if out.Len() > 0 {
		t.Errorf("at once it says %q", &out)
	}
	p.start()
	p.next = time.Now()
	p.say(500, 1, 3)
	p.say(501, 1, 3)
	if got := strings.TrimSpace(out.String()); got != "500 pods, 1 of 3 namespaces ..." {
		t.Errorf("it says %q", got)
	}
	p.end()
	if blank := "\r" + strings.Repeat(" ", 60) + "\r"; !strings.HasSuffix(out.String(), blank) {
		t.Errorf("it leaves %q", &out)
	}
	new(progress).end() // nobody sees it
}
