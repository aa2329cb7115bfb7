// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// states is how many pods are in which state.
type states struct{ Pods, Current, Outdated, Missing, Altered, NotWanted int }

type validator struct {
	Kind, Name, FailurePolicy string
	Namespaces                int
}

// statusReport is what the tests read of `pillion status -o json`.
type statusReport struct {
	Summary    string
	Namespaces []struct {
		Namespace string
		states
	}
	Templates []struct {
		Template string
		states
	}
	Owners []struct {
		Namespace, Kind, Name string
		Restart               bool
		states
		Reasons []struct{ Template, State, Why string }
	}
	Mutators   []struct{ Name, Runs, ReinvocationPolicy string }
	Validators []validator
	Notes      []string
	Outside    []struct{ Namespace, Code string }
}

// statusCommand is `pillion status` by the templates of the tests, or by others.
func statusCommand(ctx context.Context, kubeconfig string, templates []string, args ...string) *exec.Cmd {
	where := []string{"status", "--kubeconfig", kubeconfig}
	if len(templates) > 0 { // they are not those of the Deployment of Pillion
		where = append(where, "--system-namespace", notHere)
	}
	args = append(where, args...)
	for _, path := range templates {
		args = append(args, "--templates", path)
	}
	return exec.CommandContext(ctx, env.binary, args...)
}

func runStatus(t *testing.T, kubeconfig string, templates []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := statusCommand(t.Context(), kubeconfig, templates, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), out.String(), errs.String()
	} else if err != nil {
		t.Fatal(err)
	}
	return 0, out.String(), errs.String()
}

func statusOf(t *testing.T, wantCode int, templates []string, args ...string) statusReport {
	t.Helper()
	code, stdout, stderr := runStatus(t, env.Kubeconfig, templates, append(args, "-o", "json")...)
	var r statusReport
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != wantCode {
		t.Errorf("pillion status %v: exit code %d, want %d, %v\n%s%s", args, code, wantCode, err, stdout, stderr)
	}
	return r
}

// wantOwners compares the owners of a report and what is said of their pods.
func wantOwners(t *testing.T, r statusReport, want map[string]states) {
	t.Helper()
	got := map[string]states{}
	for _, o := range r.Owners {
		got[o.Kind+"/"+o.Name] = o.states
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods by owner (-want +got):\n%s", diff)
	}
}

