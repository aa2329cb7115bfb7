// SPDX-License-Identifier: Apache-2.0

// Command standin is the program in the pods of the tests: an app, a sidecar, or the process that
// holds the namespaces of a pod. Without flags, it waits for a signal.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	os.Exit(code)
}

// run logs its start and its end, each with the time in nanoseconds.
func run(ctx context.Context, args []string) (int, error) {
	flags := flag.NewFlagSet("standin", flag.ContinueOnError)
	serve := flags.String("serve", "", "answer HTTP requests at this `ADDRESS`: 503 until -ready and after -unready, and 200 between them. A request for /end ends the program")
	ready := flags.Duration("ready", 0, "be ready after this time")
	unready := flags.Duration("unready", 0, "answer 503 again after this time")
	lasts := flags.Duration("for", 0, "end after this time, instead of at a signal")
	linger := flags.Duration("linger", 0, "end this long after the signal")
	needs := flags.String("needs", "", "fail at once unless this `URL` answers with 200")
	code := flags.Int("exit", 0, "end with this exit code")
	write := flags.String("write", "", "try to write this `FILE`, and log the error")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	say("start")
	if *write != "" {
		say(fmt.Sprintf("write %v", os.WriteFile(*write, []byte("x"), 0o600)))
	}
	if *needs != "" {
		if err := get(ctx, *needs); err != nil {
			return 0, err
		}
	}
	failed, asked := make(chan error, 1), make(chan struct{}, 1)
	if *serve != "" {
		go func() { failed <- listen(*serve, *ready, *unready, asked) }()
	}
	var over <-chan time.Time
	if *lasts > 0 {
		over = time.After(*lasts)
	}
	select {
	case err := <-failed:
		return 0, err
	case <-over:
	case <-asked:
	case <-ctx.Done():
		say("signal")
		<-time.After(*linger)
	}
	say("end")
	return *code, nil
}

func say(what string) { fmt.Fprintln(os.Stdout, time.Now().UnixNano(), what) }

func listen(address string, ready, unready time.Duration, asked chan<- struct{}) error {
	started := time.Now()
	server := &http.Server{Addr: address, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lasted := time.Since(started); lasted < ready || unready > 0 && lasted > unready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if r.URL.Path == "/end" {
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	})}
	return server.ListenAndServe()
}

func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(url + ": " + response.Status)
	}
	return nil
}
