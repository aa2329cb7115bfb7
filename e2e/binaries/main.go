// SPDX-License-Identifier: Apache-2.0

// Command binaries builds the control plane that the tests and the demo run on, when it is missing, and
// prints the folder that it is in. `go test` shows nothing while it runs, this does.
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
	dir, err := cluster.Binaries(ctx, cluster.NewSteps(os.Stderr))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
