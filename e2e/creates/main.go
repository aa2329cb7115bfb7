// SPDX-License-Identifier: Apache-2.0

// Command creates measures on a real kube-apiserver how much time webhooks add to the creation
// of a pod, and how much memory Pillion needs for a namespace. It prints the measurements as
// JSON by name. `make bench` runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/programs"
)

type options struct {
	pod, templates   string // paths
	constant, answer string // paths of the program and of its answer for /mutate
	rounds           int
	namespaces       int
}

func main() {
	var o options
	flag.StringVar(&o.pod, "pod", "", "the `FILE` of the pod that is created, JSON")
	flag.StringVar(&o.templates, "templates", "", "the `FOLDER` of Pillion's templates")
	flag.StringVar(&o.constant, "constant", "", "the `FILE` of the program that always gives the same answer")
	flag.StringVar(&o.answer, "answer", "", "the `FILE` of that answer")
	flag.IntVar(&o.rounds, "rounds", 300, "how often each pod is created")
	flag.IntVar(&o.namespaces, "namespaces", 2000, "how many namespaces Pillion gets to know")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	measured, err := o.run(ctx)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(measured)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// way is a set of webhooks with which pods are created.
type way struct {
	name  string
	ns    string
	edit  func(*corev1.Pod)
	extra int // number of containers that it should add
}

func (o *options) run(ctx context.Context) (_ map[string][]float64, err error) {
	c, err := cluster.Start(ctx, programs.NewSteps(os.Stderr))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	text, err := os.ReadFile(o.pod)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(text, pod); err != nil {
		return nil, err
	}
	pod.OwnerReferences = nil // otherwise, the garbage collector deletes the pods
	b := &bench{Cluster: c, options: o, pod: pod, measured: map[string][]float64{}}
	defer b.stopServers()
	ways, err := b.install(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.createAll(ctx, ways); err != nil {
		return nil, err
	}
	return b.measured, b.namespacesKnown(ctx)
}

// bench is one run.
type bench struct {
	*cluster.Cluster
	*options
	pod      *corev1.Pod
	binary   string
	servers  []*exec.Cmd // with constant answers
	measured map[string][]float64
}

// createAll creates pods in all ways in turns, and records the times in ms. Each round has one
// time for each way, so that ways can be compared in pairs.
func (b *bench) createAll(ctx context.Context, ways []way) error {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range b.rounds {
		for _, i := range random.Perm(len(ways)) { // random order, because one creation may affect the next
			w := ways[i]
			pod := b.pod.DeepCopy()
			pod.Name, pod.GenerateName = fmt.Sprint("pod-", w.name, "-", round), ""
			w.edit(pod)
			begun := time.Now()
			created, err := b.Client.CoreV1().Pods(w.ns).Create(ctx, pod, metav1.CreateOptions{})
			took := time.Since(begun)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if got := len(created.Spec.InitContainers); got != w.extra {
				return fmt.Errorf("%s: the pod has %d init containers, want %d", w.name, got, w.extra)
			}
			name := "create/" + w.name
			b.measured[name] = append(b.measured[name], took.Seconds()*1000)
		}
	}
	return nil
}
