// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestUninjectFromCluster checks the example in the help of uninject: it removes injected parts
// including the defaults that the API server has added. The result, if applied, equals a pod that
// was never injected.
func TestUninjectFromCluster(t *testing.T) {
	t.Parallel()
	const web, library = "../examples/web.yaml", "../templates/library/fluent-bit.yaml"
	run := func(stdin []byte, name string, args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(testContext(t), name, args...)
		var stderr strings.Builder
		cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
		}
		return out
	}
	kubectl := func(stdin []byte, ns string, args ...string) []byte {
		t.Helper()
		return run(stdin, env.Kubectl, append([]string{"--kubeconfig", env.Kubeconfig, "-n", ns}, args...)...)
	}
	template := func(ns string) corev1.PodTemplateSpec {
		t.Helper()
		d, err := env.Client.AppsV1().Deployments(ns).Get(testContext(t), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return d.Spec.Template
	}
	plain, injected := plainNamespace(t), plainNamespace(t)
	kubectl(nil, plain, "apply", "-f", web)
	kubectl(run(nil, env.binary, "inject", "-f", web, "--templates", library), injected, "apply", "-f", "-")
	if cmp.Diff(template(injected), template(plain)) == "" {
		t.Fatal("nothing was injected")
	}
	stored := kubectl(nil, injected, "get", "deployment", "web", "-o", "yaml")
	kubectl(run(stored, env.binary, "uninject", "-f", "-", "--templates", library), injected, "replace", "-f", "-")
	if diff := cmp.Diff(template(plain), template(injected)); diff != "" {
		t.Error(diff)
	}
}
