// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pillion-dev/pillion/e2e/programs"
)

// demoVariable makes the test's program the demo.
const demoVariable = "E2E_DEMO"

func TestMain(m *testing.M) {
	if os.Getenv(demoVariable) != "" {
		main()
		os.Exit(0)
	}
	programs.ClearEnvironment()
	os.Exit(m.Run())
}

// running is a demo, as its user has it.
type running struct {
	cmd     *exec.Cmd
	folder  string // of its templates
	mu      sync.Mutex
	shown   bytes.Buffer
	read    int // of shown, by waitFor
	changed chan struct{}
}

func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return r.shown.Write(p)
}

// start starts a demo that follows a copy of its own templates, and returns when it is the user's turn.
func start(t *testing.T) *running {
	t.Helper()
	r := &running{folder: t.TempDir(), changed: make(chan struct{}, 1)}
	if err := os.CopyFS(r.folder, os.DirFS("templates")); err != nil {
		t.Fatal(err)
	}
	r.cmd = exec.CommandContext(t.Context(), os.Args[0])
	r.cmd.Env = append(os.Environ(), demoVariable+"=1", "KEEP=1", "TEMPLATES="+r.folder)
	r.cmd.Stdout, r.cmd.Stderr = r, r
	r.cmd.Cancel = func() error { return r.cmd.Process.Signal(os.Interrupt) }
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(t, `(?s)4\. Your turn: .*kubectl delete pods .*kubectl get pods .*?\n\n`)
	return r
}

// waitFor returns when the pattern matches behind what has matched before.
func (r *running) waitFor(t *testing.T, pattern string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		r.mu.Lock()
		rest := r.shown.Bytes()[r.read:]
		if at := regexp.MustCompile(pattern).FindIndex(rest); at != nil {
			r.read += at[1]
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			t.Fatalf("nothing matches %s in\n%s", pattern, rest)
		case <-r.changed:
		}
	}
}

// edit replaces a string in the file of the template log-agent, as an editor does that saves in place.
func (r *running) edit(t *testing.T, from, to string) {
	t.Helper()
	path := filepath.Join(r.folder, "log-agent.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), from, to, 1)
	if changed == string(text) {
		t.Fatalf("there is no %q in\n%s", from, text)
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestYourTurn checks that the demo's instructions work: edits of the named files reach new pods, mistakes are shown
// and change nothing, and Ctrl-C leaves nothing behind.
func TestYourTurn(t *testing.T) {
	r := start(t)
	commands := r.commands(t)
	if out, err := r.shell(t, commands...); err != nil {
		t.Fatalf("%v\n%s\n%s", err, strings.Join(commands, "\n"), out)
	}

	const image = "registry.example/log-agent:1.4.2"
	// A template that changes nothing: the reason is there.
	vector := strings.NewReplacer("log-agent", "vector", "app-logs", "vector-logs").Replace(contents(t, filepath.Join(r.folder, "log-agent.yaml")))
	if err := os.WriteFile(filepath.Join(r.folder, "vector.yaml"), []byte(vector), 0o600); err != nil {
		t.Fatal(err)
	}
	r.waitFor(t, `as before\.\n(?:  .*\n)*  vector: conflict: .*/var/log/app`)
	if err := os.Remove(filepath.Join(r.folder, "vector.yaml")); err != nil {
		t.Fatal(err)
	}
	r.waitFor(t, `Reloaded: the templates are \[auth-proxy gpu-metrics log-agent\]`)

	r.edit(t, image, "registry.example/log-agent:1.5.0")
	r.waitFor(t, `Reloaded: the templates are \[auth-proxy gpu-metrics log-agent\]`)
	r.waitFor(t, `\+    image: registry.example/log-agent:1.5.0\n`)
	r.wantImage(t, commands, "registry.example/log-agent:1.5.0")
	r.edit(t, "image:", "imgae:")
	r.waitFor(t, `The new templates are invalid; the last valid ones stay in use:\n  \S*log-agent.yaml:\d+: spec\.pod\.spec\.initContainers\[0\]\.imgae: unknown key; did you mean "image"\?`)
	r.wantImage(t, commands, "registry.example/log-agent:1.5.0")
	r.waitFor(t, "so `pillion status` reports this too")
	if out, err := r.shell(t, commands[0], "pillion status"); err == nil || !strings.Contains(out, "imgae") {
		t.Errorf("status, with a broken file: %v\n%s", err, out)
	}
	r.edit(t, "imgae:", "image:")
	r.waitFor(t, `The templates are valid again`)
	if out, err := r.shell(t, commands[0], "pillion status"); err != nil {
		t.Errorf("status, with good files: %v\n%s", err, out)
	}

	kubeconfig := regexp.MustCompile(`KUBECONFIG=(\S+)`).FindStringSubmatch(commands[0])[1]
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	r.waitFor(t, `✓ everything stopped and removed`)
	if _, err := os.Stat(filepath.Dir(kubeconfig)); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", filepath.Dir(kubeconfig), err)
	}
	if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("the API server still runs")
	}
}

// commands returns what is printed to be typed.
func (r *running) commands(t *testing.T) (all []string) {
	t.Helper()
	_, turn, _ := strings.Cut(r.shown.String(), "4. Your turn")
	for line := range strings.Lines(turn) {
		command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  ")
		switch {
		case !ok || command == r.folder:
		case strings.HasPrefix(command, "  "):
			all[len(all)-1] += "\n" + command
		default:
			all = append(all, command)
		}
	}
	if len(all) < 5 || !strings.HasPrefix(all[0], "export KUBECONFIG=") {
		t.Fatalf("the commands are %q", all)
	}
	return all
}

// shell runs commands in order. Each must succeed.
func (r *running) shell(t *testing.T, commands ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "bash", "-ec", strings.Join(commands, "\n")).CombinedOutput()
	return string(out), err
}

