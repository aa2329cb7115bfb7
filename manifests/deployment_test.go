// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/manifests"
)

// TestArguments checks the arguments of the Deployment's container.
func TestArguments(t *testing.T) { checkArguments(t) }

func checkArguments(t testing.TB) {
	t.Helper()
	container := load(t).deployment.Spec.Template.Spec.Containers[0]
	want := []string{
		"serve",
		"--advise",
		"--templates=" + manifests.TemplatesPath,
		fmt.Sprintf("--listen=:%d", manifests.WebhookPort),
		fmt.Sprintf("--admin-listen=:%d", manifests.AdminPort),
		"--shutdown-delay=0s",
		"--tls-cert-file=" + manifests.TLSPath + "/" + corev1.TLSCertKey,
		"--tls-key-file=" + manifests.TLSPath + "/" + corev1.TLSPrivateKeyKey,
	}
	if !slices.Equal(container.Args, want) {
		t.Errorf("args are\n%q, want\n%q", container.Args, want)
	}
}

// TestMounts checks that the templates and the certificate are mounted and nothing else, and that all mounts are read-only and see updates.
func TestMounts(t *testing.T) { checkMounts(t) }

func checkMounts(t testing.TB) {
	t.Helper()
	pod := load(t).deployment.Spec.Template.Spec
	at := map[string]string{}
	for _, m := range pod.Containers[0].VolumeMounts {
		at[m.Name] = m.MountPath
		if !m.ReadOnly || m.SubPath != "" {
			t.Errorf("mount %s is writable, or a subPath, which never sees an update", m.Name)
		}
	}
	for _, v := range pod.Volumes {
		switch {
		case v.ConfigMap != nil && v.ConfigMap.Name == manifests.TemplatesConfigMap && at[v.Name] == manifests.TemplatesPath:
		case v.Secret != nil && v.Secret.SecretName == manifests.TLSSecret && at[v.Name] == manifests.TLSPath:
		default:
			t.Errorf("volume %s at %q is not the templates and not the certificate", v.Name, at[v.Name])
		}
	}
	if len(pod.Volumes) != 2 || len(at) != 2 {
		t.Errorf("%d volumes and %d mounts, want two of each", len(pod.Volumes), len(at))
	}
}

// TestProbes checks the path and the port of each probe.
func TestProbes(t *testing.T) { checkProbes(t) }

func checkProbes(t testing.TB) {
	t.Helper()
	c := load(t).deployment.Spec.Template.Spec.Containers[0]
	for name, p := range map[string]struct {
		probe *corev1.Probe
		path  string
	}{
		"startup":   {c.StartupProbe, manifests.LivePath},
		"liveness":  {c.LivenessProbe, manifests.LivePath},
		"readiness": {c.ReadinessProbe, manifests.ReadyPath},
	} {
		if p.probe == nil || p.probe.HTTPGet == nil {
			t.Errorf("no %s probe over HTTP", name)
			continue
		}
		if get := p.probe.HTTPGet; get.Path != p.path || get.Port != intstr.FromString(manifests.AdminPortName) || get.Scheme != "" {
			t.Errorf("the %s probe asks for %s on %s", name, get.Path, get.Port.String())
		}
	}
}

// TestRestricted checks that the Pod follows the Restricted Pod Security Standard, and its root
// filesystem is read-only.
func TestRestricted(t *testing.T) { checkRestricted(t) }

func checkRestricted(t testing.TB) {
	t.Helper()
	pod := load(t).deployment.Spec.Template.Spec
	c := pod.Containers[0]
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatal("this test knows of one container")
	}
	p, s := pod.SecurityContext, c.SecurityContext
	if p == nil || s == nil || s.Capabilities == nil || p.SeccompProfile == nil {
		t.Fatal("no securityContext, capabilities or seccompProfile")
	}
	for what, ok := range map[string]bool{
		"allowPrivilegeEscalation: false": s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation,
		"readOnlyRootFilesystem: true":    s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem,
		"runAsNonRoot: true":              p.RunAsNonRoot != nil && *p.RunAsNonRoot,
		"a numeric runAsUser":             p.RunAsUser != nil && *p.RunAsUser > 0,
		"seccomp RuntimeDefault":          p.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"capabilities drop ALL":           slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(s.Capabilities.Add) == 0,
		"requests, and a memory limit":    len(c.Resources.Requests) == 2 && len(c.Resources.Limits) == 1 && !c.Resources.Limits.Memory().IsZero(),
		"--memory-limit from the limit":   len(c.Env) == 1 && c.Env[0].Name == "PILLION_MEMORY_LIMIT" && c.Env[0].ValueFrom.ResourceFieldRef.Resource == "limits.memory",
	} {
		if !ok {
			t.Errorf("lacks %s", what)
		}
	}
}
