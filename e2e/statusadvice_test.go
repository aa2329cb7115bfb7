// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shell runs commands as a user would paste them, with pillion and kubectl on the PATH and no cluster in the
// environment: what is printed has to name it.
func shell(t *testing.T, command string) string {
	t.Helper()
	dir := t.TempDir()
	for name, file := range map[string]string{"pillion": env.binary, "kubectl-pillion": env.binary, "kubectl": env.Kubectl} {
		if err := os.Symlink(file, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(testContext(t), "sh", "-c", command)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG=/nowhere", "HOME=/nowhere")
	out, err := cmd.CombinedOutput()
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1) { //nolint:errorlint // what is missing is in the exit code
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// printed is the command in a report that begins like this.
func printed(t *testing.T, report, begin string) string {
	t.Helper()
	for _, command := range regexp.MustCompile(`(?m)^  (\w.*(?:\n    .*)*)`).FindAllStringSubmatch(report, -1) {
		if strings.HasPrefix(command[1], begin) {
			return command[1]
		}
	}
	t.Fatalf("no command %q in\n%s", begin, report)
	return ""
}

// statusJSON decodes what status writes with these arguments.
func statusJSON(t *testing.T, into any, args ...string) {
	t.Helper()
	var templates []string
	if args[0] != "unlabelled" { // which has no templates, and goes by where Pillion is
		templates, args = env.templates, append(args, "--system-namespace", notHere)
	}
	_, stdout, stderr := runStatus(t, env.Kubeconfig, templates, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(stdout), into); err != nil {
		t.Fatalf("%q: %v: %s%s", args, err, stdout, stderr)
	}
}

// TestStatusCommands follows a user who pastes only the commands of status. Starting from a
// namespace without a label, its pods get sidecars, and no other namespace changes.
func TestStatusCommands(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"pillion", "kubectl pillion"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			ns, other := plainNamespace(t), plainNamespace(t)
			makeDeployment(t, ns, 2)
			untouched := makeDeployment(t, other, 1)[0].UID
			if _, err := env.RunKubectl(testContext(t), nil, "label", "namespace", other, injectLabel+"=enabled"); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "it's; a $HOME")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(env.Kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			kubeconfig := filepath.Join(dir, "config")
			if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
				t.Fatal(err)
			}
			quoted := "'" + strings.ReplaceAll(kubeconfig, "'", `'\''`) + "'"
			flags := " --kubeconfig " + quoted + " --system-namespace " + notHere
			for _, path := range env.templates {
				flags += " --templates " + path
			}
			out := shell(t, program+" status "+ns+flags)
			if !strings.Contains(out, "Not opted in: "+ns+": it has no label "+injectLabel) {
				t.Errorf("status says\n%s", out)
			}
			out += shell(t, program+" status unlabelled "+ns+" --kubeconfig "+quoted)
			label := printed(t, out, "kubectl --kubeconfig")
			if strings.Count(out, label) != 2 {
				t.Errorf("not in both reports: %s\n%s", label, out)
			}
			again := printed(t, out, program+" status "+ns)
			shell(t, label)
			eventually(t, "Pillion is called for the namespace", func(ctx context.Context) error {
				pod, err := env.Client.CoreV1().Pods(ns).Create(ctx, newPod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err == nil && len(pod.Spec.InitContainers) == 0 {
					err = fmt.Errorf("it is not yet")
				}
				return err
			})
			shell(t, printed(t, shell(t, again), program+" status "+ns))
			eventually(t, "all pods are right", func(context.Context) error {
				if out := shell(t, again); !strings.HasPrefix(out, "No problems: 2 pods") { //nolint:contextcheck // it has the context of the test
					return fmt.Errorf("status says\n%s", out)
				}
				return nil
			})
			pods, err := env.Client.CoreV1().Pods(other).List(testContext(t), metav1.ListOptions{})
			if err != nil || len(pods.Items) != 1 || pods.Items[0].UID != untouched {
				t.Errorf("the pods of another namespace were made anew: %v", err)
			}
		})
	}
}

// TestStatusRejected checks owners of every kind. Status suggests no restart if new pods would be
// denied. If new pods are denied already, it reports the owner as failing, with the reason.
func TestStatusRejected(t *testing.T) {
	t.Parallel()
	ns := plainNamespace(t)
	makeDeployment(t, ns, 2)
	kubectl := func(stdin string, args ...string) {
		t.Helper()
		if _, err := env.RunKubectl(testContext(t), []byte(stdin), args...); err != nil {
			t.Fatal(err)
		}
	}
	kubectl("", "label", "namespace", ns, injectLabel+"=enabled", "pod-security.kubernetes.io/enforce=restricted")
	code, out, stderr := runStatus(t, env.Kubeconfig, env.templates, ns, "--system-namespace", notHere)
	out = strings.Join(strings.Fields(out), " ")
	if code != 1 || !strings.Contains(out, "new pods would be denied: the namespace enforces the Pod Security level restricted: ") || strings.Contains(out, "A restart fixes") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	kubectl(strings.ReplaceAll(`apiVersion: v1
kind: List
items:
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: new}, spec: {selector: {matchLabels: {a: b}}, template: TEMPLATE}}
- {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {selector: {matchLabels: {a: b}}, template: TEMPLATE}}
- {apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: bare}, spec: {selector: {matchLabels: {c: d}}, template: {metadata: {labels: {c: d}}, spec: {containers: [{name: x, image: "x:1"}]}}}}
- {apiVersion: batch/v1, kind: Job, metadata: {name: once}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: x, image: "x:1"}]}}}}
`, "TEMPLATE", `{metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: "x:1"}]}}`), "create", "-n", ns, "-f", "-")
	eventually(t, "status reports what fails, and why", func(context.Context) error {
		_, out, _ := runStatus(t, env.Kubeconfig, env.templates, ns, "--system-namespace", notHere) //nolint:contextcheck // it has the context of the test
		out = strings.Join(strings.Fields(out), " ")
		for _, owner := range []string{"Deployment/new", "StatefulSet/db", "ReplicaSet/bare", "Job/once"} {
			if !regexp.MustCompile(`Failing: ` + owner + ` in the namespace ` + ns + ` cannot create its pods: (it has 0 of 1 pods: )?pods "[^"]*" is forbidden: violates PodSecurity`).MatchString(out) {
				return fmt.Errorf("%s is not there: %s", owner, out)
			}
		}
		return nil
	})
	var r statusReport
	statusJSON(t, &r, ns)
	for _, o := range r.Owners {
		if o.Restart {
			t.Errorf("%s/%s is to be restarted", o.Kind, o.Name)
		}
	}
}

