// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// holdVariable names the lock that a test's own program holds until it is killed.
const holdVariable = "E2E_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdVariable); path != "" {
		held, err := acquire(context.Background(), path, nil)
		if err != nil {
			panic(err)
		}
		held.publish("step 2 of 5, kube-apiserver: package 7 of at most 9")
		fmt.Println("held")
		select {}
	}
	if index := os.Getenv(proxyVariable); index != "" {
		downloadThroughProxy(index)
		return
	}
	os.Exit(m.Run())
}

// output is what steps print, as it comes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// waitFor returns when the pattern has been printed.
func (o *output) waitFor(t *testing.T, pattern string) {
	t.Helper()
	found := regexp.MustCompile(pattern)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !found.MatchString(o.String()) {
		select {
		case <-ctx.Done():
			t.Fatalf("nothing matches %s in\n%s", pattern, o)
		case <-tick.C:
		}
	}
}

// quickSteps report at once what others report after seconds.
func quickSteps() (*Steps, *output) {
	o := &output{}
	s := NewSteps(o)
	s.quietFor, s.every = time.Millisecond, 5*time.Millisecond
	return s, o
}

// holdElsewhere holds the lock in another process.
func holdElsewhere(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holdVariable+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestLockReportsOwner checks that a waiting process prints which process builds and how far it is, and that the lock
// is free after its owner is killed.
func TestLockReportsOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	owner := holdElsewhere(t, path)
	steps, shown := quickSteps()
	acquired := make(chan error, 1)
	go func() {
		held, err := acquire(t.Context(), path, steps)
		if err == nil {
			held.release()
		}
		acquired <- err
	}()
	shown.waitFor(t, fmt.Sprintf(`go test in \S*e2e/programs, process %d of \S+, since \d\d:\d\d:\d\d builds the same: waiting for it\n`, owner.Process.Pid))
	shown.waitFor(t, `… waiting for another build: it is at step 2 of 5, kube-apiserver: package 7 of at most 9 +\d+s\n`)
	if n := strings.Count(shown.String(), "builds the same"); n != 1 {
		t.Errorf("the owner is reported %d times:\n%s", n, shown)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	if err := <-acquired; err != nil {
		t.Error(err)
	}
	if strings.Contains(shown.String(), "go-build") || strings.Contains(shown.String(), path) {
		t.Errorf("a path that says nothing is shown:\n%s", shown)
	}
}

// TestLockFile checks that the file always contains what its holder is doing.
func TestLockFile(t *testing.T) {
	t.Parallel()
	held, err := acquire(t.Context(), filepath.Join(t.TempDir(), "lock"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, far := range []string{"", "step 1 of 5, etcd: package 100 of at most 300", "step 2 of 5"} {
		if far != "" {
			held.publish(far)
		}
		if o, ok := held.read(); !ok || o.PID != os.Getpid() || o.User == "" || o.Progress != far {
			t.Errorf("%q is read as %+v, %t", far, o, ok)
		}
	}
	again, err := os.Open(held.file.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	held.release()
	if o, ok := (&lock{file: again}).read(); ok {
		t.Errorf("after the release, the holder is %+v", o)
	}
}

func TestLockExcludesOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	held, err := acquire(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := acquire(canceled, path, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the second lock gave %v, want that it waits until it is canceled", err)
	}
	held.release()
	again, err := acquire(t.Context(), path, nil)
	if err != nil {
		t.Fatalf("lock after unlock: %v", err)
	}
	again.release()
}

// TestProgress checks that long steps show their progress, and short ones only their end.
func TestProgress(t *testing.T) {
	t.Parallel()
	steps, shown := quickSteps()
	err := steps.Follow("building", func(p *Progress) error {
		p.Set("package %d of at most %d", 3, 4)
		shown.waitFor(t, `  … building: package 3 of at most 4 +0s\n`)
		return errors.New("no")
	})
	if err == nil || !regexp.MustCompile(`  ✗ building +0\.\ds\n$`).MatchString(shown.String()) {
		t.Errorf("%v, and what is shown ends in\n%s", err, shown)
	}
	quiet := &output{}
	if err := NewSteps(quiet).Do("quick", func() error { return nil }); err != nil || !regexp.MustCompile(`^  ✓ quick +0\.\ds\n$`).MatchString(quiet.String()) {
		t.Errorf("%v, %q", err, quiet)
	}
}

// TestBuildShowsPackages checks that packages and modules in the go command's output count as progress, and all
// other lines as errors.
func TestBuildShowsPackages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// Go's cache contains no package with this comment, so each run compiles it.
	main := fmt.Sprintf("package main // %s, %s\n\nfunc main() {}\n", dir, time.Now())
	for name, text := range map[string]string{"go.mod": "module example.com/x\n\ngo 1.26\n", "main.go": main, "bad/main.go": "package main\n\nfunc main() { nothing() }\n"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var all []string
	progress := &Progress{publish: func(far string) { all = append(all, far) }}
	if err := Build(t.Context(), dir, ".", progress, "-o", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 || all[len(all)-1] != "linking" {
		t.Errorf("the progress was %q", all)
	}
	if err := Build(t.Context(), dir, "./bad", progress, "-o", filepath.Join(dir, "out")); err == nil || !strings.Contains(err.Error(), "undefined: nothing") {
		t.Errorf("what cannot be compiled gives %v", err)
	}
	o := &goOutput{progress: progress, packages: 9, command: "example.com/x"}
	for line, want := range map[string]string{
		"go: downloading example.com/y v1.2.3\n": "downloading module 1, example.com/y v1.2.3",
		"k8s.io/api/core/v1\n":                   "package 1 of at most 9",
	} {
		fmt.Fprint(o, line)
		if got := progress.String(); got != want || o.tail() != "" {
			t.Errorf("%q is progress %q and error %q", line, got, o.tail())
		}
	}
}

// TestBuildIsAllOrNothing checks that a build that fails leaves nothing that looks like a finished
// build, and removes what earlier ones left.
func TestBuildIsAllOrNothing(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "kubernetes-v9.9.9")
	if err := os.Mkdir(dir+".building-1", 0o755); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := buildAside(dir, func(tmp string) error { return buildKubernetes(canceled, "..", "v9.9.9", tmp, nil) }); err == nil {
		t.Error("a canceled build gave no error")
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 0 || complete(dir) {
		t.Errorf("left behind: %v", entries)
	}
}

func TestKubernetesTools(t *testing.T) {
	t.Parallel()
	for minor, want := range map[string]string{"": "e2e", "1.34": "kubernetes-1.34", "1.35": "kubernetes-1.35", "1.36": "kubernetes-1.36"} {
		module, version, err := kubernetesTools(t.Context(), minor)
		if err != nil || filepath.Base(module) != want || !strings.HasPrefix(version, "v"+minor) {
			t.Errorf("KUBERNETES=%s is %s of %s (%v), want the module %s", minor, version, module, err, want)
		}
	}
	if _, _, err := kubernetesTools(t.Context(), "1.3"); err == nil || !strings.Contains(err.Error(), "KUBERNETES=1.3:") {
		t.Errorf("KUBERNETES=1.3 gave %v, want that there is none", err)
	}
}

func TestLDFlags(t *testing.T) {
	t.Parallel()
	flags := ldflags("v1.37.1")
	for _, want := range []string{"-X k8s.io/component-base/version.gitVersion=v1.37.1", "-X k8s.io/client-go/pkg/version.gitMinor=37"} {
		if !strings.Contains(flags, want) {
			t.Errorf("ldflags are %q, want %q in them", flags, want)
		}
	}
}

// TestHandedOver checks that a program that another one starts runs the programs that the other one
// found.
func TestHandedOver(t *testing.T) {
	variable, err := (&Programs{Version: "v1.37.1", Subset: true, Etcd: "/x/etcd"}).Environ()
	if err != nil {
		t.Fatal(err)
	}
	name, value, _ := strings.Cut(variable, "=")
	t.Setenv(name, value)
	if p, err := Kubernetes(t.Context(), nil); err != nil || p.Etcd != "/x/etcd" || !p.Subset {
		t.Errorf("%+v, %v", p, err)
	}
}
