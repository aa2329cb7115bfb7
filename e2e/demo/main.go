// SPDX-License-Identifier: Apache-2.0

// Command demo shows Pillion on a real kube-apiserver: what it adds to a pod, why, and how
// long that takes. With KEEP=1 in the environment, everything keeps running until an
// interrupt, and Pillion follows the templates in the folder TEMPLATES (default demo-templates).
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// demo is one run.
type demo struct {
	*cluster.Cluster
	screen    *screen
	steps     *programs.Steps
	root      string // of the checkout
	templates string // the folder
	manifests *cluster.Manifests
	pillion   *cluster.Pillion
	webhooks  *testwebhook.Server
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Getenv("KEEP") != "", os.Getenv("TEMPLATES"))
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, keep bool, templates string) (err error) {
	d := &demo{screen: newScreen(os.Stdout), steps: programs.NewSteps(os.Stdout)}
	if d.root, err = cluster.Root(ctx); err != nil {
		return err
	}
	if err := d.findTemplates(templates, keep); err != nil {
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
	fmt.Fprintln(d.screen.out, "\n`KEEP=1 make demo` leaves it running, for you to try it and to write templates of your own.")
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

// ownFolder returns the folder of the demo's templates. If the user may change them, it returns a
// copy that git ignores, which keeps the user's files from an earlier run.
func ownFolder(root string, keep bool) (string, error) {
	given, own := filepath.Join(root, "e2e", "demo", "templates"), filepath.Join(root, "demo-templates")
	if !keep {
		return given, nil
	}
	err := os.CopyFS(own, os.DirFS(given))
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return own, err
}

// findTemplates resolves a folder relative to the root of the checkout, because make runs
// there.
func (d *demo) findTemplates(folder string, keep bool) error {
	if folder == "" {
		var err error
		if folder, err = ownFolder(d.root, keep); err != nil {
			return fmt.Errorf("TEMPLATES: %w", err)
		}
	}
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(d.root, folder)
	}
	info, err := os.Stat(folder)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is a file; name the folder that it is in", folder)
	}
	if err != nil {
		return fmt.Errorf("TEMPLATES: %w", err)
	}
	d.templates = folder
	return nil
}

// folder returns the path of the templates, relative to the root of the checkout if they are below it.
func (d *demo) folder() string {
	if path, err := filepath.Rel(d.root, d.templates); err == nil && filepath.IsLocal(path) {
		return path
	}
	return programs.Brief(d.templates)
}

// start starts Pillion and its webhooks.
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
	if err := d.showTemplates(ctx); err != nil {
		return err
	}
	if d.pillion, err = d.StartPillion(ctx, binary, d.templates); err != nil {
		return briefly(err)
	}
	if d.webhooks, err = testwebhook.NewServer(d.Authority); err != nil {
		return err
	}
	return d.install(ctx, d.pillion.Endpoint)
}

// briefly shortens a log to its last error, for example about invalid templates.
func briefly(err error) error {
	if _, why, ok := strings.Cut(err.Error(), "\npillion: "); ok {
		return errors.New("pillion serve: " + why)
	}
	return err
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
	return d.WaitForPillion(ctx, d.manifests, optedIn, recorder)
}

// showTemplates stores the templates in the cluster, for pillion explain and status.
func (d *demo) showTemplates(ctx context.Context) error {
	client := d.Client.CoreV1().ConfigMaps("pillion-system")
	config, err := client.Get(ctx, "pillion-templates", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if config.Data, err = readTemplates(d.templates); err != nil {
		return err
	}
	_, err = client.Update(ctx, config, metav1.UpdateOptions{})
	return err
}

// readTemplates reads the template files in a folder, by name.
func readTemplates(folder string) (map[string]string, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	data := map[string]string{}
	for _, f := range files {
		switch filepath.Ext(f.Name()) {
		case ".yaml", ".yml", ".json":
			text, err := os.ReadFile(filepath.Join(folder, f.Name()))
			if err != nil {
				return nil, err
			}
			data[f.Name()] = string(text)
		}
	}
	return data, nil
}
