// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
)

// undoTemplates touch every part of a pod that a template may set.
const undoTemplates = `
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  pod:
    metadata:
      labels: {agent.pillion.dev/team: ops}
      annotations: {example.com/scrape: "true", example.com/note: "two\nlines"}
    spec:
      initContainers:
      - name: agent
        restartPolicy: Always
        image: agent:1
        args: ["on", "--x=${has(pod.spec.volumes) ? 'y' : 'n'}"]
        volumeMounts: [{name: logs, mountPath: /logs}]
      volumes: [{name: logs, emptyDir: {}}]
      tolerations: [{key: a, operator: Exists}]
      imagePullSecrets: [{name: pull}]
      shareProcessNamespace: true
      securityContext: {fsGroup: 5, supplementalGroups: [7]}
  forEachContainer:
  - initContainers: true
    add:
      env: [{name: A, value: "1"}, {name: B, value: "2"}]
      volumeMounts: [{name: logs, mountPath: /var/log/app}]
---
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: second}
spec:
  default: true
  order: 200
  placement: {containers: First, initContainers: First}
  pod:
    metadata:
      annotations: {second: ""}
    spec:
      initContainers: [{name: setup, image: setup:1}]
      containers: [{name: second, image: second:1, env: [{name: A, value: "1"}]}]
      hostAliases: [{ip: 10.0.0.1, hostnames: [x]}]
  forEachContainer:
  - add:
      env: [{name: C, value: "3"}]
`

func undoInjector(t testing.TB) *inject.Injector {
	t.Helper()
	file := filepath.Join(t.TempDir(), "templates.yaml")
	if err := os.WriteFile(file, []byte(undoTemplates), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := cli.LoadTemplates(nil, []string{file})
	if err != nil {
		t.Fatal(err)
	}
	return inject.New(set)
}

// processed is what inject or uninject makes of a stream.
func processed(injector *inject.Injector, text string, uninject bool) (out, report string, err error) {
	j := newInjection(&injectOptions{namespace: "default", uninject: uninject}, injector, io.Discard)
	if err := j.changeFile("stream.yaml", []byte(text)); err != nil {
		return "", "", err
	}
	data, err := j.encodeOutput()
	return string(data), j.told.String(), err
}

// TestUndo checks random documents. Uninject restores the bytes that inject read, and inject leaves
// every line unchanged that it does not fill.
func TestUndo(t *testing.T) {
	t.Parallel()
	injector := undoInjector(t)
	injected, left, broken := 0, 0, 0
	for seed := range uint64(400) {
		text := undoStream(seed)
		out, report, err := processed(injector, text, false)
		if err != nil && !valid(text) {
			broken++
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		injected += strings.Count(report, ": injected")
		left += strings.Count(report, ": not injected")
		back, _, err := processed(injector, out, true)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, err, text, out)
		}
		if back != text {
			t.Fatalf("seed %d: \n%s\nbecomes\n%s\nand then\n%s\n%s", seed, text, out, back, firstDifference(text, back))
		}
	}
	if injected < 900 || left > injected/20 || broken > 10 {
		t.Errorf("%d were injected, %d were not, %d documents are not YAML", injected, left, broken)
	}
}

func valid(text string) bool {
	for _, d := range yamledit.Split([]byte(text)) {
		if _, err := d.Parse(); err != nil {
			return false
		}
	}
	return true
}

func firstDifference(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return fmt.Sprintf("at %d: %q, was %q", n, b[n:min(n+40, len(b))], a[n:min(n+40, len(a))])
}

// FuzzUndo checks that uninject restores any input that inject accepts.
func FuzzUndo(f *testing.F) {
	injector := undoInjector(f)
	for seed := range uint64(100) {
		f.Add([]byte(undoStream(seed)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text := string(data)
		out, _, err := processed(injector, text, false)
		if err != nil || strings.Contains(text, "pillion.dev/injected") {
			if err != nil && strings.Contains(err.Error(), "please report") {
				t.Fatalf("%v\n%s", err, text)
			}
			return
		}
		back, _, err := processed(injector, out, true)
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, text, out)
		}
		if back != text {
			t.Fatalf("\n%s\nbecomes\n%s\nand then\n%s\n%s", text, out, back, firstDifference(text, back))
		}
	})
}
