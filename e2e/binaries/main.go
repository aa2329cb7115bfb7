// SPDX-License-Identifier: Apache-2.0

// Command binaries builds the programs that tests run, if they are missing: the control plane,
// which the demo also uses, and cert-manager. Unlike `go test`, it shows its progress. If it
// gets the folder of a command of this module (make demo: ./demo), it downloads or builds the
// control plane, builds that command, and then executes the command.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/pillion-dev/pillion/e2e/programs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		return become(ctx, args[0])
	}
	steps := programs.NewSteps(os.Stderr)
	found, err := programs.Kubernetes(ctx, steps)
	if err != nil {
		return err
	}
	if err := found.NeedKubectl(ctx, steps); err != nil {
		return err
	}
	if _, err := programs.CertManager(ctx, steps); err != nil {
		return err
	}
	_, err = programs.Helm(ctx, steps)
	return err
}

// become builds a command and replaces this process by it.
func become(ctx context.Context, folder string) error {
	steps := programs.NewSteps(os.Stdout)
	found, err := programs.DemoKubernetes(ctx, steps)
	if err != nil {
		return err
	}
	root, err := programs.Root(ctx)
	if err != nil {
		return err
	}
	command := filepath.Join(root, "bin", filepath.Base(folder))
	err = steps.Follow("go build "+folder, func(progress *programs.Progress) error {
		return programs.Build(ctx, "", folder, progress, "-o", command)
	})
	if err != nil {
		return err
	}
	variable, err := found.Environ()
	if err != nil {
		return err
	}
	return syscall.Exec(command, []string{command}, append(os.Environ(), variable))
}
