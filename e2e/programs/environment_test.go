// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCleanEnvironment also compares this copy with the root module's, which this module does not import.
func TestCleanEnvironment(t *testing.T) {
	from := []string{"PATH=/bin", "PILLION_OTHER=1", "OTEL_TRACES_SAMPLER=x", "KUBECONFIG=/x", "NO_COLOR=1", "KUBEBUILDER_ASSETS=/a", "KUBERNETES=1.36"}
	want := []string{"PATH=/bin", "KUBEBUILDER_ASSETS=/a", "KUBERNETES=1.36", "KUBECONFIG=" + os.DevNull, "COLUMNS=100"}
	if got := CleanEnvironment(from); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var lists []string
	for _, path := range []string{"environment.go", filepath.Join("..", "..", "cmd", "pillion", "clitest", "environment.go")} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, list, _ := strings.Cut(string(text), "\n// ClearEnvironment ")
		lists = append(lists, list)
	}
	if lists[0] == "" || lists[0] != lists[1] {
		t.Error("environment.go differs from cmd/pillion/clitest/environment.go")
	}
}

// TestMainsClearEnvironment checks that each test program that starts the product clears its environment first.
func TestMainsClearEnvironment(t *testing.T) {
	found := 0
	for _, folder := range []string{".", "node", "demo"} {
		mains, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range mains {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, body, isMain := strings.Cut(string(text), "\nfunc TestMain(")
			if !isMain || strings.Contains(string(text), "//go:build !linux") {
				continue
			}
			found++
			if body, _, _ = strings.Cut(body, "\n}\n"); !strings.Contains(body, "programs.ClearEnvironment()") {
				t.Errorf("%s: TestMain must call programs.ClearEnvironment", path)
			}
		}
	}
	if found != 3 {
		t.Errorf("there are %d, want 3", found)
	}
}

// TestClearEnvironment checks what a child process gets.
func TestClearEnvironment(t *testing.T) {
	for _, pair := range os.Environ() { // the test ends with the environment that it began with
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
	t.Setenv("PILLION_OTHER", "1")
	t.Setenv("KUBECONFIG", "/nowhere")
	ClearEnvironment()
	out, err := exec.CommandContext(t.Context(), "env").Output()
	if err != nil || strings.Contains(string(out), "PILLION_OTHER") || !strings.Contains(string(out), "KUBECONFIG="+os.DevNull+"\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
