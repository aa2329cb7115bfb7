// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestFailOpen checks the row of fail-open in the table of failure policies: while no replica runs, pods start
// without sidecars, and none is denied.
func TestFailOpen(t *testing.T) {
	installed(t)
	withComponent(t, "fail-open")
	disrupt(t, false, func(t *testing.T, l *load) {
		down := time.Now()
		scaleToZero(t)
		gone := time.Now()
		l.more(t, 10)
		kubectl(t, "-n", pillionNamespace, "scale", "deployment/pillion", "--replicas=2")
		readyPods(t, pillionNamespace, pillionSelector, 2)
		up := time.Now().Add(retryAfter)
		l.mayMiss = func(when time.Time) bool { return when.After(down) && when.Before(up) }
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := len(l.missed); n < 8 || l.missed[n-1].when.Before(gone) {
			t.Errorf("%d pods started without sidecars", n)
		}
	})
}

// TestFailClosed checks the row of fail-closed: while no replica runs, the mutating webhook already denies the
// pods.
func TestFailClosed(t *testing.T) {
	installed(t)
	withComponent(t, "fail-closed")
	disrupt(t, true, func(t *testing.T, l *load) {
		scaleToZero(t)
		eventually(t, "the mutating webhook denies pods", func(context.Context) error {
			if err := l.lastError(); err == nil || !strings.Contains(err.Error(), `.mutate.pillion.dev"`) {
				return fmt.Errorf("the last error is %w", err)
			}
			return nil
		})
		kubectl(t, "-n", pillionNamespace, "scale", "deployment/pillion", "--replicas=2")
		readyPods(t, pillionNamespace, pillionSelector, 2)
	})
}

// withComponent adds a component to the installed overlay until the end of the test.
func withComponent(t *testing.T, name string) {
	t.Helper()
	overlay := overlayDir(t, current)
	kubectl(t, "apply", "--server-side", "-k", customized(t, "components: [MANIFESTS/components/"+name+"]\n"))
	t.Cleanup(func() {
		if _, err := env.RunKubectl(context.WithoutCancel(t.Context()), nil, "apply", "--server-side", "-k", overlay); err != nil {
			t.Error(err)
		}
	})
	waitForRollout(t)
	readyPods(t, pillionNamespace, pillionSelector, 2)
}
