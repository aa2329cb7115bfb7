// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestUsageFiles reads the files of both versions of cgroups. A machine has only one of them, so TestUsage alone
// would leave the other one untested.
func TestUsageFiles(t *testing.T) {
	const mib = 1 << 20
	want := Usage{Memory: 30 * mib, Anonymous: 20 * mib, Peak: 50 * mib, CPU: 1500 * time.Millisecond}
	v1 := folder(t, map[string]string{
		"memory.usage_in_bytes":     "41943040\n",
		"memory.max_usage_in_bytes": "52428800\n",
		"memory.stat":               "cache 1\nrss 2\ninactive_file 3\ntotal_rss 20971520\ntotal_inactive_file 10485760\n",
		"cpuacct.usage":             "1500000000\n",
	})
	v2 := folder(t, map[string]string{
		"memory.current": "41943040\n",
		"memory.peak":    "52428800\n",
		"memory.stat":    "anon 20971520\nfile 1\ninactive_file 10485760\n",
		"cpu.stat":       "usage_usec 1500000\nuser_usec 1\nsystem_usec 2\n",
	})
	if got, err := usageV1(v1, v1); got != want || err != nil {
		t.Errorf("v1: %+v, %v", got, err)
	}
	if got, err := usageV2(v2); got != want || err != nil {
		t.Errorf("v2: %+v, %v", got, err)
	}
	if _, err := usageV2(v1); err == nil {
		t.Error("the files of v1 are not an error for v2")
	}
}

// TestGroups parses /proc/PID/cgroup of machines with v1, with both, and with v2.
func TestGroups(t *testing.T) {
	for text, want := range map[string]struct {
		version int
		memory  string
	}{
		"4:memory:/a/b\n3:cpu,cpuacct:/c\n":   {1, "/a/b"},
		"4:memory:/a\n1:name=systemd:/\n0::/": {1, "/a"},
		"0::/kubepods/pod1/c\n":               {2, "/kubepods/pod1/c"},
	} {
		groups := parseGroups(text)
		path := groups["memory"]
		if want.version == 2 {
			path = groups[""]
		}
		if groups.version() != want.version || path != want.memory {
			t.Errorf("%q: version %d, %q", text, groups.version(), path)
		}
	}
}

// folder returns a folder with these files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
