// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"sync"

	"k8s.io/client-go/util/flowcontrol"
)

// tenantKey is the key of the tenant in a context.
type tenantKey struct{}

// WithTenant returns a context for work that a tenant causes: the namespace of a template, or "" for a template of the cluster.
func WithTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

func tenantOf(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
}

// FairQueue lets one caller in at a time. Of each tenant, only one caller at a time waits in the queue, so that a caller of a tenant with
// many callers does not make the callers of other tenants wait longer.
type FairQueue struct {
	turn chan struct{} // Go serves blocked senders in the order in which they came

	mu    sync.Mutex
	lines map[string]*line // by tenant
}

// line is the callers of one tenant. The first of them waits in the queue.
type line struct {
	first   chan struct{}
	callers int
}

// NewFairQueue returns an empty queue.
func NewFairQueue() *FairQueue {
	return &FairQueue{turn: make(chan struct{}, 1), lines: map[string]*line{}}
}

// Wait returns when it is the turn of a caller, or an error when ctx is done. The caller has to call done at its end.
func (q *FairQueue) Wait(ctx context.Context) (done func(), err error) {
	tenant := tenantOf(ctx)
	l := q.joinLine(tenant)
	select {
	case l.first <- struct{}{}:
	case <-ctx.Done():
		q.leaveLine(tenant, l)
		return nil, ctx.Err()
	}
	select {
	case q.turn <- struct{}{}:
		return func() { <-q.turn; <-l.first; q.leaveLine(tenant, l) }, nil
	case <-ctx.Done():
		<-l.first
		q.leaveLine(tenant, l)
		return nil, ctx.Err()
	}
}

func (q *FairQueue) joinLine(tenant string) *line {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[tenant]
	if l == nil {
		l = &line{first: make(chan struct{}, 1)}
		q.lines[tenant] = l
	}
	l.callers++
	return l
}

func (q *FairQueue) leaveLine(tenant string, l *line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.callers--; l.callers == 0 {
		delete(q.lines, tenant)
	}
}

// tenantLimiter is a rate limiter in which tenants take turns.
type tenantLimiter struct {
	flowcontrol.RateLimiter

	queue *FairQueue
}

// Wait implements [flowcontrol.RateLimiter].
func (l *tenantLimiter) Wait(ctx context.Context) error {
	done, err := l.queue.Wait(ctx)
	if err != nil {
		return err
	}
	defer done()
	return l.RateLimiter.Wait(ctx)
}