// TestStatusUnlabelled checks which namespaces have not opted in according to the selectors of the
// installed webhooks, and which ones must stay out.
func TestStatusUnlabelled(t *testing.T) {
	t.Parallel()
	plain, in := plainNamespace(t), optedInNamespace(t)
	want := map[string]string{
		plain: "unlabelled", in: "", "kube-system": "excluded", "kube-public": "excluded", "kube-node-lease": "excluded", "pillion-system": "excluded",
		plainNamespace(t, withLabel(injectLabel, "true")):     "unknown_label",
		plainNamespace(t, withLabel(injectLabel, "disabled")): "opted_out",
		plainNamespace(t, withLabel(injectLabel, "shadow")):   "shadow",
	}
	var r struct {
		Namespaces []struct{ Namespace, Code, Command string }
	}
	statusJSON(t, &r, "unlabelled")
	got := map[string]string{}
	for _, o := range r.Namespaces {
		got[o.Namespace] = o.Code
		if helps := o.Code == "unlabelled" || o.Code == "unknown_label" || o.Code == "shadow"; (o.Command != "") != helps {
			t.Errorf("%s (%s): the command is %q", o.Namespace, o.Code, o.Command)
		}
	}
	for name, code := range want {
		if got[name] != code {
			t.Errorf("%s: %q, want %q", name, got[name], code)
		}
	}
}

// TestStatusSelects checks that status counts the pods that a selector matches, of one namespace
// and of all.
func TestStatusSelects(t *testing.T) {
	t.Parallel()
	in, out := optedInNamespace(t), plainNamespace(t)
	only := func(p *corev1.Pod) { p.Labels["only"] = in }
	for _, ns := range []string{in, out} {
		createPod(t, ns, newPod("chosen", only))
		createPod(t, ns, newPod("other"))
	}
	for _, c := range []struct {
		args []string
		want map[string]int
	}{
		{[]string{in}, map[string]int{in: 2}},
		{[]string{in, "-l", "only=" + in}, map[string]int{in: 1}},
		{[]string{"-A", "-l", "only = " + in}, map[string]int{in: 1}},
		{[]string{in, out, "-l", "only=" + in}, map[string]int{in: 1, out: 1}},
	} {
		var r statusReport
		statusJSON(t, &r, c.args...)
		got := map[string]int{}
		for _, n := range r.Namespaces {
			if n.Pods > 0 {
				got[n.Namespace] = n.Pods
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%q: %v, want %v", c.args, got, c.want)
		}
	}
}

// TestCompletion checks that a shell completes names of the cluster, and none for a user who may not list
// them.
func TestCompletion(t *testing.T) {
	t.Parallel()
	ns := plainNamespace(t)
	createPod(t, ns, newPod("web-1"))
	createPod(t, ns, newPod("api-1"))
	if _, err := env.RunKubectl(testContext(t), nil, "create", "deployment", "shop", "-n", ns, "--image", "x:1", "--replicas", "0"); err != nil {
		t.Fatal(err)
	}
	nobody := nobodyIn(t, ns)
	text, err := os.ReadFile(env.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(nowhere, regexp.MustCompile(`https://[^\s"]+`).ReplaceAll(text, []byte("https://127.0.0.1:1")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"status " + ns[:len(ns)-1], ns},
		{"explain -n " + ns[:len(ns)-1], ns},
		{"explain -n " + ns + " pod/", "pod/api-1 pod/web-1"},
		{"explain -n " + ns + " pod w", "web-1"},
		{"explain -n " + ns + " deploy/", "deploy/shop"},
	} {
		for kubeconfig, want := range map[string]string{env.Kubeconfig: c.want, nobody: "", nowhere: ""} {
			args := append([]string{"__complete"}, strings.Fields(c.args)...)
			args = append(args[:2:2], append([]string{"--kubeconfig", kubeconfig}, args[2:]...)...)
			cmd := exec.CommandContext(t.Context(), env.binary, args...)
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.Output()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if got := strings.Join(lines[:len(lines)-1], " "); err != nil || got != want || strings.Contains(errs.String(), "pillion: ") {
				t.Errorf("%q: %q, want %q: %v %s", args, got, want, err, &errs)
			}
		}
	}
}

// nobodyIn is the kubeconfig of a user without any rights.
func nobodyIn(t *testing.T, ns string) (kubeconfig string) {
	t.Helper()
	token, err := env.Client.CoreV1().ServiceAccounts(ns).CreateToken(testContext(t), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err = env.WriteKubeconfig("nobody-"+ns, token.Status.Token)
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}
