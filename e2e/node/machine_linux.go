// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// cniDir is where Debian's containernetworking-plugins are.
const cniDir = "/usr/lib/cni"

// neededPrograms come from the Debian packages that make setup-node installs.
var neededPrograms = []string{
	"containerd", "containerd-shim-runc-v2", "ctr", "runc", cniDir + "/ptp", cniDir + "/host-local", "iptables", "conntrack", "ip", "mount",
}

// checkMachine returns an error if the machine cannot run a node. It installs nothing. dir is the folder of the node.
func checkMachine(ctx context.Context, dir string) error {
	if os.Getuid() != 0 {
		return errors.New("a node needs root: run sudo make node")
	}
	if missing := missingPrograms(); len(missing) > 0 {
		return fmt.Errorf("a node needs %s: run sudo make setup-node, which installs Debian's packages", strings.Join(missing, ", "))
	}
	return tryNamespaces(ctx, dir)
}

func missingPrograms() (missing []string) {
	for _, program := range neededPrograms {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	return missing
}

// tryNamespaces returns an error if this process may not do what a node needs: in many containers, even root may
// not.
func tryNamespaces(ctx context.Context, dir string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, err := insideCommand(ctx, dir, stageProbe)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("a node needs namespaces, mounts, a network and cgroups of its own, which this machine does not allow: %w: %s",
			err, lastLine(string(out)))
	}
	return nil
}
