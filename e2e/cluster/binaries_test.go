// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

func object(json string) *runtime.Unknown { return &runtime.Unknown{Raw: []byte(json)} }

func TestLockExcludesOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(canceled, path, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the second lock gave %v, want that it waits until it is canceled", err)
	}
	unlock()
	again, err := lock(t.Context(), path, nil)
	if err != nil {
		t.Fatalf("lock after unlock: %v", err)
	}
	again()
}

// A build that fails leaves nothing that looks like a finished one, and takes away what others left.
func TestBuildIsAllOrNothing(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "kubernetes-v9.9.9")
	if err := os.Mkdir(dir+".building-1", 0o755); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := buildAside(dir, func(tmp string) error { return buildKubernetes(canceled, "..", "v9.9.9", tmp) }); err == nil {
		t.Error("a canceled build gave no error")
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 0 || complete(dir) {
		t.Errorf("left behind: %v", entries)
	}
}

func TestKubernetesTools(t *testing.T) {
	t.Parallel()
	for minor, want := range map[string]string{"": "e2e", "1.36": "kubernetes-1.36"} {
		module, version, err := kubernetesTools(t.Context(), minor)
		if err != nil || filepath.Base(module) != want || !strings.HasPrefix(version, "v"+minor) {
			t.Errorf("KUBERNETES=%s is %s of %s (%v), want the module %s", minor, version, module, err, want)
		}
	}
	if _, _, err := kubernetesTools(t.Context(), "1.3"); err == nil || !strings.Contains(err.Error(), "KUBERNETES=1.3 ") {
		t.Errorf("KUBERNETES=1.3 gave %v, want that there is none", err)
	}
}

func TestLDFlags(t *testing.T) {
	t.Parallel()
	flags := ldflags("v1.37.1")
	for _, want := range []string{"-X k8s.io/component-base/version.gitVersion=v1.37.1", "-X k8s.io/client-go/pkg/version.gitMinor=37"} {
		if !strings.Contains(flags, want) {
			t.Errorf("ldflags are %q, want %q in them", flags, want)
		}
	}
}
