// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// TestTenantsTakeTurns checks that a tenant with many requests delays one of another tenant by one request only.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := &tenantLimiter{flowcontrol.NewTokenBucketRateLimiter(10, 1), NewFairQueue()}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := limiter.Wait(WithTenant(t.Context(), "noisy")); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		begun := time.Now()
		if err := limiter.Wait(WithTenant(t.Context(), "quiet")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 200*time.Millisecond {
			t.Errorf("another tenant waited for %s", took)
		}
		all.Wait()
		if took := time.Since(begun); took < 9*time.Second {
			t.Errorf("100 requests took %s, so that they were not limited", took)
		}
	})
}

// TestQueueForgets checks that callers that give up let others in, and that nothing is kept of tenants without callers.
func TestQueueForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewFairQueue()
		done, err := q.Wait(WithTenant(t.Context(), "a"))
		if err != nil {
			t.Fatal(err)
		}
		for _, tenant := range []string{"a", "b"} {
			ctx, cancel := context.WithTimeout(WithTenant(t.Context(), tenant), time.Second)
			defer cancel()
			if _, err := q.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller of %s: %v", tenant, err)
			}
		}
		done()
		if done, err = q.Wait(WithTenant(t.Context(), "b")); err != nil {
			t.Fatal(err)
		}
		done()
		if len(q.lines) > 0 || len(q.turn) > 0 {
			t.Errorf("%d tenants are left, and %d callers have their turn", len(q.lines), len(q.turn))
		}
	})
}
