// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupMount = "/sys/fs/cgroup"

// cgroupName is the name of the cgroup that contains those of all pods.
func cgroupName(dir string) string { return filepath.Base(dir) }

// hierarchies returns the folders that cgroups may be in: one with cgroup v2, and one for each
// controller with cgroup v1.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		return []string{cgroupMount}, nil
	}
	entries, err := os.ReadDir(cgroupMount)
	var found []string
	for _, e := range entries {
		if e.IsDir() {
			found = append(found, filepath.Join(cgroupMount, e.Name()))
		}
	}
	return found, err
}

// makeCgroups creates the cgroup of a run. The kubelet does not.
func makeCgroups(dir string) error {
	parents, err := hierarchies()
	if err != nil {
		return err
	}
	for _, parent := range parents {
		own := filepath.Join(parent, cgroupName(dir))
		if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := copyCpuset(parent, own); err != nil {
			return err
		}
	}
	return nil
}

// copyCpuset lets the processes of a new cgroup use its parent's CPUs. With cgroup v1, it has none.
func copyCpuset(parent, own string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(own, file), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes the cgroups of a run whose processes have ended, or are about to.
func removeCgroups(dir string) error {
	parents, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, parent := range parents {
		var all []string
		_ = filepath.WalkDir(filepath.Join(parent, cgroupName(dir)), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append(all, path)
			}
			return nil // there may be none
		})
		for _, path := range slices.Backward(all) {
			errs = append(errs, removeCgroup(path))
		}
	}
	return errors.Join(errs...)
}

// removeCgroup waits until the kernel has removed the last process, which it does shortly after that
// process was killed.
func removeCgroup(path string) error {
	const within = 10 * time.Second
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; <-tick.C {
		err := unix.Rmdir(path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove the cgroup %s: %w", path, err)
		}
	}
}

// Usage is what the kernel counted for a container's cgroup.
type Usage struct {
	// Memory is the working set, as the kubelet and the OOM killer count it: without the part of
	// the page cache that can be dropped. Anonymous is the process's own memory.
	Memory, Anonymous, Peak int64
	CPU                     time.Duration
}

// UsageOf returns the usage of the process's cgroup.
func UsageOf(pid int) (Usage, error) {
	groups, err := cgroupsOf(pid)
	if err != nil {
		return Usage{}, err
	}
	if groups.version() == 2 {
		return usageV2(filepath.Join(cgroupMount, groups[""]))
	}
	return usageV1(filepath.Join(cgroupMount, "memory", groups["memory"]), filepath.Join(cgroupMount, "cpuacct", groups["cpuacct"]))
}

func usageV1(memory, cpu string) (Usage, error) {
	used, err1 := number(filepath.Join(memory, "memory.usage_in_bytes"))
	peak, err2 := number(filepath.Join(memory, "memory.max_usage_in_bytes"))
	stat, err3 := table(filepath.Join(memory, "memory.stat"))
	nanoseconds, err4 := number(filepath.Join(cpu, "cpuacct.usage"))
	u := Usage{Memory: used - stat["total_inactive_file"], Anonymous: stat["total_rss"], Peak: peak, CPU: time.Duration(nanoseconds)}
	return u, errors.Join(err1, err2, err3, err4)
}

func usageV2(dir string) (Usage, error) {
	used, err1 := number(filepath.Join(dir, "memory.current"))
	peak, err2 := number(filepath.Join(dir, "memory.peak"))
	stat, err3 := table(filepath.Join(dir, "memory.stat"))
	cpu, err4 := table(filepath.Join(dir, "cpu.stat"))
	u := Usage{Memory: used - stat["inactive_file"], Anonymous: stat["anon"], Peak: peak, CPU: time.Duration(cpu["usage_usec"]) * time.Microsecond}
	return u, errors.Join(err1, err2, err3, err4)
}

// processGroups are the cgroups of a process by controller. The one of cgroup v2 has no name.
type processGroups map[string]string

// version returns which version of cgroups counts the process's memory. A machine can have both.
func (g processGroups) version() int {
	if _, ok := g["memory"]; ok {
		return 1
	}
	return 2
}

func cgroupsOf(pid int) (processGroups, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return parseGroups(string(text)), err
}

func parseGroups(text string) processGroups {
	groups := processGroups{}
	for line := range strings.Lines(text) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			for controller := range strings.SplitSeq(parts[1], ",") {
				groups[controller] = parts[2]
			}
		}
	}
	return groups
}

func number(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// table reads lines of a name and a number.
func table(path string) (map[string]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows := map[string]int64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok {
			rows[name], _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return rows, nil
}
