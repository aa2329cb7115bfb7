// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const (
	root = "../.."
	page = root + "/bin/playground"
)

// needed are programs, and the Debian packages that have them.
var needed = []struct{ program, pkg string }{{"node", "nodejs"}, {"npm", "npm"}, {"chromium", "chromium"}}

// installWithin is how long apt-get may take.
const installWithin = 10 * time.Minute

var (
	unfit   error           // what the machine lacks for these tests
	browser context.Context // of chromedp
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if unfit = install(ctx); unfit == nil {
		if out, err := command(ctx, "make", "-C", root, "playground"); err != nil {
			fmt.Fprintf(os.Stderr, "make playground: %v\n%s\n", err, out)
			return 1
		}
		stop, err := start(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer stop()
	}
	return m.Run()
}

func command(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return cmd.CombinedOutput()
}

func missing() (packages []string) {
	for _, n := range needed {
		if _, err := exec.LookPath(n.program); err != nil && !slices.Contains(packages, n.pkg) {
			packages = append(packages, n.pkg)
		}
	}
	return packages
}

// install installs Debian packages that are missing, if this process may. The error is what the machine lacks.
func install(ctx context.Context) error {
	packages := missing()
	if len(packages) == 0 {
		return nil
	}
	lacks := "Debian's packages " + strings.Join(packages, ", ")
	if apt, err := exec.LookPath("apt-get"); err != nil || os.Getuid() != 0 || apt == "" {
		return errors.New("it needs " + lacks)
	}
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, packages...)} {
		if out, err := command(ctx, "apt-get", args...); err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return fmt.Errorf("it needs %s, and apt-get %s failed: %s", lacks, args[0], lines[len(lines)-1])
		}
	}
	return nil
}

// start starts the browser.
func start(ctx context.Context) (stop func(), err error) {
	data, err := os.MkdirTemp("", "playground-")
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.UserDataDir(data),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 1400),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("font-render-hinting", "none"), chromedp.Flag("force-device-scale-factor", "1"))
	allocator, cancelAllocator := chromedp.NewExecAllocator(ctx, options...)
	within, cancel := chromedp.NewContext(allocator)
	if err := chromedp.Do(within); err != nil {
		return nil, fmt.Errorf("chromium does not start: %w", err)
	}
	browser = within
	return func() {
		cancel()
		cancelAllocator()
		_ = os.RemoveAll(data)
	}, nil
}
