// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// TestPage checks that a release without Node.js fails, and that the page is compressed by Go.
func TestPage(t *testing.T) {
	var fast bytes.Buffer
	z, err := gzip.NewWriterLevel(&fast, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("page", 1000)
	_, err = z.Write([]byte(text))
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	again, err := compressedAgain(fast.Bytes())
	if err != nil || unzipped(t, string(again)) != text || bytes.Equal(again, fast.Bytes()) {
		t.Errorf("%v: %d bytes of %d", err, len(again), fast.Len())
	}
	t.Setenv("PATH", t.TempDir())
	err = (&release{log: t.Logf}).buildPage(t.Context())
	if err == nil || !strings.Contains(err.Error(), "needs Node.js and npm; install both") {
		t.Errorf("without Node.js, it fails with %v", err)
	}
}

func unzipped(t *testing.T, file string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(plain)
}

// servesPage checks that an installed program finds the page.
func servesPage(t *testing.T, program string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "playground")
	cmd.Env = []string{} // not the caller's
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = cmd.Stdout
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	link, found := strings.CutPrefix(strings.TrimSpace(line), "The playground is at ")
	if !found {
		t.Fatalf("it prints %q: %v", line, err)
	}
	for _, name := range []string{"", "engine.wasm.gz"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", link+name, answer.Status)
		}
	}
}
