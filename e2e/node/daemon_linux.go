// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// restartAfter is as long as systemd waits for the kubelet on most nodes.
const restartAfter = 500 * time.Millisecond

// daemon is a program that is started again when it ends, as systemd does.
type daemon struct {
	name, log string
	command   []string

	mu      sync.Mutex
	cmd     *exec.Cmd
	stopped bool
	ends    int
	done    chan struct{} // closed after the last end
}

// startDaemon starts the program with its output in dir/name.log.
func startDaemon(ctx context.Context, dir, name string, command ...string) (*daemon, error) {
	d := &daemon{name: name, log: filepath.Join(dir, name+".log"), command: command, done: make(chan struct{})}
	out, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go func() {
		defer close(d.done)
		defer out.Close()
		d.run(context.WithoutCancel(ctx), out, started)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return d, nil
}

// run starts the program until it is stopped. Only the first start may fail.
func (d *daemon) run(ctx context.Context, out *os.File, started chan<- error) {
	for first := true; ; first = false {
		d.mu.Lock()
		if d.stopped {
			d.mu.Unlock()
			return
		}
		cmd := exec.CommandContext(ctx, d.command[0], d.command[1:]...)
		cmd.Stdout, cmd.Stderr = out, out
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // dies with the namespaces
		err := cmd.Start()
		d.cmd = cmd
		d.mu.Unlock()
		if first {
			started <- err
		}
		if err != nil {
			return
		}
		_ = cmd.Wait()
		d.mu.Lock()
		d.ends++
		stopped := d.stopped
		d.mu.Unlock()
		if stopped {
			return
		}
		<-time.After(restartAfter)
	}
}

// kill ends the program as a power cut does, and does not start it again.
func (d *daemon) kill() {
	d.mu.Lock()
	d.stopped = true
	_ = d.cmd.Process.Kill()
	d.mu.Unlock()
	<-d.done
}

func (d *daemon) tail() string {
	text, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	const enough = 15
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return fmt.Sprintf("%s ended %d times; its log ends with\n%s", d.name, d.ends, strings.Join(lines[max(0, len(lines)-enough):], "\n"))
}
