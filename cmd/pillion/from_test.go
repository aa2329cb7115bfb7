// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
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
		set, err := templates.Load(templates.Source{FS: os.DirFS(folder), Name: ".", Path: folder})
		if err != nil {
			t.Fatal(err)
		}
		if len(set.Templates) == 0 {
			t.Errorf("%s has no templates", folder)
		}
		for _, tmpl := range set.Templates {
			checkReadable(t, tmpl)
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

// checkReadable checks that a person can read the template: no line has more than 130 characters, the template and its
// parameters have descriptions in whole sentences.
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
	descriptions := map[string]string{"the template": tmpl.Spec.Description}
	for _, p := range tmpl.Spec.Params {
		descriptions["the parameter "+p.Name] = p.Description
	}
	for what, description := range descriptions {
		if words := strings.Fields(description); len(words) < 4 || !strings.HasSuffix(description, ".") {
			t.Errorf("%s: %s has the description %q, which is no sentence", tmpl.File, what, description)
		}
	}
}
