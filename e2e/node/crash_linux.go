// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Crash does what a power cut does to the node: it kills the kubelet, containerd, kube-proxy and
// every container, and removes what the kernel forgets: network namespaces, mounts and firewall
// rules. Files stay. It returns the number of killed processes. Boot starts the node again.
func (n *Node) Crash(ctx context.Context) (killed int, err error) {
	for _, d := range slices.Backward(n.daemons) {
		d.kill()
	}
	killed, n.daemons = len(n.daemons), nil
	killed += killAll(n.containerProcesses())
	return killed, errors.Join(n.unmountAll(), forgetNetwork(ctx), removeCgroups(n.dir), makeCgroups(n.dir))
}

// containerProcesses returns the processes of all containers, and their shims.
func (n *Node) containerProcesses() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		groups, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		name, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
		if strings.Contains(string(groups), "/"+cgroupName(n.dir)) || strings.HasPrefix(string(name), "containerd-shim") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func killAll(pids []int) int {
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return len(pids)
}

// unmountAll removes all mounts of pods and containers.
func (n *Node) unmountAll() error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	var errs []error
	var targets []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if target := fields[4]; strings.HasPrefix(target, n.dir+"/") || strings.HasPrefix(target, "/run/") || strings.HasPrefix(target, "/var/lib/") {
			targets = append(targets, target)
		}
	}
	for _, target := range slices.Backward(targets) {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", target, err))
		}
	}
	for _, dir := range []string{"/run/netns", "/run/containerd", "/var/lib/cni/networks", n.path("containerd-state")} {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// forgetNetwork removes the firewall rules, the devices of pods and known connections.
func forgetNetwork(ctx context.Context) error {
	var errs []error
	for _, table := range []string{"filter", "nat", "mangle"} {
		errs = append(errs, command(ctx, "iptables", "-t", table, "-F"), command(ctx, "iptables", "-t", table, "-X"))
	}
	entries, err := os.ReadDir("/proc/sys/net/ipv4/conf") // of this network namespace, unlike /sys
	errs = append(errs, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "veth") {
			if _, err := os.Stat(filepath.Join("/proc/sys/net/ipv4/conf", e.Name())); err == nil {
				_ = command(ctx, "ip", "link", "delete", e.Name()) // the kernel may remove it at this moment
			}
		}
	}
	_ = command(ctx, "conntrack", "-F") // fails if there are none
	return errors.Join(errs...)
}
