// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
)

// process is a server under measurement.
type process struct {
	cmd   *exec.Cmd
	url   string        // URL of its webhooks
	ready time.Duration // time from its start until it was ready
}

// start runs a server and waits until probe answers. The server's log goes to /dev/null, so
// that the cost of writing it is included.
func start(ctx context.Context, probe, url, binary string, args []string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, binary, args...), url: url}
	p.cmd.Env = clitest.CleanEnvironment(os.Environ())
	client := newClient()
	defer client.CloseIdleConnections()
	begun := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for time.Since(begun) < 10*time.Second {
		if answers(ctx, client, probe) {
			p.ready = time.Since(begun)
			return p, nil
		}
		sleep(time.Millisecond)
	}
	p.stop()
	return nil, fmt.Errorf("%s did not answer on %s", strings.Join(p.cmd.Args, " "), probe)
}

func answers(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err == nil && response.StatusCode != http.StatusServiceUnavailable
}

// stop kills the server without waiting for its graceful shutdown.
func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// tick is USER_HZ of Linux, the unit of times in /proc.
const tick = 10 * time.Millisecond

// cpu returns the CPU time of the process, user and system (proc_pid_stat(5), utime and
// stime).
func (p *process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, errors.New("/proc/PID/stat is not as expected")
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// peak returns the peak memory of the process in MiB (proc_pid_status(5), VmHWM).
func (p *process) peak() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kB, _, _ := strings.Cut(rest, "kB")
	n, err := strconv.Atoi(strings.TrimSpace(kB))
	return float64(n) / 1024, err
}

// freeAddress returns an address that is free at the moment.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
