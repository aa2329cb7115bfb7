// SPDX-License-Identifier: Apache-2.0

// Command demo shows Pillion on a real kube-apiserver: what it adds to a pod, why, and how
// long that takes. With KEEP=1 in the environment, everything keeps running until an
// interrupt, and the command shows what the user's templates change.
package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/programs"
	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

// The names in namespaces.yaml.
const (
	optedIn    = "shop"
	notOptedIn = "shop-without"
	// recorder is a webhook that is called right before Pillion and stores the pod.
	recorder = "p-recorder"
)

//go:embed namespaces.yaml
var namespaces []byte

//go:embed deployment.yaml
var deployment []byte

//go:embed templates
var templates embed.FS

// demo is one run.
type demo struct {
	*cluster.Cluster
	screen    *screen
	steps     *programs.Steps
	root      string // of the checkout
	manifests *cluster.Manifests
	pillion   *cluster.Pillion
	webhooks  *testwebhook.Server
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Getenv("KEEP") != "")
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, keep bool) (err error) {
	d := &demo{screen: newScreen(os.Stdout), steps: programs.NewSteps(os.Stdout)}
	if d.root, err = cluster.Root(ctx); err != nil {
		return err
	}
	d.screen.heading("A real Kubernetes, and Pillion in front of its pods")
	if d.Cluster, err = cluster.Start(ctx, d.steps); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, d.steps.Do("everything stopped and removed", d.Stop))
	}()
	if err := d.start(ctx); err != nil {
		return err
	}
	defer d.webhooks.Close()
	if err := d.show(ctx); err != nil {
		return err
	}
	if keep {
		if err := d.showWhatToTry(); err != nil {
			return err
		}
		return d.followTemplates(ctx)
	}
	fmt.Fprintln(d.screen.out, "\n`KEEP=1 make demo` leaves it running, for you to apply a template of your own.")
	fmt.Fprintln(d.screen.out)
	return nil
}

func (d *demo) show(ctx context.Context) error {
	injected, err := d.showPod(ctx)
	if err != nil || !injected {
		return err
	}
	return d.showTimes(ctx)
}

// start starts Pillion, its controller and its webhooks.
func (d *demo) start(ctx context.Context) error {
	binary, err := d.BuildPillionQuickly(ctx)
	if err != nil {
		return err
	}
	if d.manifests, err = cluster.RenderManifests(filepath.Join(d.root, "manifests", "base")); err != nil {
		return err
	}
	if err := d.steps.Do("manifests/base applied", func() error { return d.ApplyRest(ctx, d.manifests) }); err != nil {
		return err
	}
	if err := d.steps.Do("e2e/demo/templates applied", func() error { return d.applyTemplates(ctx) }); err != nil {
		return err
	}
	if d.pillion, err = d.StartPillionWith(ctx, binary, []string{"--advise"}); err != nil {
		return err
	}
	if _, err := d.StartController(ctx, binary); err != nil {
		return err
	}
	if d.webhooks, err = testwebhook.NewServer(d.Authority); err != nil {
		return err
	}
	return d.install(ctx, d.pillion.Endpoint)
}

// install creates the namespaces and the webhook configurations.
func (d *demo) install(ctx context.Context, at cluster.Endpoint) error {
	if err := d.Apply(ctx, namespaces); err != nil {
		return err
	}
	err := d.webhooks.Install(ctx, d.Client, testwebhook.Webhook{
		Name:         recorder,
		Namespaces:   map[string]string{"pillion.dev/inject": "enabled"},
		Reinvocation: admissionregistrationv1.NeverReinvocationPolicy,
		Mutate:       testwebhook.Nothing,
	})
	if err != nil {
		return err
	}
	if err := d.InstallMutating(ctx, d.manifests, at); err != nil {
		return err
	}
	if err := d.InstallValidating(ctx, d.manifests, at); err != nil {
		return err
	}
	if err := d.InstallAdvising(ctx, d.manifests, "", at); err != nil {
		return err
	}
	return d.WaitForPillion(ctx, d.manifests, optedIn, recorder)
}

// applyTemplates creates the templates as objects, and empties the ConfigMap of the library: the demo's Pillion reads
// no files.
func (d *demo) applyTemplates(ctx context.Context) error {
	empty := []byte(`[{"op": "remove", "path": "/data"}]`)
	_, err := d.Client.CoreV1().ConfigMaps("pillion-system").Patch(ctx, "pillion-templates", types.JSONPatchType, empty, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	files, err := fs.Glob(templates, "templates/*.yaml")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := templates.ReadFile(file)
		if err != nil {
			return err
		}
		if text, err = asApplied(text); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := d.applyTemplate(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// applyTemplate waits until the API server serves templates, which is some moments after their definition was applied.
func (d *demo) applyTemplate(ctx context.Context, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, podWithin)
	defer cancel()
	return cluster.Poll(ctx, func() error { return d.Apply(ctx, text) })
}

// asApplied adds the annotation of `kubectl apply`, which warns if an object that it changes lacks it.
func asApplied(text []byte) ([]byte, error) {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &object.Object); err != nil {
		return nil, err
	}
	applied, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	object.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: string(applied)})
	return yaml.Marshal(object.Object)
}
