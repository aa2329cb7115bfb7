// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/pillion-dev/pillion/e2e/programs"
)

const (
	stopGrace  = 10 * time.Second
	tailLength = 25
)

// process is a child process that does not outlive this one.
type process struct {
	name string
	log  string // path of its output
	cmd  *exec.Cmd
	done chan struct{} // closed after its end
	err  error         // exit error; read after done
}

// startProcess runs binary with its output in dir/name.log.
func startProcess(ctx context.Context, dir, name, binary string, args ...string) (*process, error) {
	return run(dir, name, exec.CommandContext(context.WithoutCancel(ctx), binary, args...)) // until it is stopped
}

// startKubernetes is startProcess for Kubernetes' own programs. They collect garbage less often, because much of what
// these short-lived processes do is to start, with a growing heap.
func startKubernetes(ctx context.Context, dir, name, binary string, args ...string) (*process, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, args...)
	cmd.Env = append(os.Environ(), "GOGC=400")
	return run(dir, name, cmd)
}

// run starts cmd with its output in dir/name.log.
func run(dir, name string, cmd *exec.Cmd) (*process, error) {
	log := filepath.Join(dir, name+".log")
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = programs.ChildAttributes()

	p := &process{name: name, log: log, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel kills the child when the thread that started it ends, so that thread must
		// stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// waitUntil polls ready. If the process ends, it returns an error with the end of its log.
func (p *process) waitUntil(ctx context.Context, what string, ready func(context.Context) bool) error {
	var poll poller
	for {
		if ready(ctx) {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended (%s) before it was %s; its log ends with\n%s", p.name, fmt.Sprint(p.err), what, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s was not %s in time (%w); its log ends with\n%s", p.name, what, ctx.Err(), p.tail())
		case <-poll.next():
		}
	}
}

// stop terminates the process, and kills it if it does not end.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return p.err
	case <-time.After(stopGrace):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not end within %s of SIGTERM", p.name, stopGrace)
	}
}

// kill ends the process at once, as a failing machine does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text), tailLength)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func stderrOf(err error) string {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return "\n" + strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}
