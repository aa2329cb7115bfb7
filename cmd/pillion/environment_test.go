// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
)

// hostileVariables are what a caller's environment may have, and what must not reach the product in tests.
func hostileVariables() []string {
	return []string{
		"PILLION_LOG_LEVEL=nonsense", "PILLION_OTHER=1", "OTEL_TRACES_SAMPLER=nonsense", "KUBECONFIG=/nowhere", "KUBERNETES_SERVICE_HOST=192.0.2.1",
		"KUBERNETES_SERVICE_PORT=1", "POD_NAMESPACE=other", "NO_COLOR=1", "COLUMNS=20", "TERM=dumb", "GOGC=1", "GOMAXPROCS=1",
	}
}

// reportVariable makes TestEnvironment report the environment that this package's tests have.
const reportVariable = "TEST_REPORT_ENVIRONMENT"

// TestEnvironment runs itself with a hostile environment, and checks that no such variable reaches a test.
func TestEnvironment(t *testing.T) {
	if path := os.Getenv(reportVariable); path != "" {
		clitest.Must(t, os.WriteFile(path, []byte(strings.Join(os.Environ(), "\n")), 0o600))
		return
	}
	path := filepath.Join(t.TempDir(), "environment")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEnvironment$")
	cmd.Env = append(append(os.Environ(), hostileVariables()...), reportVariable+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(path)
	clitest.Must(t, err)
	got := strings.Split(string(text), "\n")
	for _, variable := range hostileVariables() {
		if slices.Contains(got, variable) {
			t.Errorf("tests have %s", variable)
		}
	}
	if !slices.Contains(got, "KUBECONFIG="+os.DevNull) {
		t.Error("tests may use the cluster of ~/.kube/config")
	}
}

// TestEveryPackageClearsEnvironment checks that no package of the product's commands has tests with the caller's
// environment.
func TestEveryPackageClearsEnvironment(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=Dir,TestGoFiles,XTestGoFiles", "./...").Output()
	clitest.Must(t, err)
	decoder, found := json.NewDecoder(bytes.NewReader(out)), 0
	for decoder.More() {
		var p struct {
			Dir                       string
			TestGoFiles, XTestGoFiles []string
		}
		clitest.Must(t, decoder.Decode(&p))
		files := append(p.TestGoFiles, p.XTestGoFiles...)
		clears := slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			return err == nil && regexp.MustCompile(`(?m)^(func TestMain\(m \*testing.M\) \{ clitest.RunTests\(m\) \}|\tclitest.ClearEnvironment\(\))$`).Match(text)
		})
		if len(files) > 0 {
			found++
		}
		if len(files) > 0 && !clears {
			t.Errorf("%s: write func TestMain(m *testing.M) { clitest.RunTests(m) }", p.Dir)
		}
	}
	if found < 5 {
		t.Errorf("there are only %d packages with tests", found)
	}
}

// documentedVariable matches NAME_WITH_UNDERSCORE, $NAME, ${NAME} and NAME=.
var documentedVariable = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b|\$\{?([A-Z][A-Z0-9]+)\b|\b([A-Z][A-Z0-9]{2,})=`)

// documentedVariables returns the variables that the documents, the Makefile and the workflows name.
func documentedVariables(t *testing.T, root string) (names []string) {
	t.Helper()
	clitest.Must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || name == "bin" || name == "dist" || name == "node_modules" || name == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || (filepath.Ext(name) != ".md" && name != "Makefile" && filepath.Base(filepath.Dir(path)) != "workflows"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range documentedVariable.FindAllStringSubmatch(string(text), -1) {
			name := strings.Trim(match[0], "${=")
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return err
	}))
	slices.Sort(names)
	return names
}

// TestDocumentedVariables runs the product with all variables that the documents name. It must not complain about one,
// because users set them for other programs too, for example for the tests.
func TestDocumentedVariables(t *testing.T) {
	names := documentedVariables(t, filepath.Join("..", ".."))
	for _, known := range []string{"KUBEBUILDER_ASSETS", "KUBERNETES", "PILLION_ADMIN_LISTEN", "TEST_CORPUS"} {
		if !slices.Contains(names, known) {
			t.Errorf("%s is not among %q", known, names)
		}
	}
	values := map[string]string{}
	for _, command := range newRoot().Commands() {
		command.Flags().VisitAll(func(f *pflag.Flag) { values[cli.Variable(f.Name)] = f.DefValue })
	}
	environ := os.Environ()
	for _, name := range names {
		value, isFlag := values[name]
		switch {
		case isFlag:
			environ = append(environ, name+"="+value)
		case os.Getenv(name) == "": // PATH and HOME remain
			environ = append(environ, name+"=1")
		}
	}
	for _, args := range [][]string{{"version"}, {"lint", filepath.Join("testdata", "templates")}} {
		var complaint bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "pillion", args...)
		cmd.Env, cmd.Stderr = environ, &complaint
		if err := cmd.Run(); err != nil || complaint.Len() > 0 {
			t.Errorf("pillion %s: %v\n%s", args[0], err, complaint.String())
		}
	}
}
