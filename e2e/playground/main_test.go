// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

const (
	root = "../.."
	page = root + "/bin/playground"
)

// neededPrograms come from the Debian packages that make setup-browser installs.
var neededPrograms = []string{"node", "npm", "chromium"}

var browser context.Context // of chromedp

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if missing := missingPrograms(); len(missing) > 0 {
		fmt.Fprintf(os.Stderr, "the tests of the playground need %s: run sudo make setup-browser, which installs Debian's packages\n", strings.Join(missing, ", "))
		return 1
	}
	if out, err := exec.CommandContext(ctx, "make", "-C", root, "playground").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "make playground: %v\n%s\n", err, out)
		return 1
	}
	stop, err := start(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	return m.Run()
}

func missingPrograms() (missing []string) {
	for _, program := range neededPrograms {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	return missing
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
