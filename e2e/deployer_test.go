// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/programs"
)

// TestDeployer checks that a user with the shipped rights of a deployer can install and upgrade either
// overlay in an empty cluster, and can do nothing else. A user without them cannot install.
func TestDeployer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	manifests := filepath.Join(root, "manifests")
	binaries, err := programs.CertManager(t.Context(), programs.NewSteps(os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	kubectl := func(stdin string, args ...string) error {
		_, err := c.RunKubectl(testContext(t), []byte(stdin), args...)
		return err
	}
	apply := func(args ...string) []string { return append([]string{"apply", "--server-side"}, args...) }
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("the administrator", kubectl("", apply("-f", filepath.Join(manifests, "base", "10-namespace.yaml"), "-f", filepath.Join(manifests, "deployer.yaml"), "-f", filepath.Join(binaries, "crds"))...))
	must("cert-manager's kinds", kubectl("", "wait", "--for=condition=established", "crd", "--all"))

	deployer := []string{"--as=deployer", "--as-group=pillion-deployers"}
	for _, overlay := range []string{"cert-manager", "self-signed"} {
		dir := filepath.Join(manifests, "overlays", overlay)
		if err := kubectl("", apply("-k", dir, "--as=somebody")...); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("%s: somebody's error is %v", overlay, err)
		}
		must(overlay, kubectl("", append(apply("-k", dir), deployer...)...))
		must(overlay+" once more", kubectl("", append(apply("-k", dir), deployer...)...))

		upgrade := t.TempDir()
		relative, err := filepath.Rel(upgrade, dir)
		must("upgrade", err)
		text := "resources: [" + relative + "]\nimages: [{name: ghcr.io/pillion-dev/pillion, newTag: v9.9.9}]\n"
		must("upgrade", os.WriteFile(filepath.Join(upgrade, "kustomization.yaml"), []byte(text), 0o600))
		must(overlay+", another version", kubectl("", append(apply("-k", upgrade), deployer...)...))
		out, err := c.RunKubectl(testContext(t), nil, append(deployer, "-n", "pillion-system", "get", "deployment", "pillion", "-o", "jsonpath={..image}")...)
		if err != nil || string(out) != "ghcr.io/pillion-dev/pillion:v9.9.9" {
			t.Errorf("%s: the image is %s, %v", overlay, out, err)
		}
	}

	rbac := "apiVersion: rbac.authorization.k8s.io/v1\nkind: "
	for what, try := range map[string]struct {
		stdin string
		args  []string
	}{
		"a Secret elsewhere":                {"", []string{"-n", "default", "get", "secret", "pillion-tls"}},
		"another Secret":                    {"", []string{"-n", "pillion-system", "get", "secret", "other"}},
		"all Secrets":                       {"", []string{"-n", "pillion-system", "get", "secrets"}},
		"another webhook configuration":     {"apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: other}\n", apply("-f", "-")},
		"another namespace":                 {"", []string{"label", "namespace", "default", "x=y"}},
		"taking it out":                     {"", []string{"delete", "validatingwebhookconfiguration", "pillion"}},
		"a pod of its own":                  {"", []string{"-n", "pillion-system", "run", "x", "--image=x"}},
		"more rights for Pillion":           {rbac + "ClusterRole\nmetadata: {name: pillion}\nrules: [{apiGroups: [''], resources: [secrets], verbs: [get]}]\n", apply("--force-conflicts", "-f", "-")},
		"more rights in its namespace":      {rbac + "Role\nmetadata: {name: pillion-certs, namespace: pillion-system}\nrules: [{apiGroups: [''], resources: [secrets], verbs: [get]}]\n", apply("--force-conflicts", "-f", "-")},
		"the administrator's role for free": {rbac + "RoleBinding\nmetadata: {name: pillion-certs, namespace: pillion-system}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}\nsubjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: deployer}]\n", apply("--force-conflicts", "-f", "-")},
	} {
		if what == "the administrator's role for free" { // a binding's role cannot be changed, so there must be none
			must(what, kubectl("", "-n", "pillion-system", "delete", "rolebinding", "pillion-certs"))
		}
		if err := kubectl(try.stdin, append(try.args, deployer...)...); err == nil || !strings.Contains(err.Error(), "forbidden") && !strings.Contains(err.Error(), "Forbidden") {
			t.Errorf("%s: the error is %v", what, err)
		}
	}
}

// TestHelmDeployer checks that with the rights that the page about Helm has, a user can install, upgrade and roll back the
// chart, and cannot remove it. Without those for Helm, Helm cannot keep its release.
func TestHelmDeployer(t *testing.T) {
	t.Parallel()
	i := &installed{Cluster: newCluster(t), namespace: "shop"}
	if _, err := i.StartCertManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	u := i.newHelmUser(t)
	const (
		deployer = " --namespace pillion-system --kube-as-user=deployer --kube-as-group=pillion-deployers"
		install  = "helm install pillion manifests/chart" + deployer
	)
	u.types(t, "kubectl apply --server-side -f manifests/base/10-namespace.yaml -f manifests/deployer.yaml", 0)
	u.isForbidden(t, install, `resource "secrets"`)
	u.doesAsWritten(t, "manifests/docs/helm.md", "deployer-helm.yaml", nil)
	u.types(t, install, 0)
	u.types(t, "helm upgrade pillion manifests/chart --set image.tag=v9.9.9"+deployer, 0)
	u.wantImage(t, "ghcr.io/pillion-dev/pillion:v9.9.9")
	u.types(t, "helm rollback pillion 1"+deployer, 0)
	u.wantImage(t, "ghcr.io/pillion-dev/pillion:v0.1.0")
	out := u.kubectl(t, "", "-n", "pillion-system", "get", "secrets", "-l", "owner=helm,status=deployed", "-o", "jsonpath={.items[*].metadata.labels.version}")
	if out != "3" {
		t.Errorf("the deployed revision is %s, want 3", out)
	}
	u.types(t, "helm uninstall pillion"+deployer, 1) // nothing is deleted
	u.wantImage(t, "ghcr.io/pillion-dev/pillion:v0.1.0")
	u.types(t, "helm uninstall pillion --namespace pillion-system", 0)
	u.types(t, install+" --set certificates.source=self-signed", 0)
	u.isForbidden(t, "kubectl -n default get secrets --as=deployer --as-group=pillion-deployers", `resource "secrets"`)
}

// isForbidden wants that a command fails because RBAC does not allow something.
func (u *user) isForbidden(t *testing.T, line, what string) {
	t.Helper()
	shown, code, err := u.run(testContext(t), line)
	if err != nil || code == 0 || !strings.Contains(shown, "forbidden") || !strings.Contains(shown, what) {
		t.Errorf("%s: exit code %d, %v; it prints\n%s", line, code, err, shown)
	}
}