// wantImage creates a pod.
func (r *running) wantImage(t *testing.T, commands []string, want string) {
	t.Helper()
	out, err := r.shell(t, commands[0], "kubectl create --dry-run=server --namespace "+optedIn+" --output yaml -f - <<'EOF'\n"+
		"{apiVersion: v1, kind: Pod, metadata: {name: new}, spec: {containers: [{name: new, image: registry.example/new:1}]}}\nEOF")
	if err != nil || !strings.Contains(out, "image: "+want) {
		t.Errorf("a new pod lacks the image %s: %v\n%s", want, err, out)
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestOwnTemplates checks that a demo that is kept has the user's templates in a folder that Git
// ignores, and does not change the folder's content. All templates of the demo work in a namespace
// that enforces the Pod Security level restricted.
func TestOwnTemplates(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "e2e", "demo", "templates"), os.DirFS("templates")); err != nil {
		t.Fatal(err)
	}
	d := &demo{root: root}
	if err := d.findTemplates("", true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(contents(t, "../../.gitignore"), "/"+filepath.Base(d.templates)+"/\n") {
		t.Errorf(".gitignore lacks %s", d.templates)
	}
	mine := filepath.Join(d.templates, "log-agent.yaml")
	if contents(t, mine) != contents(t, "../../examples/templates/log-agent.yaml") {
		t.Error("the log-agent is not the README's")
	}
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.findTemplates("", true); err != nil || contents(t, mine) != "" {
		t.Errorf("%v; the second run replaces the user's file", err)
	}

	cmd := exec.CommandContext(t.Context(), "go", "run", "./cmd/pillion", "lint", "e2e/demo/templates")
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if fine := strings.Count(string(out), ": fine; Pod Security: restricted\n"); err != nil || fine != 3 {
		t.Errorf("%v; %d of 3 templates keep restricted:\n%s", err, fine, out)
	}
}

// TestTemplatesFolder checks that the demo does not start if the folder does not exist.
func TestTemplatesFolder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := &demo{root: root}
	if err := d.findTemplates("mine", true); err == nil || !strings.Contains(err.Error(), "TEMPLATES: ") {
		t.Errorf("a folder that is not there gives %v", err)
	}
	if err := os.Mkdir(filepath.Join(root, "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.findTemplates("mine", true); err != nil || d.templates != filepath.Join(root, "mine") {
		t.Errorf("%s, %v", d.templates, err)
	}
}

// TestOwnFolder checks that the files that the user changes are not tracked by Git, and keep the
// changes in a second run.
func TestOwnFolder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "e2e", "demo", "templates"), os.DirFS("templates")); err != nil {
		t.Fatal(err)
	}
	ignored, err := os.ReadFile(filepath.Join("..", "..", ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	for run := range 2 {
		d := &demo{root: root}
		if err := d.findTemplates("", true); err != nil {
			t.Fatal(err)
		}
		if folder, _ := filepath.Rel(root, d.templates); !strings.Contains(string(ignored), "\n/"+folder+"/\n") {
			t.Errorf("git tracks %s", folder)
		}
		text, err := os.ReadFile(filepath.Join(d.templates, "log-agent.yaml"))
		if err != nil || bytes.HasPrefix(text, []byte("# mine")) != (run == 1) {
			t.Errorf("%s, %v", text, err)
		}
		if err := os.WriteFile(filepath.Join(d.templates, "log-agent.yaml"), append([]byte("# mine\n"), text...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
