// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDebugCopy checks the copy of an injected pod that kubectl debug --copy-to creates. By default
// kubectl drops annotations, labels and probes. The copy is allowed, or the denial names the flags
// of kubectl debug with which it is allowed.
func TestDebugCopy(t *testing.T) {
	t.Parallel()
	flagsIn := regexp.MustCompile(`\(kubectl debug (--[^)]+)\)`)
	pods := map[string]func(*corev1.Pod){
		"plain":    func(*corev1.Pod) {},
		"with-app": func(p *corev1.Pod) { p.Labels["app"] = "web" },
		"with-level": func(p *corev1.Pod) {
			overrides("copied", "level", "debug")(p)
			overrides("copied-all", "level", "debug")(p)
		},
	}
	for _, protect := range []string{"default", "all"} {
		ns := optedInNamespace(t, withLabel("e2e.example.com/copied", protect))
		for name, edit := range pods {
			t.Run(protect+"/"+name, func(t *testing.T) {
				t.Parallel()
				createPod(t, ns, newPod(name, edit))
				var flags []string
				copied, denial := debugCopy(t, ns, name, nil)
				for copied == nil {
					advice := flagsIn.FindStringSubmatch(denial)
					if advice == nil || slices.Contains(flags, strings.Fields(advice[1])[0]) {
						t.Fatalf("with %q the copy is denied, without a way out: %s", flags, denial)
					}
					flags = append(flags, strings.Fields(advice[1])...)
					copied, denial = debugCopy(t, ns, name, flags)
				}
				t.Logf("gets in with %q", flags)
				wantNothingToAdd(t, copied)
				if !slices.Contains(mountPaths(copied.Spec.Containers[len(copied.Spec.Containers)-1]), "/var/copied") {
					t.Errorf("the debugger has no mount: %v", copied.Spec.Containers)
				}
			})
		}
	}
}

// debugCopy copies a pod with kubectl debug, or returns why the copy was denied.
func debugCopy(t *testing.T, ns, name string, flags []string) (copied *corev1.Pod, denial string) {
	t.Helper()
	to := name + "-copy"
	args := append([]string{"debug", name, "-n", ns, "--copy-to=" + to, "--image=registry.example/busybox:1", "--attach=false"}, flags...)
	if _, err := env.RunKubectl(testContext(t), nil, args...); err != nil {
		return nil, err.Error()
	}
	copied, err := env.Client.CoreV1().Pods(ns).Get(testContext(t), to, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return copied, ""
}
