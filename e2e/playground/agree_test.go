// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/pillion-dev/pillion/cmd/pillion/playground"
)

// TestAgree checks that the WebAssembly of the page gives the same bytes as the native engine, for every case of
// the engine's golden files and every example of the menu. The starter evaluates the examples, and gives no other bytes.
func TestAgree(t *testing.T) {
	names, lines := []string{}, [][]byte{}
	add := func(name string, in playground.Input) {
		for _, in.Policy = range []string{"", "mutating", "validating"} {
			line, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			names, lines = append(names, name), append(lines, line)
		}
	}
	files, err := filepath.Glob(root + "/inject/testdata/cases/*.txtar")
	if err != nil || len(files) < 100 {
		t.Fatalf("there are %d cases: %v", len(files), err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		add(filepath.Base(file), caseInput(archive))
	}
	for _, example := range examples(t) {
		add(example.Name, example.Input)
	}
	got := inNode(t, lines, len(examples(t)))
	if len(got) != len(lines) {
		t.Fatalf("%d inputs gave %d outputs", len(lines), len(got))
	}
	e, err := playground.New()
	if err != nil {
		t.Fatal(err)
	}
	results := 0
	first := examples(t)[0]
	if want := e.JSON(must(jsonOf(first.Input))); first.Output != string(want) {
		t.Errorf("the page has for the first example\n%s\nand the command gives\n%s", first.Output, want)
	}
	for i, line := range lines {
		want := e.JSON(line)
		if !bytes.Equal(got[i], want) {
			t.Errorf("%s: the page gives\n%s\nand the command\n%s", names[i], got[i], want)
		}
		if bytes.Contains(want, []byte(`"patch":"[`)) {
			results++
		}
	}
	if results < len(files)/2 {
		t.Errorf("only %d of %d inputs have a patch", results, len(lines))
	}
}

// inNode evaluates lines with the engine of the page. The last ones are the examples.
func inNode(t *testing.T, lines [][]byte, examples int) [][]byte {
	t.Helper()
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(strings.TrimSpace(string(goroot)), "lib/wasm/wasm_exec.js")
	cmd := exec.CommandContext(t.Context(), "node", "testdata/agree.mjs", exe, page, strconv.Itoa(examples))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(append(bytes.Join(lines, []byte("\n")), '\n')), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(out, []byte("\n")), []byte("\n"))
}

// caseInput returns a case of the engine as the state of the page.
func caseInput(archive *txtar.Archive) (in playground.Input) {
	for _, f := range archive.Files {
		switch text := string(f.Data); {
		case strings.HasSuffix(f.Name, ".template.yaml"):
			in.Templates += "---\n" + text
		case f.Name == "pod.yaml":
			in.Manifest = "apiVersion: v1\nkind: Pod\n" + text
		case f.Name == "pod.json":
			in.Manifest = strings.Replace(text, "{", `{"apiVersion": "v1", "kind": "Pod", `, 1)
		case f.Name == "namespace.yaml":
			in.NamespaceLabels, in.NamespaceAnnotations = metadata(f.Data)
		case f.Name == "serviceaccount.yaml":
			in.AccountLabels, in.AccountAnnotations = metadata(f.Data)
		}
	}
	if in.NamespaceLabels == "" {
		in.NamespaceLabels = "pillion.dev/inject: enabled"
	}
	return in
}
