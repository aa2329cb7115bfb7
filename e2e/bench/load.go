// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// connections is the number of connections from a few API servers, and manyConnections from
	// many during a busy hour.
	connections, manyConnections = 8, 64
	// rate is the rate of the open loop, in requests per second.
	rate = 500
)

// newClient returns a client that uses HTTP/1.1 and keeps its connections, as API servers do
// for a Service.
func newClient() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}, //nolint:gosec // this client only measures
		MaxIdleConnsPerHost: manyConnections,
	}}
}

// call is a request that can be sent any number of times.
type call struct {
	client *http.Client
	url    string
	body   []byte
}

func (c *call) do(ctx context.Context) error {
	_, _, err := c.send(ctx) //nolint:bodyclose // send closes it
	return err
}

// send returns the answer and its body, which is read and closed.
func (c *call) send(ctx context.Context) (*http.Response, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"?timeout=5s", bytes.NewReader(c.body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", c.url, response.Status, answer)
	}
	return response, answer, err
}

// answer returns the whole response except the date.
func (c *call) answer(ctx context.Context) (string, error) {
	response, body, err := c.send(ctx) //nolint:bodyclose // send closes it
	if err != nil {
		return "", err
	}
	response.Header.Del("Date")
	response.Body = io.NopCloser(bytes.NewReader(body))
	text, err := httputil.DumpResponse(response, true)
	return string(text), err
}

// closedLoop sends the next request on a connection after each answer, and returns the number
// of answers.
func (c *call) closedLoop(ctx context.Context, connections int, duration time.Duration) (int, error) {
	var answers atomic.Int64
	end := time.Now().Add(duration)
	err := each(connections, func() error {
		for time.Now().Before(end) {
			if err := c.do(ctx); err != nil {
				return err
			}
			answers.Add(1)
		}
		return nil
	})
	return int(answers.Load()), err
}

// openLoop sends at a fixed rate, regardless of the answers. It returns the latency of each
// answer in microseconds, from the moment at which its request was due.
func (c *call) openLoop(ctx context.Context, duration time.Duration) ([]float64, error) {
	n := int(duration.Seconds() * rate)
	latencies := make([]float64, n)
	due := make(chan int, n) // large enough that a busy server never blocks the clock
	start := time.Now().Add(10 * time.Millisecond)
	at := func(i int) time.Time { return start.Add(time.Duration(i) * time.Second / rate) }
	go func() {
		defer close(due)
		pace(n, at, due)
	}()
	err := each(manyConnections, func() error {
		for i := range due {
			if err := c.do(ctx); err != nil {
				return err
			}
			latencies[i] = float64(time.Since(at(i)).Nanoseconds()) / 1000
		}
		return nil
	})
	return latencies, err
}

// pace sends each number when it is due. Go's timers may be late by a millisecond, which is
// longer than an answer takes, so this thread sleeps by itself, and busy-waits at the end.
func pace(n int, at func(int) time.Time, due chan<- int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const awake = 150 * time.Microsecond
	for i := range n {
		if wait := time.Until(at(i)) - awake; wait > 0 {
			sleep(wait)
		}
		for time.Now().Before(at(i)) {
		}
		due <- i
	}
}

// each runs f n times concurrently.
func each(n int, f func() error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f() })
	}
	all.Wait()
	return errors.Join(errs...)
}
