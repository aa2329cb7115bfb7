// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stageVariable is how a process knows its stage. The first one has none: it prepares everything
// that needs the machine's network, and waits. The second one is the first process of the new
// namespaces. The third one does the work.
const (
	stageVariable = "NODE_STAGE"
	stageInit     = "init"
	stageWork     = "work"
	// stageProbe tries what stageInit does, and ends.
	stageProbe = "probe"
	// dirVariable names the folder with the state of the node.
	dirVariable = "NODE_DIR"

	dirPrefix = "pillion-node-"
	lockName  = "lock"
)

// Enter runs prepare, and then this program again in namespaces of its own: network, mounts,
// processes and host name. It returns the program's exit code. When the program ends, or this
// process does, the kernel ends all processes in the namespaces, and with them all mounts,
// network devices and firewall rules. Then Enter removes the folder and the cgroups.
//
// In the new namespaces, Enter returns inside = true and the folder.
func Enter(ctx context.Context, prepare func(ctx context.Context, dir string) error) (inside bool, dir string, code int, err error) {
	dir = os.Getenv(dirVariable)
	switch os.Getenv(stageVariable) {
	case stageWork:
		return true, dir, 0, nil
	case stageInit:
		code, err := runInit(ctx, dir)
		return false, dir, code, err
	case stageProbe:
		return false, dir, 0, probe(ctx, dir)
	}
	if err := removeLeftovers(); err != nil {
		return false, "", 0, err
	}
	dir, lock, err := makeDir()
	if err != nil {
		return false, "", 0, err
	}
	defer func() { err = errors.Join(err, removeDir(dir), lock.Close()) }()
	if err := prepare(ctx, dir); err != nil {
		return false, dir, 0, err
	}
	code, err = runInside(ctx, dir)
	return false, dir, code, err
}

// makeDir creates the folder and locks it. The lock ends with this process, however that ends.
func makeDir() (string, *os.File, error) {
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return "", nil, err
	}
	lock, err := os.Create(filepath.Join(dir, lockName))
	if err != nil {
		return "", nil, err
	}
	return dir, lock, unix.Flock(int(lock.Fd()), unix.LOCK_EX)
}

// removeLeftovers removes the folders and cgroups of killed runs.
func removeLeftovers() error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		lock, err := os.Open(filepath.Join(dir, lockName))
		if err != nil {
			continue // about to be created or removed
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = removeDir(dir)
		}
		lock.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func removeDir(dir string) error { return errors.Join(removeCgroups(dir), os.RemoveAll(dir)) }

// runInside runs this program in new namespaces until it ends or ctx is done.
func runInside(ctx context.Context, dir string) (int, error) {
	runtime.LockOSThread() // the death of this thread is the parent's death for the child
	defer runtime.UnlockOSThread()
	cmd, err := insideCommand(ctx, dir, stageInit)
	if err != nil {
		return 0, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if ctx.Err() != nil {
		return 0, errors.New("interrupted")
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// insideCommand returns the command that runs this program in new namespaces.
func insideCommand(ctx context.Context, dir, stage string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), stageVariable+"="+stage, dirVariable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // an interrupt from the terminal reaches only this process
	}
	return cmd, nil
}

// probe does once what a node needs most.
func probe(ctx context.Context, dir string) error {
	if err := prepareMounts(dir); err != nil {
		return err
	}
	if err := prepareNetwork(ctx); err != nil {
		return err
	}
	if err := command(ctx, "iptables", "--table", "nat", "--new-chain", "PROBE"); err != nil {
		return err
	}
	return makeCgroups(dir)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// runInit is the first process in the namespaces. It mounts what the node's programs expect, starts
// this program again, and collects the exit status of processes whose parents have ended.
func runInit(ctx context.Context, dir string) (int, error) {
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	if err := prepareMounts(dir); err != nil {
		return 0, err
	}
	if err := prepareNetwork(ctx); err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	if err := errors.Join(os.Setenv(stageVariable, stageWork), os.Setenv("TMPDIR", dir)); err != nil {
		return 0, err
	}
	work, err := os.StartProcess(self, os.Args, &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 0, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for processes: %w", err)
		case pid == work.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == work.Pid && status.Signaled():
			return 0, fmt.Errorf("killed by the signal %s", status.Signal())
		}
	}
}

// prepareMounts gives the namespaces folders of their own for the state of the node's programs that
// has a fixed place.
func prepareMounts(dir string) error {
	if err := unix.Sethostname([]byte(Name)); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	for _, path := range []string{"/var/lib", "/var/log"} {
		own := filepath.Join(dir, strings.ReplaceAll(path[1:], "/", "-"))
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(own, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
	}
	return nil
}

// prepareNetwork makes the node's network device, a bridge without ports. Packets that leave by it are lost, so no other
// machine is ever reached.
func prepareNetwork(ctx context.Context) error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "node0", "type", "bridge"},
		{"address", "add", Address + "/24", "dev", "node0"},
		{"link", "set", "node0", "up"},
		{"route", "add", "default", "dev", "node0"},
	} {
		if err := command(ctx, "ip", args...); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

// command runs a short command. Its error contains what the command printed.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
