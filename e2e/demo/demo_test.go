// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// start starts a demo, and returns when it is the user's turn.
func start(t *testing.T) *running {
	t.Helper()
	r := &running{changed: make(chan struct{}, 1)}
	r.cmd = exec.CommandContext(t.Context(), os.Args[0])
	r.cmd.Env = append(os.Environ(), demoVariable+"=1", "KEEP=1")
	r.cmd.Stdout, r.cmd.Stderr = r, r
	r.cmd.Cancel = func() error { return r.cmd.Process.Signal(os.Interrupt) }
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(t, `(?s)4\. Your turn: .*pillion.dev/inject=enabled\n\n`)
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

// apply applies a template with kubectl, with one string replaced.
func (r *running) apply(t *testing.T, commands []string, text, from, to string) (string, error) {
	t.Helper()
	changed := strings.Replace(text, from, to, 1)
	if from != to && changed == text {
		t.Fatalf("there is no %q in\n%s", from, text)
	}
	return r.shell(t, commands[0], "kubectl apply -f - <<'EOF'\n"+changed+"\nEOF")
}

// unexpectedWarning reports whether there is another warning than about the QoS class, which every sidecar of this demo
// changes.
func unexpectedWarning(out string) bool {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "Warning:") && !strings.Contains(line, "pod becomes Burstable") {
			return true
		}
	}
	return false
}

// TestYourTurn checks that the demo's instructions work: the suggested template and the README's become Ready and reach
// new pods, mistakes are denied and change nothing, and Ctrl-C leaves nothing behind.
func TestYourTurn(t *testing.T) {
	r := start(t)
	commands := r.commands(t)
	if at := slices.IndexFunc(commands, func(c string) bool { return strings.HasPrefix(c, "kubectl") }); !strings.HasPrefix(commands[at], "kubectl apply") {
		t.Errorf("the first suggestion is %s, want to apply a template", commands[at])
	}
	out, err := r.shell(t, commands...)
	if err != nil || unexpectedWarning(out) {
		t.Fatalf("%v\n%s\n%s", err, strings.Join(commands, "\n"), out)
	}
	for _, want := range []string{`clustersidecartemplate.pillion.dev/my-sidecar condition met`, `(?m)^my-sidecar .*True.* [0-9a-f]{12} `} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("nothing matches %s in\n%s", want, out)
		}
	}
	r.waitFor(t, `The templates are \[auth-proxy gpu-metrics log-agent my-sidecar\] now`)
	r.waitFor(t, `\+  - name: my-sidecar\n`)

	// The README's next step.
	out, err = r.shell(t, append(slices.Clone(commands[:2]), "kubectl apply -f examples/templates/log-agent.yaml",
		"kubectl wait --for=condition=Ready cst/log-agent", "kubectl get cst log-agent")...)
	if err != nil || unexpectedWarning(out) || !regexp.MustCompile(`(?m)^log-agent .*True.* [0-9a-f]{12} `).MatchString(out) {
		t.Errorf("%v\n%s", err, out)
	}

	// A template that changes nothing: the reason is there.
	vector := strings.NewReplacer("log-agent", "vector", "app-logs", "vector-logs").Replace(contents(t, "templates/log-agent.yaml"))
	if out, err := r.apply(t, commands, vector, "", ""); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.waitFor(t, `as before\.\n(?:  .*\n)*  vector: conflict: .*/var/log/app`)

	mine := contents(t, "my-sidecar.yaml")
	if out, err := r.apply(t, commands, mine, "my-sidecar:1.0.0", "my-sidecar:2.0.0"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.waitFor(t, `\+    image: registry.example/my-sidecar:2.0.0\n`)
	r.wantImage(t, commands, "registry.example/my-sidecar:2.0.0")
	if out, err := r.apply(t, commands, mine, "image:", "imgae:"); err == nil || !strings.Contains(out, "imgae") {
		t.Errorf("a template with a mistake: %v\n%s", err, out)
	}
	r.wantImage(t, commands, "registry.example/my-sidecar:2.0.0")

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
		case !ok:
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

// TestDemoTemplates checks that the log-agent is the README's, and that all templates of the demo work in a namespace that
// enforces the Pod Security level restricted.
func TestDemoTemplates(t *testing.T) {
	t.Parallel()
	if contents(t, "templates/log-agent.yaml") != contents(t, "../../examples/templates/log-agent.yaml") {
		t.Error("the log-agent is not the README's")
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "./cmd/pillion", "lint", "e2e/demo/templates", "e2e/demo/my-sidecar.yaml")
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if fine := strings.Count(string(out), ": fine; Pod Security: restricted\n"); err != nil || fine != 4 {
		t.Errorf("%v; %d of 4 templates keep restricted:\n%s", err, fine, out)
	}
}
