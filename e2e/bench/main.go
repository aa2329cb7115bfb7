// SPDX-License-Identifier: Apache-2.0

// Command bench measures what Pillion costs. It compares the handler with other
// implementations, and the server with one that returns a constant answer. It also measures
// what Pillion adds to the creation of a pod on a real kube-apiserver. It measures the
// alternatives in turns in one run. It prints tables, or, with -o json, all measurements.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

type options struct {
	bench, benchtime string
	count            int
	only             string
	output           string
	readme, from     string // paths
}

func main() {
	var o options
	flag.StringVar(&o.bench, "bench", ".", "the `REGEXP` of the handlers' benchmarks, as for go test")
	flag.StringVar(&o.benchtime, "benchtime", "100ms", "how `LONG` each of them runs in a round")
	flag.IntVar(&o.count, "count", 5, "the `NUMBER` of rounds")
	flag.StringVar(&o.only, "only", "handlers,servers,creates", "what `PARTS` to run")
	flag.StringVar(&o.output, "o", "text", "text or json")
	flag.StringVar(&o.readme, "readme", "", "the `FOLDER` of the repository, to write the tables of its pages anew")
	flag.StringVar(&o.from, "from", "", "the `FILE` of an earlier run's JSON, to be reported instead of a run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	s, err := o.samples(ctx)
	if err != nil {
		return err
	}
	if err := o.print(s, out); err != nil || o.readme == "" {
		return err
	}
	return s.writeReadmes(o.readme)
}

func (o *options) print(s samples, out io.Writer) error {
	if o.output == "json" {
		return json.NewEncoder(out).Encode(s)
	}
	for _, section := range sections() {
		text, err := section.write(s)
		if err != nil {
			text = err.Error() + "\n" // an error means that a part of the run is missing
		}
		fmt.Fprintln(out, text)
	}
	return nil
}

// samples measures, or reads earlier measurements.
func (o *options) samples(ctx context.Context) (samples, error) {
	s := samples{}
	if o.from != "" {
		text, err := os.ReadFile(o.from)
		if err != nil {
			return nil, err
		}
		return s, json.Unmarshal(text, &s)
	}
	dir, err := os.MkdirTemp("", "pillion-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if strings.Contains(o.only, "handlers") {
		if err := handlers(ctx, o, dir, s); err != nil {
			return nil, err
		}
	}
	b := &bench{dir: dir, client: newClient(), log: o.say, samples: s}
	workloads, err := b.prepare(ctx)
	if err != nil {
		return nil, err
	}
	if strings.Contains(o.only, "servers") {
		if err := b.servers(ctx, workloads, o.count); err != nil {
			return nil, err
		}
	}
	if strings.Contains(o.only, "creates") {
		return s, b.creates(ctx, o.count)
	}
	return s, nil
}

// roundsEach is the number of pods that each way creates in one round.
const roundsEach = 60

// creates runs the command that needs a control plane.
func (b *bench) creates(ctx context.Context, rounds int) error {
	b.log("creates on kube-apiserver")
	var out bytes.Buffer
	err := commandIn(ctx, &out, "..", "go", "run", "./creates", "-pod", b.path("pod.json"), "-templates", b.path("pillion.templates"),
		"-constant", b.path("constant"), "-answer", b.path("injected.json"), "-rounds", strconv.Itoa(rounds*roundsEach))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out.Bytes(), &b.samples); err != nil {
		return err
	}
	b.added(roundsEach)
	return nil
}

func (*options) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
