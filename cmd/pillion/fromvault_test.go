// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/inject/testing/golden"
)

// TestVaultSettings compares the configuration of Vault Agent, which is in base64 in an environment variable, with a
// file that can be read.
func TestVaultSettings(t *testing.T) {
	t.Parallel()
	tests := filepath.Join(from, "vault", "tests")
	data, err := os.ReadFile(filepath.Join(tests, "settings-injected.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.Unmarshal(data, &pod); err != nil {
		t.Fatal(err)
	}
	configs := map[string]json.RawMessage{}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		for _, e := range c.Env {
			if e.Name != "VAULT_CONFIG" {
				continue
			}
			if configs[c.Name], err = base64.StdEncoding.DecodeString(e.Value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(configs) != 2 {
		t.Errorf("%d containers have a configuration, not 2", len(configs))
	}
	var got bytes.Buffer
	e := json.NewEncoder(&got)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(configs); err != nil { // it fails if a configuration is no JSON
		t.Fatal(err)
	}
	golden.File(t, filepath.Join(tests, "settings.json"), got.Bytes())
}
