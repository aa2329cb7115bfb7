// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/templates"
)

// from contains a folder of templates for each other injector whose annotations they accept.
const from = "../../templates/from"

// eachPeer runs a test for each other injector.
func eachPeer(t *testing.T, test func(t *testing.T, peer string)) {
	t.Helper()
	folders, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		t.Run(folder.Name(), func(t *testing.T) {
			t.Parallel()
			test(t, folder.Name())
		})
	}
}

// TestFrom checks that the templates load and can be read, that there is a page for their users, and that their tests
// pass.
func TestFrom(t *testing.T) {
	t.Parallel()
	eachPeer(t, func(t *testing.T, peer string) {
		folder := filepath.Join(from, peer)
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		// A subfolder has templates for what users of the other injector write as a custom resource.
		more, _ := filepath.Glob(filepath.Join(folder, "*", "*.yaml"))
		folders := map[string]bool{}
		for _, file := range append(files, more...) {
			folders[filepath.Dir(file)] = true
		}
		delete(folders, filepath.Join(folder, "tests"))
		for path := range folders {
			set, err := templates.Load(templates.Source{FS: os.DirFS(path), Name: ".", Path: path})
			if err != nil {
				t.Error(err)
				continue
			}
			if len(set.Templates) == 0 {
				t.Errorf("%s has no templates", path)
			}
			for _, tmpl := range set.Templates {
				checkReadable(t, tmpl)
			}
		}
		if _, err := os.Stat("../../manifests/docs/from-" + peer + ".md"); err != nil {
			t.Error(err)
		}
		var out bytes.Buffer
		if code := run([]string{"test", folder}, nil, &out, &out); code != exitOK {
			t.Errorf("exit code %d\n%s", code, &out)
		}
	})
}

// checkReadable checks that a person can read the template: no line has more than 130 characters, and each
// parameter has a description.
func checkReadable(t *testing.T, tmpl *templates.Template) {
	t.Helper()
	text, err := os.ReadFile(tmpl.File)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if n := utf8.RuneCountInString(line); n > 130 {
			t.Errorf("%s:%d: %d characters", tmpl.File, i+1, n)
		}
	}
	for _, p := range tmpl.Spec.Params {
		if p.Description == "" {
			t.Errorf("%s: the parameter %s has no description", tmpl.File, p.Name)
		}
	}
}

// peersVariable names a folder with the cases of other injectors and the script compare.py that compares them.
const peersVariable = "TEST_PEERS"

// TestPeers compares the results with what the other injectors make of the same pods.
func TestPeers(t *testing.T) {
	t.Parallel()
	folder := os.Getenv(peersVariable)
	if folder == "" {
		t.Skipf("%s names no folder with the cases of other injectors", peersVariable)
	}
	script := filepath.Join(folder, "compare.py")
	if out, err := exec.CommandContext(t.Context(), "python3", "-c", "import yaml").CombinedOutput(); err != nil {
		t.Fatalf("%s is set, and the comparison needs python3 with PyYAML: %v\n%s", peersVariable, err, out)
	}
	eachPeer(t, func(t *testing.T, peer string) {
		if _, err := os.Stat(filepath.Join(folder, peer)); err != nil {
			t.Skipf("%s has no cases of %s", peersVariable, peer)
		}
		// TestMain puts pillion, which is this program, into the PATH.
		out, err := exec.CommandContext(t.Context(), "python3", script, "-v", from, peer+"/").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		cases := 0
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line)
			if len(words) < 3 || words[0] != peer {
				continue
			}
			cases++
			verdict := strings.Join(words[2:], " ")
			if !slices.Contains([]string{"equal", "equal but identity", "by design"}, verdict) {
				t.Errorf("%s: %s", words[1], verdict)
			}
		}
		if t.Failed() || cases == 0 || bytes.Contains(out, []byte("second injection")) {
			t.Errorf("%d cases\n%s", cases, out)
		}
	})
}
