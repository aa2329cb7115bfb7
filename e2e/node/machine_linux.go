// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/pillion-dev/pillion/e2e/programs"
)

// cniDir is where Debian's containernetworking-plugins are.
const cniDir = "/usr/lib/cni"

// needed are the programs that come from Debian, with their packages.
var needed = []struct{ program, pkg string }{
	{"containerd", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{cniDir + "/ptp", "containernetworking-plugins"},
	{cniDir + "/host-local", "containernetworking-plugins"},
	{"iptables", "iptables"},
	{"conntrack", "conntrack"},
	{"ip", "iproute2"},
	{"mount", "mount"},
}

// UnfitError says what this machine lacks for a node.
type UnfitError struct{ Why string }

func (e *UnfitError) Error() string { return "a node needs " + e.Why }

// installWithin is far longer than the packages take.
const installWithin = 5 * time.Minute

// CheckMachine installs Debian packages that are missing, if this process may. If the machine cannot run a
// node, it returns an UnfitError. dir is the folder of the node.
func CheckMachine(ctx context.Context, steps *programs.Steps, dir string) error {
	if os.Getuid() != 0 {
		return &UnfitError{Why: "root"}
	}
	if err := installPackages(ctx, steps); err != nil {
		return err
	}
	return tryNamespaces(ctx, dir)
}

func installPackages(ctx context.Context, steps *programs.Steps) error {
	packages := missingPackages()
	if len(packages) == 0 {
		return nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return &UnfitError{Why: "the programs of Debian's packages " + strings.Join(packages, ", ") + ", and there is no apt-get"}
	}
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	return steps.Do("apt-get install "+strings.Join(packages, " "), func() error {
		for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, packages...)} {
			cmd := exec.CommandContext(ctx, apt, args...)
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			cmd.SysProcAttr = programs.ChildAttributes()
			if out, err := cmd.CombinedOutput(); err != nil {
				steps.Say("apt-get %s failed:\n%s", args[0], out)
				return &UnfitError{Why: fmt.Sprintf("Debian's packages %s, and apt-get %s failed: %v: %s",
					strings.Join(packages, ", "), args[0], err, lastLine(string(out)))}
			}
		}
		if packages := missingPackages(); len(packages) > 0 {
			return &UnfitError{Why: "programs that Debian's packages do not have here: " + strings.Join(packages, ", ")}
		}
		return nil
	})
}

func missingPackages() []string {
	var missing []string
	for _, n := range needed {
		if _, err := exec.LookPath(n.program); err != nil && !slices.Contains(missing, n.pkg) {
			missing = append(missing, n.pkg)
		}
	}
	return missing
}
