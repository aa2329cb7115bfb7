// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/programs"
)

// installed is a cluster of its own with Pillion as an overlay installs it, and nothing done by hand: what the
// test adds is what a cluster has (nodes, and cert-manager where the overlay asks for it).
type installed struct {
	*cluster.Cluster
	replicas   []*cluster.Replica
	namespace  string   // whose pods API servers send to Pillion
	components []string // beside the overlay
	binary     string   // of the replicas; "": the one that all tests share
}

// deployWithin is what a cluster may take from the Deployment to ready replicas: cert-manager's controllers
// wait between their steps.
const deployWithin = 3 * time.Minute

// newCluster starts a control plane.
func newCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := cluster.StartPrograms(t.Context(), programs.NewSteps(os.Stderr), env.Programs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// install applies the overlay and runs what it deploys; flags are added to those of the Deployment.
func install(t *testing.T, c *cluster.Cluster, overlay string, flags ...string) *installed {
	t.Helper()
	return (&installed{Cluster: c}).install(t, overlay, flags...)
}

func (i *installed) install(t *testing.T, overlay string, flags ...string) *installed {
	t.Helper()
	i.namespace = "shop"
	i.apply(t, overlay)
	i.run(t, flags...)
	return i
}

// run runs what has been applied.
func (i *installed) run(t *testing.T, flags ...string) {
	t.Helper()
	if err := i.deploy(t, flags...); err != nil {
		t.Fatal(err)
	}
	c := i.Cluster
	_, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: i.namespace, Labels: map[string]string{injectLabel: "enabled"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WaitForPods(testContext(t), i.namespace); err != nil {
		t.Fatal(err)
	}
}

// deploy runs the replicas of the Deployment until the test ends.
func (i *installed) deploy(t *testing.T, flags ...string) (err error) {
	i.replicas, err = i.RunDeployment(t.Context(), cmp.Or(i.binary, env.binary), deployWithin, flags...)
	t.Cleanup(func() {
		for _, r := range i.replicas {
			if err := r.Stop(); err != nil {
				t.Errorf("pillion serve after SIGTERM: %v\n%s", err, r.LogTail())
			}
		}
	})
	return err
}

// apply is all that a user does to install Pillion.
func (i *installed) apply(t *testing.T, overlay string) {
	t.Helper()
	dir := kustomization(t, "overlays/"+overlay, i.components...)
	if _, err := i.RunKubectl(t.Context(), nil, "apply", "--server-side", "--validate=strict", "-k", dir); err != nil {
		t.Fatal(err)
	}
}

// shopPod asks for a template that ships with Pillion.
func shopPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			"pillion.dev/templates":       "fluent-bit",
			"fluent-bit.pillion.dev/host": "logs.example.com",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}},
	}
}

func isInjected(pod *corev1.Pod) bool {
	return pod.Annotations["fluent-bit.pillion.dev/injected"] != "" && len(pod.Spec.InitContainers)+len(pod.Spec.Containers) == 2
}

// templateRevisions returns the revisions of the templates that the replicas use.
func (i *installed) templateRevisions(ctx context.Context) (all []string, err error) {
	for _, r := range i.replicas {
		_, text, err := r.Readiness(ctx)
		if err != nil {
			return nil, err
		}
		_, after, _ := strings.Cut(text, "templates ok: revision ")
		revision, _, _ := strings.Cut(after, ",")
		all = append(all, revision)
	}
	return all, nil
}

// waitForInjection returns when pods are injected, and nothing but waiting has brought it about.
func (i *installed) waitForInjection(t *testing.T) *corev1.Pod {
	t.Helper()
	var injected *corev1.Pod
	eventually(t, "a pod is injected", func(ctx context.Context) (err error) {
		pod := shopPod()
		pod.GenerateName = "first-"
		injected, err = i.Client.CoreV1().Pods(i.namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err == nil && !isInjected(injected) {
			err = errNotInjected
		}
		return err
	})
	return injected
}

// TestCertManager checks that no further step is necessary from `kubectl apply` to the first
// injected pod. Then `pillion certs` reports no problem, and later a problem that the test creates.
func TestCertManager(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	manager, err := c.StartCertManager(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(manager.Log())
		}
	})
	start := time.Now()
	i := install(t, c, "cert-manager")
	pod := i.waitForInjection(t)
	t.Logf("%s after kubectl apply, pod %s is injected", time.Since(start).Round(time.Millisecond), pod.Name)

	report := i.certs(t)
	if len(report.Problems) > 0 || report.Source != "cert-manager" || !report.Issuer.Ready || !report.Certificate.Ready {
		t.Errorf("all is well, and the report is %+v", report)
	}
	if len(report.Served) != len(i.replicas) || slices.ContainsFunc(report.Served, func(s presented) bool { return !s.Verified }) {
		t.Errorf("served is %+v", report.Served)
	}
	if len(report.Trust) != len(pillionRules()) || slices.ContainsFunc(report.Trust, func(t trusted) bool { return len(t.Certificates) != 1 }) {
		t.Errorf("trusted is %+v", report.Trust)
	}

	i.wantRenewal(t, "pillion", 60*24*time.Hour)
	i.wantRenewal(t, "pillion-ca", (3650-180)*24*time.Hour)
	i.changeCAByHand(t)

	if err := manager.PauseInjector(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.ResumeInjector() }()
	i.clearBundles(t)
	i.wantProblem(t, "MutatingWebhookConfiguration/pillion: the caBundle of namespace.mutate.pillion.dev, pod.mutate.pillion.dev is empty, "+
		"so API servers cannot verify Pillion; cert-manager's cainjector fills it; check that it runs, and read its log")
	if err := manager.ResumeInjector(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the caBundles are back", i.bundlesThere)
	if report := i.certs(t); len(report.Problems) > 0 {
		t.Errorf("all is well again, and there are problems: %q", report.Problems)
	}
	if _, err := c.RunKubectl(t.Context(), nil, "-n", pillionNamespace, "delete", "issuer", "pillion-ca"); err != nil {
		t.Fatal(err)
	}
	i.wantProblem(t, "the Issuer pillion-ca does not exist, and the Certificate pillion-system/pillion needs it; install Pillion again")
}

