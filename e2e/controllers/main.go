// SPDX-License-Identifier: Apache-2.0

// Command controllers runs only those controllers of Kubernetes that create and delete pods.
// It is for control planes without kube-controller-manager, and compiles in a fraction of the
// time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
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
	flags := flag.NewFlagSet("controllers", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "the `FILE` that says how to reach the cluster")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 0 || *kubeconfig == "" {
		return errors.New("usage: controllers --kubeconfig FILE")
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	return runControllers(ctx, config)
}