// makeDeployment makes one whose pods do not wait for each other, and waits for them.
func makeDeployment(t *testing.T, ns string, replicas int32) []corev1.Pod {
	t.Helper()
	_, err := env.Client.AppsV1().Deployments(ns).Create(testContext(t), &appsv1.Deployment{
		ObjectMeta: workloadMeta(),
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: webSelector(), Template: podTemplate(),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var pods []corev1.Pod
	eventually(t, "the Deployment's pods", func(ctx context.Context) error {
		list, err := env.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != int(replicas) {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		if err == nil {
			pods = list.Items
		}
		return err
	})
	return pods
}

// changedTemplates are those of the tests with another image of the logger.
func changedTemplates(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(env.templates[0])); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "logger.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(text, []byte("logger:1.2.3"), []byte("logger:2.0.0"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	return append([]string{dir}, env.templates[1:]...)
}

// TestStatus checks the report about pods of every state, by their owners, and that explain reports
// the same about each.
func TestStatus(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	makeDeployment(t, ns, 3)
	createPod(t, ns, newPod("guarded", requests("guard")))
	createPod(t, ns, newPod("out", func(p *corev1.Pod) { p.Labels[injectLabel] = "disabled" }))
	if r := statusOf(t, 0, env.templates, ns, "--fail-on-outdated", "--system-namespace", notHere); !strings.HasPrefix(r.Summary, "No problems: 5 pods in 1 namespace, of which 4 should be injected") {
		t.Errorf("the summary is %q", r.Summary)
	}

	auditing := auditingPolicy(t, ns)
	patch := []byte(`{"spec":{"initContainers":[{"name":"guard","image":"registry.example/evil:1"}]}}`)
	if _, err := env.Client.CoreV1().Pods(ns).Patch(testContext(t), "guarded", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r := statusOf(t, 1, env.templates, ns)
	wantOwners(t, r, map[string]states{"Deployment/web": {Pods: 3, Current: 3}, "Pod/": {Pods: 2, Altered: 1, NotWanted: 1}})
	for _, o := range r.Owners {
		if o.Name == "" && (len(o.Reasons) != 1 || o.Reasons[0].Template != "guard" || !strings.Contains(o.Reasons[0].Why, ".image: it is \"registry.example/evil:1\"")) {
			t.Errorf("the reasons of the altered pod are %+v", o.Reasons)
		}
	}
	if !slices.ContainsFunc(r.Mutators, func(m struct{ Name, Runs, ReinvocationPolicy string }) bool {
		return m.Name == recorder && m.Runs == "before" && m.ReinvocationPolicy == "Never"
	}) {
		t.Errorf("%s is not among %+v", recorder, r.Mutators)
	}
	if want := (validator{"ValidatingAdmissionPolicy", auditing, "Ignore", 1}); !slices.Contains(r.Validators, want) ||
		slices.ContainsFunc(r.Validators, func(v validator) bool { return v.Name == pillionConfiguration }) {
		t.Errorf("the validators are %+v, want %+v and not Pillion", r.Validators, want)
	}
	wantAsExplained(t, ns, env.templates, r)

	changed := changedTemplates(t)
	r = statusOf(t, 1, changed, ns) // the altered one
	wantOwners(t, r, map[string]states{"Deployment/web": {Pods: 3, Outdated: 3}, "Pod/": {Pods: 2, Altered: 1, NotWanted: 1}})
	wantAsExplained(t, ns, changed, r)
	if err := env.Client.CoreV1().Pods(ns).Delete(testContext(t), "guarded", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	statusOf(t, 0, changed, ns)
	statusOf(t, 1, changed, ns, "--fail-on-outdated")
	if code, names, told := runStatus(t, env.Kubeconfig, changed, ns, "-o", "name", "--system-namespace", pillionNamespace); code != 1 || names != "" || !strings.Contains(told, "use pillion diff -f") {
		t.Errorf("by templates that the cluster does not use: exit code %d, %q: %s", code, names, told)
	}
	code, names, told := runStatus(t, env.Kubeconfig, changed, ns, "-o", "name", "--system-namespace", notHere)
	if want := "-n " + ns + " deployment.apps/web\n"; code != 0 || names != want {
		t.Errorf("exit code %d, names %q, want %q: %s", code, names, want, told)
	}
}

// notHere is a namespace without a Deployment of Pillion: here it is a process that runs with other templates
// than the Deployment and the ConfigMap that are in the cluster.
const notHere = "default"

// auditingPolicy makes a policy that lets every pod of the namespace through.
func auditingPolicy(t *testing.T, ns string) (name string) {
	t.Helper()
	text := strings.ReplaceAll(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: audit-NS}
spec:
  failurePolicy: Ignore
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}
  validations: [{expression: "true"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: audit-NS}
spec: {policyName: audit-NS, validationActions: [Audit], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}}}
`, "NS", ns)
	if _, err := env.RunKubectl(testContext(t), []byte(text), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = env.RunKubectl(cleanupContext(), []byte(text), "delete", "-f", "-") })
	return "audit-" + ns
}

// TestStatusAgrees checks that status counts generated pods as explain reports them one by one.
func TestStatusAgrees(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	random := rand.New(rand.NewPCG(20261121, 1))
	made := 0
	for i := range 150 {
		if _, err := env.Client.CoreV1().Pods(ns).Create(t.Context(), generatedPod(random, fmt.Sprint("pod-", i)), metav1.CreateOptions{}); err == nil {
			made++
		}
	}
	for _, templates := range [][]string{env.templates, changedTemplates(t)} {
		code, stdout, stderr := runStatus(t, env.Kubeconfig, templates, ns, "-o", "json")
		var r statusReport
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || stderr != "" || code > 1 {
			t.Fatalf("exit code %d, %v: %s", code, err, stderr)
		}
		if r.Namespaces[0].Pods != made || made < 75 {
			t.Errorf("%d of %d pods are counted", r.Namespaces[0].Pods, made)
		}
		wantAsExplained(t, ns, templates, r)
	}
}

// TestKubectlPlugin checks that kubectl finds the binary by its name.
func TestKubectlPlugin(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	createPod(t, ns, newPod("web"))
	dir := t.TempDir()
	if err := os.Symlink(env.binary, filepath.Join(dir, "kubectl-pillion")); err != nil {
		t.Fatal(err)
	}
	kubectl := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), env.Kubectl, append([]string{"pillion"}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+dir, "KUBECONFIG="+env.Kubeconfig)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("kubectl pillion %v: %v", args, err)
		}
		return string(out)
	}
	if out := kubectl("status", "--help"); !strings.Contains(out, "\n  kubectl pillion status [NAMESPACE...] [flags]\n") {
		t.Errorf("the help says\n%s", out)
	}
	args := []string{"status", ns, "--system-namespace", notHere}
	for _, path := range env.templates {
		args = append(args, "--templates", path)
	}
	if out := kubectl(args...); !strings.HasPrefix(out, "No problems: 1 pod ") {
		t.Errorf("status says\n%s", out)
	}
}

// TestStatusMissing checks that pods that are older than their namespace's label are missing, and
// correct after the restarts that status prints.
func TestStatusMissing(t *testing.T) {
	t.Parallel()
	ns := plainNamespace(t)
	last := makeDeployment(t, ns, 2)[0].CreationTimestamp
	eventually(t, "another second, which is what times are stored in", func(ctx context.Context) error {
		probe, err := env.Client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && probe.CreationTimestamp.Sub(last.Time) < 2*time.Second {
			err = errors.New("it is the same one")
		}
		return err
	})
	if r := statusOf(t, 0, env.templates, ns); r.Namespaces[0].NotWanted != 2 {
		t.Errorf("before the opt-in: %+v", r.Namespaces)
	}
	if _, err := env.RunKubectl(testContext(t), nil, "label", "namespace", ns, injectLabel+"=enabled"); err != nil {
		t.Fatal(err)
	}
	r := statusOf(t, 1, env.templates, ns)
	wantOwners(t, r, map[string]states{"Deployment/web": {Pods: 2, Missing: 2}})
	if got := r.Owners[0].Reasons; len(got) != 1 || got[0].Why != "the pod is older than the namespace's label "+injectLabel {
		t.Errorf("the reasons are %+v", got)
	}
	wantAsExplained(t, ns, env.templates, r)
	_, names, _ := runStatus(t, env.Kubeconfig, env.templates, ns, "-o", "name", "--system-namespace", notHere)
	for line := range strings.Lines(names) { // as xargs -L1 does
		if _, err := env.RunKubectl(testContext(t), nil, append([]string{"rollout", "restart"}, strings.Fields(line)...)...); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the restarted pods are current", func(ctx context.Context) error {
		out, err := statusCommand(ctx, env.Kubeconfig, env.templates, ns, "--system-namespace", notHere).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "No problems: 2 pods") {
			return fmt.Errorf("%v: %s", err, out) //nolint:errorlint // it may be nil
		}
		return nil
	})
}

// TestStatusAll checks that without arguments, status finds the namespaces and pods that opted in.
func TestStatusAll(t *testing.T) {
	t.Parallel()
	whole, single, none := optedInNamespace(t), plainNamespace(t), plainNamespace(t)
	createPod(t, whole, newPod("web"))
	createPod(t, single, newPod("web", func(p *corev1.Pod) { p.Labels[injectLabel] = "enabled" }))
	createPod(t, single, newPod("quiet"))
	createPod(t, none, newPod("web"))
	code, stdout, stderr := runStatus(t, env.Kubeconfig, env.templates, "-A", "-o", "json")
	var r statusReport
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || stderr != "" || code > 1 {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	got := map[string]states{}
	for _, n := range r.Namespaces {
		if slices.Contains([]string{whole, single, none}, n.Namespace) {
			got[n.Namespace] = n.states
		}
	}
	if diff := cmp.Diff(map[string]states{whole: {Pods: 1, Current: 1}, single: {Pods: 1, Current: 1}}, got); diff != "" {
		t.Errorf("pods by namespace (-want +got):\n%s", diff)
	}
}

// TestStatusForbidden checks that a user without any rights gets a message about the rights to
// request.
func TestStatusForbidden(t *testing.T) {
	t.Parallel()
	ns := plainNamespace(t)
	kubeconfig := nobodyIn(t, ns)
	code, stdout, stderr := runStatus(t, kubeconfig, env.templates, "-A")
	want := "pillion: you are not allowed to list namespaces: ask for the verb list on the resource namespaces,\n    or name those that you are allowed to read: pillion status NAMESPACE...\n"
	if code != 1 || stdout != "" || stderr != want {
		t.Errorf("exit code %d, %q, %q; want %q", code, stdout, stderr, want)
	}
}

// wantAsExplained checks that the counts of pillion status are those of what pillion explain reports about each pod.
func wantAsExplained(t *testing.T, ns string, templates []string, r statusReport) {
	t.Helper()
	pods, err := env.Client.CoreV1().Pods(ns).List(testContext(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"explain", "--all", "--kubeconfig", env.Kubeconfig, "-n", ns}
	for _, path := range templates {
		args = append(args, "--templates", path)
	}
	for i := range pods.Items {
		args = append(args, "pod/"+pods.Items[i].Name)
	}
	out, err := exec.CommandContext(t.Context(), env.binary, args...).Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || len(exit.Stderr) > 0) {
		t.Fatalf("pillion explain: %v", err)
	}
	want, got := map[string]states{}, map[string]states{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+): (current|outdated|missing|altered|not injected)$`).FindAllStringSubmatch(string(out), -1) {
		s := want[m[1]]
		s.Pods++
		*map[string]*int{"current": &s.Current, "outdated": &s.Outdated, "missing": &s.Missing, "altered": &s.Altered, "not injected": &s.NotWanted}[m[2]]++
		want[m[1]] = s
	}
	for _, x := range r.Templates {
		got[x.Template] = x.states
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("templates of the pods, by explain and by status (-explain +status):\n%s", diff)
	}
}
