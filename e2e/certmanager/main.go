// SPDX-License-Identifier: Apache-2.0

// Command certmanager runs one of two programs of cert-manager: its controllers, or
// cainjector. It leaves out what only a cluster needs: leader election, metrics and health
// checks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	programs := map[string]func(context.Context, string) error{"controllers": runControllers, "cainjector": runInjector}
	flags := flag.NewFlagSet("certmanager", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "the `FILE` that says how to reach the cluster")
	if err := flags.Parse(args); err != nil {
		return err
	}
	program, ok := programs[flags.Arg(0)]
	if !ok || flags.NArg() != 1 || *kubeconfig == "" {
		return errors.New("usage: certmanager --kubeconfig FILE controllers|cainjector")
	}
	ctrl.SetLogger(klog.Background())
	return program(ctx, *kubeconfig)
}
