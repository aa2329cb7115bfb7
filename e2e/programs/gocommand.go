// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Root returns the root of the checkout with this module.
func Root(ctx context.Context) (string, error) {
	module, err := moduleDir(ctx)
	return filepath.Dir(module), err
}

// ownModule is this module, which the module e2e/node requires.
const ownModule = "github.com/pillion-dev/pillion/e2e"

// moduleDir returns the folder of this module, e2e.
func moduleDir(ctx context.Context) (string, error) {
	return goList(ctx, "", nil, "-m", "-f", "{{.Dir}}", ownModule)
}

// version returns the version of a module that the module in dir builds with.
func version(ctx context.Context, dir, module string) (string, error) {
	return goList(ctx, dir, nil, "-m", "-f", "{{.Version}}", module)
}

// goList runs go list in dir. Downloads count as progress.
func goList(ctx context.Context, dir string, progress *Progress, args ...string) (string, error) {
	var out bytes.Buffer
	said := &goOutput{progress: progress}
	cmd := goCommand(ctx, dir, append([]string{"list"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, said
	if err := runHere(cmd); err != nil {
		return "", fmt.Errorf("go list %s: %w\n%s", strings.Join(args, " "), err, said.tail())
	}
	return strings.TrimSpace(out.String()), nil
}

// Build compiles a package of the module in dir, and shows its progress. The flags are those
// of go build.
func Build(ctx context.Context, dir, pkg string, progress *Progress, flags ...string) error {
	all, err := goList(ctx, dir, progress, "-deps", pkg)
	if err != nil {
		return err
	}
	packages := strings.Split(all, "\n")
	said := &goOutput{progress: progress, packages: len(packages), command: packages[len(packages)-1]}
	cmd := goCommand(ctx, dir, append(append([]string{"build", "-v"}, flags...), pkg)...)
	cmd.Stdout, cmd.Stderr = said, said
	if err := runHere(cmd); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, said.tail())
	}
	return nil
}

func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.SysProcAttr = ChildAttributes()
	return cmd
}

// runHere keeps the thread, as ChildAttributes requires.
func runHere(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("the go command is not in the PATH: install Go 1.26 or newer (https://go.dev/doc/install): %w", err)
	}
	return err
}

// runCommand runs a command with these variables in addition to the caller's, and returns what it printed to its standard
// output. Its error contains everything that it printed.
func runCommand(ctx context.Context, dir string, environ []string, name string, args ...string) (string, error) {
	var out, all bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, append(os.Environ(), environ...), ChildAttributes()
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, &all), &all
	if err := runHere(cmd); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(all.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// goOutput is the output of a go command: progress (compiled packages and downloaded modules),
// and errors.
type goOutput struct {
	progress *Progress
	packages int    // total number
	command  string // the latest one
	compiled int
	modules  int // downloaded modules
	partial  []byte
	other    []string
}

func (o *goOutput) Write(p []byte) (int, error) {
	o.partial = append(o.partial, p...)
	for {
		line, rest, ok := bytes.Cut(o.partial, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		o.line(string(line))
		o.partial = rest
	}
}

func (o *goOutput) line(line string) {
	switch module, downloads := strings.CutPrefix(line, "go: downloading "); {
	case downloads:
		o.modules++
		o.progress.Set("downloading module %d, %s", o.modules, module)
	case o.packages > 0 && !strings.ContainsAny(line, " \t:"):
		o.compiled++
		if line == o.command {
			o.progress.Set("linking")
			return
		}
		o.progress.Set("package %d of at most %d", o.compiled, o.packages)
	default:
		o.other = append(o.other, line)
	}
}

func (o *goOutput) tail() string {
	const enough = 30
	lines := append(o.other, string(o.partial))
	return strings.TrimSpace(strings.Join(lines[max(0, len(lines)-enough):], "\n"))
}
