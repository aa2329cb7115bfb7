// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const vault = "vault.hashicorp.com/"

// TestFromVault has a namespace with the annotations of vault-k8s, and Pillion with its template in the
// place of vault-k8s. The pods get what vault-k8s would give them.
func TestFromVault(t *testing.T) {
	t.Parallel()
	root, err := cluster.Root(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	pillion, err := env.StartPillion(t.Context(), env.binary, filepath.Join(root, "templates", "from", "vault"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pillion.Stop(); err != nil {
			t.Errorf("pillion serve after SIGTERM: %v\n%s", err, pillion.LogTail())
		}
	})
	r := &replicas{manifests: env.manifests}
	r.mutate, r.validate = newProxy(t, []cluster.Endpoint{pillion.Endpoint}), newProxy(t, []cluster.Endpoint{pillion.Endpoint})
	r.install(t)
	patch := `{"metadata":{"annotations":{"` + vault + `role":"shop","` + vault + `service":"https://vault.example:8200"}}}`
	if _, err := env.Client.CoreV1().Namespaces().Patch(testContext(t), r.namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	annotated := func(name string, annotations ...string) *corev1.Pod {
		return newPod(name, func(p *corev1.Pod) {
			p.Annotations[vault+"agent-inject"], p.Annotations[vault+"agent-inject-secret-db"] = "true", "database/creds/shop"
			for i := 0; i < len(annotations); i += 2 {
				p.Annotations[vault+annotations[i]] = annotations[i+1]
			}
		})
	}
	eventually(t, "Pillion sees the namespace's annotations", func(ctx context.Context) error {
		pod, err := env.Client.CoreV1().Pods(r.namespace).Create(ctx, annotated("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		// Before, the namespace has no role, so the template is not added.
		config, err := readVaultConfig(pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1])
		if err == nil && config.AutoAuth.Method.Config.Role != "shop" {
			err = fmt.Errorf("the role is %q", config.AutoAuth.Method.Config.Role)
		}
		return err
	})

	pod := createPod(t, r.namespace, annotated("web"))
	wantVaultAgent(t, pod)
	first := createPod(t, r.namespace, annotated("first", "agent-init-first", "true", "agent-pre-populate-only", "true"))
	if got := containerNames(append(first.Spec.InitContainers, first.Spec.Containers...)); !slices.Equal(got, []string{"vault-agent-init", "migrate", "web", "worker"}) {
		t.Errorf("the containers are %v", got)
	}
	for _, left := range []*corev1.Pod{annotated("no", "agent-inject", "false"), annotated("injected", "agent-inject-status", "injected")} {
		got := createPod(t, r.namespace, left)
		if len(got.Spec.Containers) != 2 || len(got.Spec.InitContainers) != 1 || len(got.Spec.Containers[0].VolumeMounts) != 1 {
			t.Errorf("the pod %s is changed", left.Name)
		}
	}
}

type vaultSettings struct {
	ExitAfterAuth bool `json:"exit_after_auth"`
	AutoAuth      struct {
		Method struct{ Config struct{ Role string } }
	} `json:"auto_auth"`
	Vault    struct{ Address string }
	Template []struct{ Destination string }
}

func readVaultConfig(c corev1.Container) (config vaultSettings, err error) {
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "VAULT_CONFIG" })
	if i < 0 {
		return config, fmt.Errorf("the container %s has no configuration", c.Name)
	}
	data, err := base64.StdEncoding.DecodeString(c.Env[i].Value)
	if err != nil {
		return config, err
	}
	return config, json.Unmarshal(data, &config)
}

func wantVaultAgent(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if got := containerNames(pod.Spec.InitContainers); !slices.Equal(got, []string{"migrate", "vault-agent-init"}) {
		t.Errorf("the init containers are %v", got)
	}
	if got := containerNames(pod.Spec.Containers); !slices.Equal(got, []string{"web", "worker", "vault-agent"}) {
		t.Errorf("the containers are %v", got)
	}
	if got := pod.Annotations[vault+"agent-inject-status"]; got != "injected" {
		t.Errorf("the status is %q", got)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		paths := mountPaths(c)
		for _, path := range []string{"/vault/secrets", tokenPath} {
			if !slices.Contains(paths, path) {
				t.Errorf("the mounts of %s are %v, without %s", c.Name, paths, path)
			}
		}
		if c.Name != "vault-agent" && c.Name != "vault-agent-init" {
			continue
		}
		config, err := readVaultConfig(c)
		if err != nil || config.ExitAfterAuth != (c.Name == "vault-agent-init") || config.Vault.Address != "https://vault.example:8200" ||
			len(config.Template) != 1 || config.Template[0].Destination != "/vault/secrets/db" {
			t.Errorf("the configuration of %s is %v: %v", c.Name, config, err)
		}
	}
}
