// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const (
	kubernetesModule = "k8s.io/kubernetes"
	// handedOver is the variable with which a program passes its Programs to a child.
	handedOver = "E2E_PROGRAMS"
)

// Programs are the paths of the control plane's programs.
type Programs struct {
	// Version is the API server's version, for example v1.37.1.
	Version string
	// Assets is the folder that KUBEBUILDER_ASSETS names or that was downloaded, or "" if the programs were built.
	Assets string

	Etcd, APIServer string
	// Controllers is kube-controller-manager, or this module's program controllers if Subset is set.
	Controllers string
	Subset      bool
	// Kubectl is "" if there is none.
	Kubectl string
}

// Environ returns the environment variable with which [Kubernetes] in a child process returns
// p.
func (p *Programs) Environ() (string, error) {
	text, err := json.Marshal(p)
	return handedOver + "=" + string(text), err
}

// Kubernetes returns the programs in the folder that KUBEBUILDER_ASSETS names. Without this
// variable, it returns programs of the version in go.mod, or in kubernetes-$KUBERNETES/go.mod.
// It first builds missing programs, once per machine, in the user's cache or $E2E_CACHE.
func Kubernetes(ctx context.Context, steps *Steps) (*Programs, error) {
	return findKubernetes(ctx, steps, false)
}

// DemoKubernetes is Kubernetes, but it downloads missing programs if it can, which takes seconds.
// The download has no kube-controller-manager, which most of the build's time is needed for.
func DemoKubernetes(ctx context.Context, steps *Steps) (*Programs, error) {
	return findKubernetes(ctx, steps, true)
}

func findKubernetes(ctx context.Context, steps *Steps, demo bool) (*Programs, error) {
	if text := os.Getenv(handedOver); text != "" {
		p := &Programs{}
		return p, json.Unmarshal([]byte(text), p)
	}
	minor := os.Getenv("KUBERNETES")
	if dir := os.Getenv(assetsVariable); dir != "" {
		return prebuilt(ctx, steps, dir, minor)
	}
	module, version, err := kubernetesTools(ctx, minor)
	if err != nil {
		return nil, err
	}
	root, err := cacheRoot()
	if err != nil {
		return nil, err
	}
	download, err := wantsDownload(os.Getenv(downloadVariable), demo)
	if err != nil {
		return nil, err
	}
	if download && !complete(filepath.Join(root, "kubernetes-"+version)) {
		dir, err := newDownloader().downloadOnce(ctx, steps, minorOf(version))
		if err != nil {
			return nil, err
		}
		if dir != "" {
			return useDownloaded(ctx, steps, dir)
		}
	}
	return built(ctx, steps, module, version)
}

// built returns the programs of the module's tools.
func built(ctx context.Context, steps *Steps, module, version string) (*Programs, error) {
	what := fmt.Sprintf("building Kubernetes %s (once, about 11 minutes)", version)
	dir, err := once(ctx, steps, "kubernetes-"+version, what, func(dir string, progress *Progress) error {
		return buildKubernetes(ctx, module, version, dir, progress)
	})
	if err != nil {
		return nil, err
	}
	return &Programs{
		Version:     version,
		Etcd:        filepath.Join(dir, "etcd"),
		APIServer:   filepath.Join(dir, "kube-apiserver"),
		Controllers: filepath.Join(dir, "kube-controller-manager"),
		Kubectl:     filepath.Join(dir, "kubectl"),
	}, nil
}

// kubernetesTools returns the module whose tools have this minor version of Kubernetes, for
// example 1.36, and the full version. Without a minor version, it is this module.
func kubernetesTools(ctx context.Context, minor string) (module, found string, err error) {
	own, err := moduleDir(ctx)
	if err != nil {
		return "", "", err
	}
	others, err := filepath.Glob(filepath.Join(own, "kubernetes-*"))
	if err != nil {
		return "", "", err
	}
	var known []string
	for _, module := range append([]string{own}, others...) {
		found, err := version(ctx, module, kubernetesModule)
		if err != nil {
			return "", "", err
		}
		if minor == "" || isMinor(found, minor) {
			return module, found, nil
		}
		known = append(known, found)
	}
	return "", "", fmt.Errorf("KUBERNETES=%s: there is no such Kubernetes; use the minor version of one of %s", minor, strings.Join(known, ", "))
}

// minorOf returns the minor version, for example 1.37 of v1.37.1.
func minorOf(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major + "." + minor
}

func isMinor(version, minor string) bool { return strings.HasPrefix(version, "v"+minor+".") }

// buildKubernetes compiles the tools in the module's go.mod into dir.
func buildKubernetes(ctx context.Context, module, version, dir string, progress *Progress) error {
	out, err := goList(ctx, module, progress, "-f", "{{.ImportPath}}", "tool")
	if err != nil {
		return err
	}
	tools := strings.Fields(out)
	for i, tool := range tools {
		name := strings.NewReplacer("v3", "etcd").Replace(path.Base(tool)) // go.etcd.io/etcd/server/v3
		step := &Progress{publish: func(far string) { progress.Set("step %d of %d, %s: %s", i+1, len(tools), name, far) }}
		step.Set("starting")
		if err := Build(ctx, module, tool, step, "-o", filepath.Join(dir, name), "-ldflags", ldflags(version)); err != nil {
			return err
		}
	}
	return nil
}

// ldflags sets the programs' version; without it, the server reports v0.0.0-master.
func ldflags(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X", pkg+".gitVersion="+version,
			"-X", pkg+".gitMajor="+major,
			"-X", pkg+".gitMinor="+minor)
	}
	return strings.Join(flags, " ")
}
