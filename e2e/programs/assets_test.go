// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// assets makes a folder of programs that report these versions.
func assets(t *testing.T, versions map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, version := range versions {
		if err := writeProgram(filepath.Join(dir, name), []byte("#!/bin/sh\necho "+version+"\n")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// writeProgram starts no child while the file is open, because an open file keeps the program from
// running.
func writeProgram(path string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, 0o755) //nolint:gosec // a program
}

func good() map[string]string {
	return map[string]string{
		"etcd": "etcd Version: 3.6.5", "kube-apiserver": "Kubernetes v1.37.1",
		"kube-controller-manager": "Kubernetes v1.37.1", "kubectl": "Client Version: v1.37.1",
	}
}

func TestPrebuilt(t *testing.T) {
	t.Parallel()
	dir := assets(t, good())
	steps, shown := quickSteps()
	p, err := prebuilt(t.Context(), steps, dir, "1.37")
	if err != nil || p.Version != "v1.37.1" || p.Subset || p.Controllers != filepath.Join(dir, "kube-controller-manager") || p.Kubectl != filepath.Join(dir, "kubectl") {
		t.Errorf("%+v, %v", p, err)
	}
	if want := "  Kubernetes v1.37.1 and etcd 3.6.5 are prebuilt: KUBEBUILDER_ASSETS=" + dir + "\n"; shown.String() != want {
		t.Errorf("shown is %q, want %q", shown, want)
	}
	var other *OtherVersionError
	if _, err := prebuilt(t.Context(), nil, dir, "1.36"); !errors.As(err, &other) || other.Have != "v1.37.1" {
		t.Errorf("KUBERNETES=1.36 gives %v", err)
	}
}

// TestPrebuiltErrors checks that each error names the folder or the program, and what to do.
func TestPrebuiltErrors(t *testing.T) {
	t.Parallel()
	foreign := make([]byte, 64)
	copy(foreign, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(foreign[16:], 2)   // an executable
	binary.LittleEndian.PutUint16(foreign[18:], 243) // RISC-V
	binary.LittleEndian.PutUint32(foreign[20:], 1)
	binary.LittleEndian.PutUint16(foreign[52:], 64)
	for name, c := range map[string]struct {
		change func(dir string) (string, error)
		want   string
	}{
		"relative":       {func(string) (string, error) { return "bin/k8s", nil }, "write the whole path"},
		"no folder":      {func(dir string) (string, error) { return dir + "x", nil }, "there is no such folder; `setup-envtest use -p path` prints"},
		"file":           {func(dir string) (string, error) { return filepath.Join(dir, "etcd"), nil }, "name the folder that it is in"},
		"no etcd":        {func(dir string) (string, error) { return dir, os.Remove(filepath.Join(dir, "etcd")) }, "there is no etcd in it; `setup-envtest"},
		"no API server":  {func(dir string) (string, error) { return dir, os.Remove(filepath.Join(dir, "kube-apiserver")) }, "there is no kube-apiserver in it"},
		"above":          {func(dir string) (string, error) { return filepath.Dir(dir), nil }, "did you mean /"},
		"not executable": {func(dir string) (string, error) { return dir, os.Chmod(filepath.Join(dir, "etcd"), 0o600) }, "etcd is not executable; run chmod +x"},
		"other platform": {func(dir string) (string, error) {
			return dir, writeProgram(filepath.Join(dir, "etcd"), foreign)
		}, "etcd is a program for linux/another architecture, and this machine is "},
		"broken": {func(dir string) (string, error) {
			return dir, writeProgram(filepath.Join(dir, "etcd"), []byte("#!/bin/sh\nexit 3\n"))
		}, "etcd cannot run here: exit status 3"},
		"other program": {func(dir string) (string, error) {
			return dir, writeProgram(filepath.Join(dir, "etcd"), []byte("#!/bin/sh\necho hello\n"))
		}, "does not report a version; is it another program?"},
		"too old": {func(dir string) (string, error) {
			return dir, writeProgram(filepath.Join(dir, "kube-apiserver"), []byte("#!/bin/sh\necho Kubernetes v1.33.9\n"))
		}, "has Kubernetes v1.33.9; Pillion's manifests need 1.34 or newer"},
		"controllers not executable": {func(dir string) (string, error) {
			return dir, os.Chmod(filepath.Join(dir, "kube-controller-manager"), 0o600)
		}, "kube-controller-manager is not executable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := c.change(assets(t, good()))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := prebuilt(t.Context(), nil, dir, ""); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// TestWithoutKubectl checks that a missing kubectl is reported and is no error.
func TestWithoutKubectl(t *testing.T) {
	versions := good()
	delete(versions, "kubectl")
	dir := assets(t, versions)
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	steps, shown := quickSteps()
	p := &Programs{Assets: dir}
	if err := p.findKubectl(t.Context(), steps); err != nil || p.Kubectl != "" || !strings.Contains(shown.String(), "kubectl is missing") || !strings.Contains(shown.String(), "go tool kubectl") {
		t.Errorf("%+v, %v, %s", p, err, shown)
	}
	bin := assets(t, map[string]string{"kubectl": "Client Version: v1.35.0"})
	t.Setenv("PATH", bin+":"+path)
	if err := p.findKubectl(t.Context(), steps); err != nil || p.Kubectl != filepath.Join(bin, "kubectl") || !strings.Contains(shown.String(), "using "+bin+"/kubectl, v1.35.0") {
		t.Errorf("%+v, %v, %s", p, err, shown)
	}
}
