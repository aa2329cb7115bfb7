// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/e2e/programs"
)

// releaseTag is the tag of the image in the manifests, and otherTag is another name of the same image,
// for a rolling update.
const (
	releaseTag = "v0.1.0"
	otherTag   = "v0.1.1"
)

var (
	// env is set before the first test.
	env     *Node
	figures report
)

func TestMain(m *testing.M) {
	programs.ClearEnvironment()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	steps := programs.NewSteps(os.Stderr)
	started := time.Now()
	inside, dir, code, err := Enter(ctx, func(ctx context.Context, dir string) error { return prepare(ctx, steps, dir) })
	switch {
	case inside:
		code, err = runTests(ctx, m, steps, dir)
	case err == nil && code == 0 && os.Getenv(stageVariable) == "":
		fmt.Fprintf(os.Stderr, "all tests on a node took %s\n", time.Since(started).Round(time.Second))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// prepare does what needs the machine's network, and everything that takes long the first time.
func prepare(ctx context.Context, steps *programs.Steps, dir string) error {
	if minor := os.Getenv("KUBERNETES"); minor != "" {
		return fmt.Errorf("a node runs the Kubernetes of e2e/node/go.mod: unset KUBERNETES=%s", minor)
	}
	if err := checkMachine(ctx, dir); err != nil {
		return err
	}
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		steps.Say("KUBEBUILDER_ASSETS is not used, because its programs have no kubelet")
		if err := os.Unsetenv("KUBEBUILDER_ASSETS"); err != nil {
			return err
		}
	}
	found, err := programs.Kubernetes(ctx, steps)
	if err != nil {
		return err
	}
	if _, err := programs.Node(ctx, steps); err != nil {
		return err
	}
	if _, err := programs.CertManager(ctx, steps); err != nil {
		return err
	}
	if _, err := programs.Helm(ctx, steps); err != nil {
		return err
	}
	variable, err := found.Environ() // for this program in the new namespaces
	if err != nil {
		return err
	}
	name, value, _ := strings.Cut(variable, "=")
	if err := os.Setenv(name, value); err != nil {
		return err
	}
	return BuildImages(ctx, steps, dir, releaseTag, otherTag)
}

func runTests(ctx context.Context, m *testing.M, steps *programs.Steps, dir string) (code int, err error) {
	started := time.Now()
	if env, err = Start(ctx, steps, dir); err != nil {
		return 0, err
	}
	figures.add("cluster", "from nothing to a node that is ready", seconds(time.Since(started)))
	defer func() { err = errors.Join(err, env.Stop()) }()
	code = m.Run()
	figures.print()
	if *update && code == 0 {
		err = figures.write(time.Since(started))
	}
	return code, err
}
