// SPDX-License-Identifier: Apache-2.0

package main

import (
	"container/heap"
	"math/rand/v2"
	"slices"
)

// model is a cluster in which pods are created, with replicas of Pillion. Times are in
// seconds.
type model struct {
	replicas, cores int     // a call waits for one core of one replica, which the Service picks at random
	rate            float64 // random creates per second
	burst           int     // additional creates at once, for each burst
	every, length   float64 // interval and duration of bursts
	patience        float64 // a call that would wait longer gets HTTP 429, and is sent again a second later
	timeout         float64 // a call is not sent again later than this after the first time: then it is rejected
	apiServer       float64 // time between the first webhook's answer and the call of the second
	classes         []class
}

// class is a kind of pod: its share, and the CPU time of each call.
type class struct{ share, mutate, validate float64 }

// outcome is the result of the calls.
type outcome struct {
	waits []float64 // waits of the answered calls since they were sent for the first time, sorted
	again float64   // share of calls that were sent again
	shed  float64   // share of rejected calls
	busy  float64   // share of the cores' time in use
}

// quantile returns a quantile of the waits.
func (o *outcome) quantile(q float64) float64 { return quantile(o.waits, q) }

// arrival is a call.
type arrival struct {
	at    float64
	sent  float64 // for the first time
	class *class
	final bool // a call of the second webhook
}

type arrivals []arrival

func (a arrivals) Len() int           { return len(a) }
func (a arrivals) Less(i, j int) bool { return a[i].at < a[j].at }
func (a arrivals) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *arrivals) Push(v any)        { *a = append(*a, v.(arrival)) }

func (a *arrivals) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// simulate runs the model. It is deterministic.
func (m model) simulate() outcome {
	random := rand.New(rand.NewPCG(1, 2))
	calls := m.creates(random)
	heap.Init(&calls)
	free := make([][]float64, m.replicas) // when each core will be free
	for i := range free {
		free[i] = make([]float64, m.cores)
	}
	var o outcome
	var all, again, shed, work float64
	for calls.Len() > 0 {
		c := heap.Pop(&calls).(arrival)
		first := c.at == c.sent
		if first {
			all++
		}
		replica := free[random.IntN(m.replicas)]
		slices.Sort(replica)
		wait := max(0, replica[0]-c.at)
		if wait > m.patience {
			if first {
				again++
			}
			if c.at++; c.at > c.sent+m.timeout {
				shed++
			} else {
				heap.Push(&calls, c)
			}
			continue
		}
		o.waits = append(o.waits, c.at+wait-c.sent)
		takes := c.class.mutate
		if c.final {
			takes = c.class.validate
		}
		work += takes
		replica[0] = c.at + wait + takes
		if !c.final {
			final := replica[0] + m.apiServer
			heap.Push(&calls, arrival{final, final, c.class, true})
		}
	}
	slices.Sort(o.waits)
	o.again, o.shed, o.busy = again/all, shed/all, work/(m.length*float64(m.replicas*m.cores))
	return o
}

// creates returns the first calls for all pods.
func (m model) creates(random *rand.Rand) arrivals {
	var all arrivals
	for at := random.ExpFloat64() / m.rate; at < m.length; at += random.ExpFloat64() / m.rate {
		all = append(all, arrival{at: at, sent: at, class: m.pick(random)})
	}
	for at := m.every; m.burst > 0 && at < m.length; at += m.every {
		for range m.burst {
			all = append(all, arrival{at: at, sent: at, class: m.pick(random)})
		}
	}
	return all
}

func (m model) pick(random *rand.Rand) *class {
	at := random.Float64()
	for i := range m.classes {
		if at -= m.classes[i].share; at < 0 {
			return &m.classes[i]
		}
	}
	return &m.classes[0]
}
