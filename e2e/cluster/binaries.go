// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const kubernetesModule = "k8s.io/kubernetes"

// Binaries returns the folder that holds etcd, kube-apiserver, kube-controller-manager and kubectl, in
// the version that go.mod names, or kubernetes-$KUBERNETES/go.mod. What is missing is built first, once
// per machine: the folder lies in the user's cache, or under $PILLION_CACHE.
func Binaries(ctx context.Context, steps *Steps) (string, error) {
	module, version, err := kubernetesTools(ctx, os.Getenv("KUBERNETES"))
	if err != nil {
		return "", err
	}
	what := fmt.Sprintf("building Kubernetes %s (once, about 8 minutes)", version)
	return buildOnce(ctx, steps, "kubernetes-"+version, what, func(dir string) error {
		return buildKubernetes(ctx, module, version, dir)
	})
}

// kubernetesTools returns the folder of the module whose tools are a Kubernetes of that minor version, such
// as 1.36, and the whole version. Without one, it is this module.
func kubernetesTools(ctx context.Context, minor string) (module, version string, err error) {
	own, err := goList(ctx, "{{.Dir}}")
	if err != nil {
		return "", "", err
	}
	others, err := filepath.Glob(filepath.Join(own, "kubernetes-*"))
	if err != nil {
		return "", "", err
	}
	var known []string
	for _, module := range append([]string{own}, others...) {
		version, err := goListIn(ctx, module, "{{.Version}}", kubernetesModule)
		if err != nil {
			return "", "", err
		}
		if minor == "" || strings.HasPrefix(version, "v"+minor+".") {
			return module, version, nil
		}
		known = append(known, version)
	}
	return "", "", fmt.Errorf("KUBERNETES=%s is not there: write the minor version of one of %s", minor, strings.Join(known, ", "))
}

// buildOnce returns the cache's folder of that name. When there is none, build fills a new one, in the only
// process that does, and it gets its name when everything is in it.
func buildOnce(ctx context.Context, steps *Steps, name, what string, build func(dir string) error) (string, error) {
	root, err := cacheRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, name)
	if complete(dir) {
		return dir, nil
	}
	unlock, err := lock(ctx, dir+".lock", steps)
	if err != nil {
		return "", err
	}
	defer unlock()
	if complete(dir) { // by whoever held the lock before
		return dir, nil
	}
	return dir, steps.Do(what, func() error { return buildAside(dir, build) })
}

func cacheRoot() (string, error) {
	root := os.Getenv("PILLION_CACHE")
	if root == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder, set PILLION_CACHE: %w", err)
		}
		root = filepath.Join(user, "pillion")
	}
	return root, os.MkdirAll(root, 0o755)
}

// complete needs no look inside: the folder gets its name when everything is in it.
func complete(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// lock waits until this process is the only one that builds.
func lock(ctx context.Context, path string, steps *Steps) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tryLock := func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
	if err := tryLock(); err == nil {
		return func() { f.Close() }, nil
	}
	err = steps.Do("waiting for another build", func() error {
		for {
			err := tryLock()
			if !errors.Is(err, syscall.EWOULDBLOCK) {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// buildAside fills a folder beside dir and then moves it there, so that dir is all or nothing.
func buildAside(dir string, build func(dir string) error) error {
	leftovers, _ := filepath.Glob(dir + ".building-*")
	for _, old := range leftovers { // of a build that was killed; the lock says that nobody is in it
		_ = os.RemoveAll(old)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := build(tmp); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

// buildKubernetes compiles the tools of the module's go.mod into dir.
func buildKubernetes(ctx context.Context, module, version, dir string) error {
	if err := goCommand(ctx, module, "build", "-ldflags", ldflags(version), "-o", dir+string(filepath.Separator), "tool"); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, "server"), filepath.Join(dir, "etcd"))
}

// ldflags gives the programs their version; without it the server says v0.0.0-master.
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

// goList asks about a module of this build; without a path, about this one.
func goList(ctx context.Context, format string, module ...string) (string, error) {
	return goListIn(ctx, "", format, module...)
}

// goListIn is goList for the build of the module in dir.
func goListIn(ctx context.Context, dir, format string, module ...string) (string, error) {
	args := append([]string{"list", "-m", "-f", format}, module...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w%s", strings.Join(args, " "), err, stderrOf(err))
	}
	return strings.TrimSpace(string(out)), nil
}

func goCommand(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, lastLines(string(out), 30))
	}
	return nil
}

func stderrOf(err error) string {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return "\n" + strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