// wantRenewal checks that cert-manager will renew the certificate after it has been valid for that time.
func (i *installed) wantRenewal(t *testing.T, name string, after time.Duration) {
	t.Helper()
	out, err := i.RunKubectl(testContext(t), nil, "-n", pillionNamespace, "get", "certificate", name, "-o", "json")
	var certificate struct {
		Status struct{ NotBefore, RenewalTime metav1.Time }
	}
	if err = errors.Join(err, json.Unmarshal(out, &certificate)); err != nil {
		t.Fatal(err)
	}
	if got := certificate.Status.RenewalTime.Sub(certificate.Status.NotBefore.Time); got != after {
		t.Errorf("the Certificate %s is renewed %s after it was issued, want %s", name, got, after)
	}
}

// changeCAByHand follows the page about certificates: first the CA gets another key, then the previous key leaves
// the caBundles.
func (i *installed) changeCAByHand(t *testing.T) {
	t.Helper()
	before := i.served(t)[0].AuthorityKeyId
	i.asOnPage(t, "delete secret pillion-ca")
	i.waitForServed(t)
	if after := i.served(t)[0].AuthorityKeyId; slices.Equal(before, after) {
		t.Error("the CA has the key that it had")
	}
	if trust := i.certs(t).Trust; len(trust[0].Certificates) != 2 {
		t.Errorf("trusted is %+v, want both CAs", trust)
	}
	i.asOnPage(t, "ca=$(kubectl")
	report := i.certs(t)
	if len(report.Problems) > 0 || slices.ContainsFunc(report.Trust, func(t trusted) bool { return len(t.Certificates) != 1 }) {
		t.Errorf("trusted is %+v, want the new CA alone; problems: %q", report.Trust, report.Problems)
	}
}

// asOnPage runs the commands of the block with that text.
func (i *installed) asOnPage(t *testing.T, text string) {
	t.Helper()
	block := pageBlock(t, "manifests/docs/certificates.md", text)
	cmd := exec.CommandContext(testContext(t), "bash", "-euc", strings.ReplaceAll("\n"+block, "\n$ ", "\n"))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+i.Kubeconfig, "PATH="+filepath.Dir(i.Kubectl)+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", block, err, out)
	}
}

// pageBlock returns the transcript or the file with that text.
func pageBlock(t *testing.T, path, text string) string {
	t.Helper()
	for k, block := range strings.Split(page(t, path), "\n```") {
		if _, block, _ = strings.Cut(block, "\n"); k%2 == 1 && strings.Contains(block, text) {
			return block
		}
	}
	t.Fatalf("%s has no block with %q", path, text)
	return ""
}

// chainReport is the part of the output of `pillion certs` that these tests read.
type chainReport struct {
	Source              string
	Issuer, Certificate struct{ Ready bool }
	Trust               []trusted
	Served              []presented
	Problems            []string
}

type (
	trusted   struct{ Certificates []any }
	presented struct{ Verified bool }
)

// certs runs `pillion certs` and checks that its exit code fits its output.
func (i *installed) certs(t *testing.T) chainReport {
	t.Helper()
	out, err := exec.CommandContext(testContext(t), env.binary, "certs", "--kubeconfig", i.Kubeconfig, "-o", "json").Output()
	var report chainReport
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("pillion certs wrote %q: %v", out, err)
	}
	if (err != nil) != (len(report.Problems) > 0) {
		t.Errorf("pillion certs ended with %v, and its problems are %q", err, report.Problems)
	}
	return report
}

// wantProblem checks what `pillion certs` says is wrong first.
func (i *installed) wantProblem(t *testing.T, want string) {
	t.Helper()
	if problems := i.certs(t).Problems; len(problems) == 0 || problems[0] != want {
		t.Errorf("problems are %q, want first %q", problems, want)
	}
}
