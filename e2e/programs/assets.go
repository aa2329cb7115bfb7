// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"debug/macho"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// assetsVariable is the variable of controller-runtime's envtest.
	assetsVariable = "KUBEBUILDER_ASSETS"
	// oldestMinor is the oldest Kubernetes 1.x that the manifests support.
	oldestMinor = 34
	// answersWithin is far longer than a program takes to print its version.
	answersWithin = time.Minute

	assetsHelp = "; `setup-envtest use -p path` prints a folder that fits, and without " + assetsVariable + " Kubernetes is built"
)

// OtherVersionError means that KUBERNETES requests a version that KUBEBUILDER_ASSETS does not
// have.
type OtherVersionError struct{ Want, Have, Dir string }

func (e *OtherVersionError) Error() string {
	return fmt.Sprintf("KUBERNETES=%s, but %s=%s has %s; unset one of them", e.Want, assetsVariable, e.Dir, e.Have)
}

// prebuilt returns the programs in dir. It reports their versions, and what replaces missing
// ones.
func prebuilt(ctx context.Context, steps *Steps, dir, minor string) (*Programs, error) {
	if err := checkFolder(dir); err != nil {
		return nil, fmt.Errorf("%s=%s: %w", assetsVariable, dir, err)
	}
	p, etcd, err := findVersions(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(p, minor); err != nil {
		return nil, err
	}
	steps.Say("Kubernetes %s and etcd %s are prebuilt: %s=%s", p.Version, etcd, assetsVariable, Brief(dir))
	if err := p.findKubectl(ctx, steps); err != nil {
		return nil, err
	}
	return p, p.findControllers(ctx, steps)
}

// useDownloaded returns the downloaded programs in dir.
func useDownloaded(ctx context.Context, steps *Steps, dir string) (*Programs, error) {
	p, etcd, err := findVersions(ctx, dir)
	if err != nil {
		return nil, err
	}
	p.Kubectl = filepath.Join(dir, "kubectl")
	steps.Say("Kubernetes %s and etcd %s are downloaded: %s", p.Version, etcd, Brief(dir))
	return p, p.findControllers(ctx, steps)
}

// findVersions runs etcd and kube-apiserver in dir to get their versions.
func findVersions(ctx context.Context, dir string) (p *Programs, etcd string, err error) {
	p = &Programs{Assets: dir, Etcd: filepath.Join(dir, "etcd"), APIServer: filepath.Join(dir, "kube-apiserver")}
	if etcd, err = versionOf(ctx, p.Etcd, "--version"); err != nil {
		return nil, "", err
	}
	p.Version, err = versionOf(ctx, p.APIServer, "--version")
	return p, etcd, err
}

// checkFolder returns an error if dir cannot be a folder of programs.
func checkFolder(dir string) error {
	if !filepath.IsAbs(dir) {
		return errors.New("the path is relative; write the whole path, which begins with /")
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such folder" + assetsHelp)
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("that is a file; name the folder that it is in")
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		_, err := os.Stat(filepath.Join(dir, name))
		if !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		below, _ := filepath.Glob(filepath.Join(dir, "*", name)) // the pattern is valid
		deeper, _ := filepath.Glob(filepath.Join(dir, "*", "*", name))
		if below = append(below, deeper...); len(below) > 0 {
			return fmt.Errorf("there is no %s in it; did you mean %s?", name, filepath.Dir(slices.Max(below)))
		}
		return fmt.Errorf("there is no %s in it%s", name, assetsHelp)
	}
	return nil
}

func checkVersion(p *Programs, minor string) error {
	_, rest, _ := strings.Cut(p.Version, ".")
	number, _, _ := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(number); err != nil || !strings.HasPrefix(p.Version, "v1.") || n < oldestMinor {
		return fmt.Errorf("%s=%s has Kubernetes %s; Pillion's manifests need 1.%d or newer%s", assetsVariable, p.Assets, p.Version, oldestMinor, assetsHelp)
	}
	if minor != "" && !isMinor(p.Version, minor) {
		return &OtherVersionError{Want: minor, Have: p.Version, Dir: p.Assets}
	}
	return nil
}

// findControllers uses the controllers of this module if kube-controller-manager is missing,
// because envtest does not contain it.
func (p *Programs) findControllers(ctx context.Context, steps *Steps) error {
	manager := filepath.Join(p.Assets, "kube-controller-manager")
	if _, err := os.Stat(manager); err == nil {
		p.Controllers = manager
		_, err := versionOf(ctx, manager, "--version")
		return err
	}
	steps.Say("kube-controller-manager is not among them: Kubernetes' controllers that make pods run in a program of Pillion's")
	p.Subset = true
	own, err := moduleDir(ctx)
	if err != nil {
		return err
	}
	built, err := version(ctx, own, kubernetesModule)
	if err != nil {
		return err
	}
	sum, err := sourceSum(filepath.Join(own, "controllers"), own)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("building controllers of Kubernetes %s (once, about 2 minutes)", built)
	folder, err := once(ctx, steps, "controllers-"+built+"-"+sum, what, func(dir string, progress *Progress) error {
		return Build(ctx, own, "./controllers", progress, "-o", filepath.Join(dir, "controllers"), "-ldflags", ldflags(built))
	})
	p.Controllers = filepath.Join(folder, "controllers")
	return err
}

// NeedKubectl builds kubectl for the tests if it is missing.
func (p *Programs) NeedKubectl(ctx context.Context, steps *Steps) error {
	if p.Kubectl != "" {
		return nil
	}
	own, err := moduleDir(ctx)
	if err != nil {
		return err
	}
	built, err := version(ctx, own, kubernetesModule)
	if err != nil {
		return err
	}
	folder, err := once(ctx, steps, "kubectl-"+built, "building kubectl "+built+" (once, about 2 minutes)", func(dir string, progress *Progress) error {
		return Build(ctx, own, kubernetesModule+"/cmd/kubectl", progress, "-o", filepath.Join(dir, "kubectl"), "-ldflags", ldflags(built))
	})
	p.Kubectl = filepath.Join(folder, "kubectl")
	return err
}

// findKubectl looks for kubectl in the folder and in the PATH. The control plane does not need
// it.
func (p *Programs) findKubectl(ctx context.Context, steps *Steps) error {
	kubectl := filepath.Join(p.Assets, "kubectl")
	if _, err := os.Stat(kubectl); err == nil {
		p.Kubectl = kubectl
		_, err := versionOf(ctx, kubectl, "version", "--client")
		return err
	}
	path, _ := exec.LookPath("kubectl")
	if path == "" {
		steps.Say("kubectl is missing, there and in the PATH: https://kubernetes.io/docs/tasks/tools/ has it, or run")
		steps.Say("`go tool kubectl` in the folder e2e, which builds it (about 2 minutes)")
		return nil
	}
	var err error
	if p.Kubectl, err = filepath.Abs(path); err != nil {
		return err
	}
	found, err := versionOf(ctx, p.Kubectl, "version", "--client")
	if err != nil {
		return err
	}
	steps.Say("kubectl is not among them: using %s, %s", Brief(p.Kubectl), found)
	return nil
}

var versionPattern = regexp.MustCompile(`v?[0-9]+\.[0-9]+\.[0-9]+[-+.0-9A-Za-z]*`)

// versionOf runs a program to get its version. If that fails, the program cannot run here.
func versionOf(ctx context.Context, program string, args ...string) (string, error) {
	if info, err := os.Stat(program); err != nil {
		return "", err
	} else if info.IsDir() || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s is not executable; run chmod +x on it", program)
	}
	if platform := platformOf(program); platform != "" && platform != runtime.GOOS+"/"+runtime.GOARCH {
		return "", fmt.Errorf("%s is a program for %s, and this machine is %s/%s%s", program, platform, runtime.GOOS, runtime.GOARCH, assetsHelp)
	}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = ChildAttributes()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := runHere(cmd); err != nil {
		return "", fmt.Errorf("%s cannot run here: %w\n%s", program, err, strings.TrimSpace(out.String()))
	}
	found := versionPattern.FindString(out.String())
	if found == "" {
		return "", fmt.Errorf("%s %s does not report a version; is it another program?", program, strings.Join(args, " "))
	}
	return found, nil
}

// platformOf returns the platform that the program was built for, or "" if that is unknown.
func platformOf(program string) string {
	if f, err := elf.Open(program); err == nil {
		defer f.Close()
		names := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_S390: "s390x", elf.EM_PPC64: "ppc64le"}
		return "linux/" + cmp.Or(names[f.Machine], "another architecture")
	}
	if f, err := macho.Open(program); err == nil {
		defer f.Close()
		return "darwin/" + map[macho.Cpu]string{macho.CpuAmd64: "amd64", macho.CpuArm64: "arm64"}[f.Cpu]
	}
	return ""
}
