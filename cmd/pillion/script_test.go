// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pillion-dev/pillion/inject/goldentest"
)

func TestMain(m *testing.M) {
	// The race detector makes every process that ends wait for a second.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Unsetenv("PILLION_CORPUS") // which is for the tests of other packages, and no flag
	testscript.Main(tests{m}, map[string]func(){"pillion": narrowMain, "kubectl-pillion": narrowMain, "kubectl_complete-pillion": main})
}

// tests are this package's; the programs of the scripts are not.
type tests struct{ *testing.M }

func (t tests) Run() int {
	os.Unsetenv("COLUMNS") // which an interactive shell may have
	return t.M.Run()
}

// A script is one case of the command line. Besides testscript's own commands
// there are "code N COMMAND...", which runs a command that must exit with that
// code, and "hide FILE...", which hides the templates' revisions in files.
// The folder $TEMPLATES has one template, log-agent.
func TestScripts(t *testing.T) {
	folder, err := filepath.Abs("testdata/templates")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       goldentest.Updating(),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("TEMPLATES", folder)
			e.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code,
			"hide": hide,
		},
	})
}

func code(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND...")
	}
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(ts.Exec(args[1], args[2:]...), &exit) {
		got = exit.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, not %s", got, args[0])
	}
}

func hide(ts *testscript.TestScript, _ bool, files []string) {
	revision := regexp.MustCompile(`(injected"?: ?"?|1injected","value":")[0-9a-f]{12}`)
	for _, file := range files {
		text := revision.ReplaceAllString(ts.ReadFile(file), "${1}REVISION")
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o600))
	}
}
