// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

const controllerServiceAccount = "pillion-controller"

// StartController runs `pillion controller` with the permissions of its shipped ServiceAccount, so the
// manifests must have been applied. It does not wait until the controller is ready.
func (c *Cluster) StartController(ctx context.Context, binary string, flags ...string) (*Pillion, error) {
	kubeconfig, err := c.kubeconfigOf(ctx, controllerServiceAccount)
	if err != nil {
		return nil, err
	}
	address, err := ownAddress(ctx)
	if err != nil {
		return nil, err
	}
	process, err := startProcess(ctx, c.dir, "controller-"+shortID(), binary, append([]string{"controller", "--kubeconfig", kubeconfig, "--admin-listen", address}, flags...)...)
	if err != nil {
		return nil, err
	}
	c.keep(process)
	return &Pillion{Admin: "http://" + address, process: process}, nil
}

// PeakMemory returns the most memory that Pillion has used so far, in bytes.
func (p *Pillion) PeakMemory() (int64, error) { return PeakMemory(p.process.cmd.Process.Pid) }

// PeakMemory returns the most memory that a process has used so far, in bytes (proc_pid_status(5), VmHWM).
func PeakMemory(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, _, _ := strings.Cut(rest, "kB")
	n, err := strconv.ParseInt(strings.TrimSpace(kib), 10, 64)
	return n << 10, err
}

// Kill ends Pillion at once, as a failing machine does.
func (p *Pillion) Kill() { p.process.kill() }
