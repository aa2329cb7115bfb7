// SPDX-License-Identifier: Apache-2.0

// Command binaries builds what the tests run on, when it is missing: the control plane, which the demo runs on
// too, and cert-manager. It prints the folders that they are in. `go test` shows nothing while it runs, this does.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	steps := cluster.NewSteps(os.Stderr)
	for _, build := range []func(context.Context, *cluster.Steps) (string, error){cluster.Binaries, cluster.CertManagerBinaries} {
		dir, err := build(ctx, steps)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(dir)
	}
}
