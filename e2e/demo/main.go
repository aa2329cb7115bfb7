// SPDX-License-Identifier: Apache-2.0

// Command demo shows Pillion at work on a real kube-apiserver: what it adds to a pod, why, and how long
// that takes. With KEEP=1 in the environment everything stays up until it is interrupted.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

// The names are namespaces.yaml's.
const (
	optedIn    = "shop"
	notOptedIn = "shop-without"
	// recorder is called right before Pillion and keeps what it is sent.
	recorder = "p-recorder"
)

//go:embed templates
var templates embed.FS

//go:embed namespaces.yaml
var namespaces []byte

//go:embed deployment.yaml
var deployment []byte

// demo is one run.
type demo struct {
	*cluster.Cluster
	screen    *screen
	steps     *cluster.Steps
	manifests *cluster.Manifests
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
	d := &demo{screen: newScreen(os.Stdout), steps: cluster.NewSteps(os.Stdout)}
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
	for _, show := range []func(context.Context) error{d.showPod, d.showTimes} {
		if err := show(ctx); err != nil {
			return err
		}
	}
	if keep {
		d.showWhatToTry()
		<-ctx.Done()
	}
	fmt.Println()
	return nil
}

// start puts Pillion in front of the cluster's pods.
func (d *demo) start(ctx context.Context) error {
	binary, err := d.BuildPillion(ctx)
	if err != nil {
		return err
	}
	root, err := cluster.Root(ctx)
	if err != nil {
		return err
	}
	if d.manifests, err = d.RenderManifests(ctx, filepath.Join(root, "manifests", "base")); err != nil {
		return err
	}
	if err := d.steps.Do("kubectl apply -k manifests/base", func() error { return d.ApplyRest(ctx, d.manifests) }); err != nil {
		return err
	}
	dir := d.Path("demo")
	if err := os.CopyFS(dir, templates); err != nil {
		return err
	}
	if err := d.showTemplates(ctx); err != nil {
		return err
	}
	pillion, err := d.StartPillion(ctx, binary, filepath.Join(dir, "templates"))
	if err != nil {
		return err
	}
	if d.webhooks, err = testwebhook.NewServer(d.Authority); err != nil {
		return err
	}
	return d.install(ctx, pillion.Endpoint)
}

// showTemplates puts the demo's templates where a cluster's are, for pillion explain and status.
func (d *demo) showTemplates(ctx context.Context) error {
	client := d.Client.CoreV1().ConfigMaps("pillion-system")
	config, err := client.Get(ctx, "pillion-templates", metav1.GetOptions{})
	if err != nil {
		return err
	}
	config.Data = map[string]string{}
	files, err := templates.ReadDir("templates")
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := templates.ReadFile("templates/" + f.Name())
		if err != nil {
			return err
		}
		config.Data[f.Name()] = string(text)
	}
	_, err = client.Update(ctx, config, metav1.UpdateOptions{})
	return err
}

// install makes the namespaces and tells the API server whom to call for their pods.
func (d *demo) install(ctx context.Context, at cluster.Endpoint) error {
	if _, err := d.RunKubectl(ctx, namespaces, "apply", "-f", "-"); err != nil {
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
	return d.WaitForPillion(ctx, d.manifests, optedIn, recorder)
}
