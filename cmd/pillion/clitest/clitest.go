// SPDX-License-Identifier: Apache-2.0

package clitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Template returns a template that adds an annotation to every pod.
func Template(name string) string {
	return "apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: " + name + "}\n" +
		"spec: {default: true, pod: {metadata: {annotations: {" + name + ": here}}}}\n"
}

// Patience is how long a test waits for a condition, on a busy machine and with the race detector.
const Patience = 2 * time.Minute

// Until waits until a condition holds. The reason is why it does not hold yet.
func Until(t *testing.T, what string, holds func() (ok bool, reason string)) {
	t.Helper()
	limit := time.Now().Add(Patience)
	for {
		ok, reason := holds()
		if ok {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("it never came that %s: %s", what, reason)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Write writes a file and creates its folders.
func Write(t *testing.T, path, text string) {
	t.Helper()
	Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	Must(t, os.WriteFile(path, []byte(text), 0o600))
}

// AgentTemplate adds a sidecar to every pod.
const AgentTemplate = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  pod: {spec: {initContainers: [{name: agent, image: "agent:1", restartPolicy: Always}]}}
`

// TooWide returns the lines of more than width runes. It ignores single words, such as a path,
// which are never broken.
func TooWide(text string, width int) (wide []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line) > width && strings.Contains(strings.TrimSpace(line), " ") {
			wide = append(wide, line)
		}
	}
	return wide
}
