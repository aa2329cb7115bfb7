// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReconfigure checks that serve applies every setting that can change while it runs, and
// reports each one that needs a restart. An invalid file changes nothing.
func TestReconfigure(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "config")
	file := filepath.Join(folder, "pillion.yaml")
	version := "..1"
	mount := func(text string) { // as a kubelet does it
		t.Helper()
		old := version
		version += "1"
		write(t, filepath.Join(folder, version, "pillion.yaml"), text)
		must(t, os.Symlink(version, filepath.Join(folder, "..new")))
		must(t, os.Rename(filepath.Join(folder, "..new"), filepath.Join(folder, "..data")))
		must(t, os.RemoveAll(filepath.Join(folder, old)))
	}
	must(t, os.MkdirAll(folder, 0o755))
	must(t, os.Symlink("..data/pillion.yaml", file))
	const always = "standalone: true\ntls-self-signed: true\ntemplates: [testdata/templates]\n"
	mount(always + "log-level: info\n")
	s := startServe(t, "--config", file)
	s.ready(t, 200, "[+]configuration ok: "+file+"\n")
	metric := func(want string) {
		t.Helper()
		if _, body := s.get(t, s.admin+"/metrics"); !strings.Contains(body, want+"\n") {
			t.Errorf("the metrics lack %q", want)
		}
	}
	mount(always + "log-level: debug\n")
	if line := s.logged(t, "configuration changed"); line["flag"] != "log-level" || line["value"] != "debug" || line["from"] != "file "+file {
		t.Errorf("logged %v", line)
	}
	metric(`pillion_config_loads_total{result="used"} 1`)

	// A flag overrides the file, so a change of the file needs no restart.
	mount(always + "log-level: debug\nlisten: :1\nshutdown-delay: 7s\nexclude-namespace: [a]\n")
	s.ready(t, 200, "[+]configuration ok: "+file+"; needs a restart: exclude-namespace\n")
	metric(`pillion_config_restart_needed{flag="exclude-namespace"} 1`)
	s.logged(t, "the configuration needs a restart")

	for problem, text := range map[string]string{
		"pillion.yaml:4: lisen: unknown key; did you mean listen?":                       "lisen: :1\n",
		`pillion.yaml:4: log-level: must be one of debug, info, warn, error, not "loud"`: "log-level: loud\n",
		"--standalone cannot be used with --advise":                                      "log-level: error\nadvise: true\n",
		"pillion.yaml:4: shutdown-delay: must be a duration such as 5s or 1m30s":         "shutdown-delay: 5\n",
		"pillion.yaml:4: standalone: is also in line 1":                                  "standalone: false\n",
		"pillion.yaml:4: could not find expected ':'":                                    "x\ny: [\n",
	} {
		mount(always + text)
		s.ready(t, 200, "; needs a restart: exclude-namespace; a newer one is rejected since ")
		s.ready(t, 200, problem)
		if s.count("configuration changed") != 1 {
			t.Errorf("%s: part of it is in use", problem)
		}
	}
	s.logged(t, "the new configuration is invalid, the last valid one stays in use")
	metric("pillion_config_problems 1")
	must(t, os.Remove(filepath.Join(folder, "..data")))
	s.ready(t, 200, "pillion.yaml: no such file or directory")

	mount(always + "log-level: debug\n")
	s.logged(t, "the configuration no longer needs a restart")
	s.logged(t, "the configuration is valid again")
	s.ready(t, 200, "[+]configuration ok: "+file+"\n")
	metric("pillion_config_problems 0")
	if _, body := s.get(t, s.admin+"/metrics"); strings.Contains(body, "pillion_config_restart_needed{") {
		t.Error("a restart is still needed")
	}

	// What is said about a level is said on that level.
	mount(always + "log-level: warn\nexclude-namespace: [a]\n")
	s.ready(t, 200, "needs a restart: exclude-namespace\n")
	mount(always + "log-level: info\n")
	until(t, "the log tells of changes again", func() (bool, string) {
		return s.count("configuration changed") == 2 && s.count("the configuration no longer needs a restart") == 2, "it does not"
	})
}
