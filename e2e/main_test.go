// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the built pillion against a real kube-apiserver, which calls it as the shipped
// webhook configurations say.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/programs"
	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

const (
	injectLabel = "pillion.dev/inject"
	recordLabel = "e2e.example.com/record"

	// pillionConfiguration is the name of both shipped configurations.
	pillionConfiguration = "pillion"
	// recorder sorts right before Pillion, so what it is sent is what Pillion is sent.
	recorder = "p-recorder"
	// markerNamespace is where the first calls of the webhooks are awaited.
	markerNamespace = "e2e-marker"
)

// environment is what all tests share.
type environment struct {
	*cluster.Cluster
	binary    string
	templates []string // paths of this folder's and of the shipped ones
	manifests *cluster.Manifests
	pillion   *cluster.Pillion
	webhooks  *testwebhook.Server
}

// env is set by TestMain before the first test: Go hands nothing else to tests.
var env *environment

func TestMain(m *testing.M) {
	programs.ClearEnvironment()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	steps := programs.NewSteps(os.Stderr)
	found, err := programs.Kubernetes(ctx, steps)
	if err != nil {
		return skipOthers(m, err)
	}
	if err := found.NeedKubectl(ctx, steps); err != nil {
		return 0, err
	}
	c, err := cluster.StartPrograms(ctx, steps, found)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	env = &environment{Cluster: c}
	if err := env.prepare(ctx); err != nil {
		return 0, err
	}
	defer env.webhooks.Close()

	done := make(chan int, 1)
	go func() { done <- m.Run() }()
	select {
	case code = <-done:
		return code, errors.Join(checkAuditAnnotations(c), env.stopPillion())
	case <-ctx.Done(): // the tests continue until the cluster has stopped
		return 0, errors.New("interrupted")
	}
}

// skipOthers runs, in place of all tests, the one that reports why they are skipped: the prebuilt programs are not of the
// version that they are for.
func skipOthers(m *testing.M, err error) (int, error) {
	if !errors.As(err, &errOtherVersion) {
		return 0, err
	}
	flag.Parse()
	if err := flag.Set("test.run", "^TestKubernetesVersion$"); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// errOtherVersion is set before the first test.
var errOtherVersion *programs.OtherVersionError

func TestKubernetesVersion(t *testing.T) {
	t.Parallel()
	if errOtherVersion != nil {
		t.Skipf("all tests on Kubernetes %s: KUBEBUILDER_ASSETS has %s", errOtherVersion.Want, errOtherVersion.Have)
	}
}

// checksTypes is for needsControllerManager.
const checksTypes = "checks the types of policies"

// needsControllerManager skips a test that needs a controller which e2e/controllers lacks.
func needsControllerManager(t *testing.T, why string) {
	t.Helper()
	if env.Programs.Subset {
		t.Skipf("KUBEBUILDER_ASSETS has no kube-controller-manager, which %s", why)
	}
}

// needsKubernetes skips a test on a Kubernetes 1.x that is older than the minor version, which is the first that does this.
func needsKubernetes(t *testing.T, minor int, what string) {
	t.Helper()
	if have := kubernetesMinor(t); have < minor {
		t.Skipf("Kubernetes 1.%d: only 1.%d or later %s", have, minor, what)
	}
}

// kubernetesMinor returns 37 on Kubernetes 1.37.
func kubernetesMinor(t *testing.T) (minor int) {
	t.Helper()
	if _, err := fmt.Sscanf(env.Programs.Version, "v1.%d.", &minor); err != nil {
		t.Fatalf("the version %q: %v", env.Programs.Version, err)
	}
	return minor
}

// prepare puts Pillion and the recorder in place and waits until the API server calls them.
func (e *environment) prepare(ctx context.Context) (err error) {
	if e.webhooks, err = testwebhook.NewServer(e.Authority); err != nil {
		return err
	}
	root, err := cluster.Root(ctx)
	if err != nil {
		return err
	}
	e.templates = []string{filepath.Join("testdata", "templates"), filepath.Join(root, "templates", "library")}
	if e.binary, err = e.BuildPillion(ctx); err != nil {
		return err
	}
	if e.manifests, err = cluster.RenderManifests(filepath.Join(root, "manifests", "base")); err != nil {
		return err
	}
	if err := e.ApplyRest(ctx, e.manifests); err != nil {
		return err
	}
	if e.pillion, err = e.StartPillion(ctx, e.binary, e.templates...); err != nil {
		return err
	}
	return e.installWebhooks(ctx)
}

func (e *environment) installWebhooks(ctx context.Context) error {
	_, err := e.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   markerNamespace,
		Labels: map[string]string{injectLabel: "enabled", recordLabel: "true"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	err = e.webhooks.Install(ctx, e.Client, testwebhook.Webhook{
		Name:         recorder,
		Namespaces:   map[string]string{recordLabel: "true"},
		Reinvocation: admissionregistrationv1.NeverReinvocationPolicy,
		Mutate:       testwebhook.Nothing,
	})
	if err != nil {
		return err
	}
	if err := e.InstallMutating(ctx, e.manifests, e.pillion.Endpoint); err != nil {
		return err
	}
	if err := e.InstallValidating(ctx, e.manifests, e.pillion.Endpoint); err != nil {
		return err
	}
	return e.WaitForPillion(ctx, e.manifests, markerNamespace, recorder)
}

// stopPillion checks that Pillion exits without an error after SIGTERM.
func (e *environment) stopPillion() error {
	if err := e.pillion.Stop(); err != nil {
		return fmt.Errorf("pillion serve after SIGTERM: %w\n%s", err, e.pillion.LogTail())
	}
	return nil
}
