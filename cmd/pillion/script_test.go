// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"unicode/utf16"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/inject/testing/golden"
)

func TestMain(m *testing.M) {
	// The race detector makes every process that ends wait for a second.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	testscript.Main(tests{m}, map[string]func(){"pillion": narrowMain, "kubectl-pillion": narrowMain, "kubectl_complete-pillion": main})
}

// tests are this package's; the programs of the scripts are not.
type tests struct{ *testing.M }

func (t tests) Run() int {
	clitest.ClearEnvironment()
	return t.M.Run()
}

// TestScripts runs the scripts, each of which is one case of the command line. There are four more
// commands than testscript's own. "code N COMMAND..." runs a command that must exit with that code.
// "hide FILE..." hides the revisions of templates in files. "utf16 FROM TO" and "gzip FROM TO"
// encode a file. The folder $TEMPLATES has one template, log-agent.
func TestScripts(t *testing.T) {
	folder, err := filepath.Abs("testdata/templates")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       golden.Updating(),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("TEMPLATES", folder)
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv("COLUMNS", os.Getenv("COLUMNS"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code,
			"hide": hide,
			"utf16": func(ts *testscript.TestScript, _ bool, args []string) {
				encoded := []byte{0xff, 0xfe}
				for _, unit := range utf16.Encode([]rune(ts.ReadFile(args[0]))) {
					encoded = binary.LittleEndian.AppendUint16(encoded, unit)
				}
				ts.Check(os.WriteFile(ts.MkAbs(args[1]), encoded, 0o600))
			},
			"gzip": func(ts *testscript.TestScript, _ bool, args []string) {
				var zipped bytes.Buffer
				w := gzip.NewWriter(&zipped)
				_, err := io.WriteString(w, ts.ReadFile(args[0]))
				ts.Check(errors.Join(err, w.Close()))
				ts.Check(os.WriteFile(ts.MkAbs(args[1]), zipped.Bytes(), 0o600))
			},
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
