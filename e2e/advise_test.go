// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// adviseLabel is on the namespaces whose workloads the API server asks about: other tests expect silence.
const adviseLabel = "e2e.example.com/advise"

// advisor is a Pillion that the API server calls about workloads, through a proxy.
type advisor struct {
	*cluster.Pillion
	proxy *cluster.Proxy
}

// TestAdvise checks that users who apply a workload get warnings about problems of its future pods.
func TestAdvise(t *testing.T) {
	a := &advisor{}
	var err error
	if a.Pillion, err = env.StartPillionWith(t.Context(), env.binary, []string{"--advise"}, env.templates...); err != nil {
		t.Fatal(err)
	}
	a.proxy = newProxy(t, []cluster.Endpoint{a.Endpoint})
	if err := env.InstallAdvising(testContext(t), env.manifests, adviseLabel, cluster.Endpoint{URL: a.proxy.URL(), CA: env.Authority.PEM}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := env.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(cleanupContext(), adviseConfiguration, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	t.Parallel()
	t.Run("by default", a.installs)
	t.Run("kubectl", a.kubectl)
	t.Run("mistakes", a.mistakes)
	t.Run("misplaced", a.misplaced)
	t.Run("elsewhere", a.elsewhere)
	t.Run("pods opt in", a.podsOptIn)
	t.Run("meant to opt in", a.meantOptIn)
	t.Run("limits", func(t *testing.T) {
		for _, c := range limitCases() {
			t.Run(c.name, c.run)
		}
	})
	t.Run("updates", a.updates)
	t.Run("hung", a.hung)
	t.Run("down", a.down)
}

// installs checks that the base and every overlay have the webhook, and that the component no-advise removes it.
func (a *advisor) installs(t *testing.T) {
	for _, target := range []string{"base", "overlays/cert-manager", "overlays/self-signed"} {
		for _, components := range [][]string{nil, {"no-advise"}} {
			out, err := env.RunKubectl(testContext(t), nil, "kustomize", kustomization(t, target, components...))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"- --advise\n", "name: pillion-advise\n", "name: namespace.advise.pillion.dev\n"} {
				if bytes.Contains(out, []byte(want)) != (components == nil) {
					t.Errorf("%s with the components %q: it has %q: %t", target, components, want, components != nil)
				}
			}
		}
	}
}

// kustomization is a folder with one that has a target of the manifests, and components.
func kustomization(t *testing.T, target string, components ...string) (dir string) {
	t.Helper()
	root, err := cluster.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	manifests, err := filepath.Rel(dir, filepath.Join(root, "manifests"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%s/%s]\ncomponents:\n", manifests, target)
	for _, c := range components {
		text += fmt.Sprintf("- %s/components/%s\n", manifests, c)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// advisedNamespace returns when workloads in a new namespace are advised about.
func advisedNamespace(t *testing.T) string {
	t.Helper()
	ns := optedInNamespace(t, withLabel(adviseLabel, "true"))
	waitForAdvice(t, ns, newDeployment("probe", map[string]string{"logger.pillion.dev/levels": "info"}))
	return ns
}

func waitForAdvice(t *testing.T, ns string, probe *appsv1.Deployment) {
	t.Helper()
	eventually(t, "advice comes", func(ctx context.Context) error {
		warnings, err := tryDeployment(ctx, t, ns, probe)
		if err == nil && !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "did you mean") }) {
			err = fmt.Errorf("warnings %q", warnings)
		}
		return err
	})
}

func newDeployment(name string, annotations map[string]string, edits ...func(*corev1.PodSpec)) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}},
			},
		},
	}
	for _, edit := range edits {
		edit(&d.Spec.Template.Spec)
	}
	return d
}

// tryDeployment creates it as a dry run, and returns the warnings.
func tryDeployment(ctx context.Context, t *testing.T, ns string, d *appsv1.Deployment) ([]string, error) {
	t.Helper()
	client, warnings := warnedClient(t)
	_, err := client.AppsV1().Deployments(ns).Create(ctx, d, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	warnings.mu.Lock()
	defer warnings.mu.Unlock()
	return slices.Clone(warnings.text), err
}

// mistakesIn returns the warnings without the effects on the rest of the pod.
func mistakesIn(warnings []string) []string {
	return slices.DeleteFunc(slices.Clone(warnings), func(w string) bool { return strings.HasPrefix(w, "effect: ") })
}

// applied returns what kubectl prints when a user applies an object.
func applied(t *testing.T, ns, text string) (warnings []string) {
	t.Helper()
	cmd := exec.CommandContext(testContext(t), env.Kubectl, "apply", "-n", ns, "-f", "-")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig)
	cmd.Stdin = strings.NewReader(text)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, &stderr)
	}
	for line := range strings.Lines(stderr.String()) {
		if warning, ok := strings.CutPrefix(strings.TrimSpace(line), "Warning: "); ok {
			warnings = append(warnings, warning)
		}
	}
	return warnings
}

const misspelling = `logger: unknown_parameter: the annotation logger.pillion.dev/levels sets no parameter; did you mean "level"?`

// workload is the YAML of one with a misspelled parameter.
func workload(apiVersion, kind, spec, level string, replicas int) string {
	const template = `template: {metadata: {labels: {app: web}, annotations: {logger.pillion.dev/levels: %s}}, spec: {%s, containers: [{name: web, image: registry.example/web:1}]}}`
	pods, restart := "selector: {matchLabels: {app: web}}, ", "restartPolicy: Always"
	if strings.HasPrefix(apiVersion, "batch/") {
		pods, restart = "", "restartPolicy: Never"
	}
	pods += fmt.Sprintf(template, level, restart)
	if strings.Contains(spec, "REPLICAS") {
		pods = fmt.Sprintf("replicas: %d, ", replicas) + pods
	}
	spec = strings.NewReplacer("PODS", pods, "REPLICAS, ", "").Replace(spec)
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: web-%s}\nspec: %s\n", apiVersion, kind, strings.ToLower(kind), spec)
}

func (a *advisor) kubectl(t *testing.T) {
	ns := advisedNamespace(t)
	for kind, spec := range map[string]struct{ apiVersion, text string }{
		"Deployment":  {"apps/v1", "{REPLICAS, PODS}"},
		"StatefulSet": {"apps/v1", "{REPLICAS, serviceName: web, PODS}"},
		"ReplicaSet":  {"apps/v1", "{REPLICAS, PODS}"},
		"DaemonSet":   {"apps/v1", "{PODS}"},
		"Job":         {"batch/v1", "{PODS}"},
		"CronJob":     {"batch/v1", `{schedule: "@yearly", jobTemplate: {spec: {PODS}}}`},
	} {
		t.Run(kind, func(t *testing.T) {
			want := []string{misspelling}
			const effect = "effect: the quality of service class of the pod is Burstable instead of BestEffort, because the container logger has a cpu request"
			if got := applied(t, ns, workload(spec.apiVersion, kind, spec.text, "info", 0)); !slices.Equal(mistakesIn(got), want) || !slices.Contains(got, effect) {
				t.Errorf("kubectl shows the warnings %q, want %q and %q", got, want, effect)
			}
			if got := applied(t, ns, workload(spec.apiVersion, kind, spec.text, "info", 1)); len(got) > 0 {
				t.Errorf("where the pods stay as they are: %q", got)
			}
			if kind == "Job" {
				return // its pods cannot be changed
			}
			if got := applied(t, ns, workload(spec.apiVersion, kind, spec.text, "debug", 1)); !slices.Equal(mistakesIn(got), want) {
				t.Errorf("where the pods change: %q", got)
			}
		})
	}
	a.tellsNoController(t, ns)
}

// tellsNoController checks that the API server did not call Pillion about the objects that controllers made of the workloads.
func (a *advisor) tellsNoController(t *testing.T, ns string) {
	t.Helper()
	eventually(t, "the Deployment's pod is there", func(ctx context.Context) error {
		pods, err := env.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		made := func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, "web-deployment-") }
		if err == nil && !slices.ContainsFunc(pods.Items, made) {
			err = errors.New("not yet")
		}
		return err
	})
	asked := a.Decided(ns)
	if len(asked) == 0 {
		t.Error("Pillion was not asked")
	}
	for _, line := range asked {
		if owner := fmt.Sprint(line["owner"]); strings.Contains(owner, "/web-deployment-") || line["webhook"] != "advise" {
			t.Errorf("Pillion was asked about what a controller made: %v", line)
		}
	}
}

func (a *advisor) mistakes(t *testing.T) {
	ns := advisedNamespace(t)
	own := func(p *corev1.PodSpec) {
		p.Containers = append(p.Containers, corev1.Container{Name: "logger", Image: "mine"})
	}
	for name, c := range map[string]struct {
		deployment *appsv1.Deployment
		want       string
	}{
		"fine":             {newDeployment("web", nil), ""},
		"invalid value":    {newDeployment("web", map[string]string{"logger.pillion.dev/level": "loud"}), `is "loud"; it must be one of debug, info, warn`},
		"unknown template": {newDeployment("web", map[string]string{"pillion.dev/templates": "+loger"}), `names the unknown template "loger"; did you mean "logger"?`},
		"conflict":         {newDeployment("web", nil, own), "logger: conflict at /spec/containers/1: "},
	} {
		got, err := tryDeployment(testContext(t), t, ns, c.deployment)
		if err != nil {
			t.Fatal(err)
		}
		if got = mistakesIn(got); c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: warnings %q, want %q", name, got, c.want)
		}
	}
}

// misplaced checks that a label or an annotation on the workload itself gets a warning, also in a
// namespace that did not opt in, and if only that changes.
func (a *advisor) misplaced(t *testing.T) {
	ns, plain := advisedNamespace(t), plainNamespace(t, withLabel(adviseLabel, "true"))
	const want = "misplaced: Deployment/web has %s in metadata; Pillion reads spec.template.metadata"
	for _, step := range []struct{ ns, metadata, key string }{
		{ns, "labels: {pillion.dev/inject: disabled}", "pillion.dev/inject"},
		{ns, "labels: {pillion.dev/inject: disabled, app: web}", "pillion.dev/inject"},
		{ns, "annotations: {logger.pillion.dev/level: debug}", "logger.pillion.dev/level"},
		{ns, "labels: {app: web}", ""},
		{plain, "labels: {pillion.dev/inject: enabled}", "pillion.dev/inject"},
		{plain, "annotations: {logger.pillion.dev/level: debug}", ""},
	} {
		var all []string
		if step.key != "" {
			all = []string{fmt.Sprintf(want, step.key)}
		}
		text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, " + step.metadata + "}\nspec: {replicas: 0, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web:1}]}}}\n"
		if got := mistakesIn(applied(t, step.ns, text)); !slices.Equal(got, all) {
			t.Errorf("%s: kubectl shows the warnings %q, want %q", step.metadata, got, all)
		}
	}
	cron := "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: web}\nspec: {schedule: \"@yearly\", jobTemplate: {metadata: {labels: {pillion.dev/inject: disabled}}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: web, image: registry.example/web:1}]}}}}}\n"
	if got := mistakesIn(applied(t, ns, cron)); len(got) != 1 || !strings.Contains(got[0], "in spec.jobTemplate.metadata; Pillion reads spec.jobTemplate.spec.template.metadata") {
		t.Errorf("kubectl shows the warnings %q", got)
	}
}

// elsewhere checks that without an opt-in there is no warning and no call.
func (a *advisor) elsewhere(t *testing.T) {
	wrong := newDeployment("web", map[string]string{"logger.pillion.dev/levels": "info"})
	for _, ns := range []string{plainNamespace(t, withLabel(adviseLabel, "true")), plainNamespace(t, withLabel(adviseLabel, "true"), withLabel(injectLabel, "disabled"))} {
		got, err := tryDeployment(testContext(t), t, ns, wrong)
		if err != nil || len(got) > 0 || len(a.Decided(ns)) > 0 {
			t.Errorf("warnings %q, error %v, asked %v", got, err, a.Decided(ns))
		}
	}
}

// podsOptIn checks workloads that opt in by the label of their pod template, which no selector of the webhook sees.
func (a *advisor) podsOptIn(t *testing.T) {
	wrong := newDeployment("web", map[string]string{"logger.pillion.dev/levels": "info"})
	wrong.Spec.Template.Labels[injectLabel] = "enabled"
	waitForAdvice(t, plainNamespace(t, withLabel(adviseLabel, "true")), wrong)
	got, err := tryDeployment(testContext(t), t, plainNamespace(t, withLabel(adviseLabel, "true"), withLabel(injectLabel, "disabled")), wrong)
	if err != nil || len(got) > 0 {
		t.Errorf("where the namespace opted out: warnings %q, error %v", got, err)
	}
}

// meantOptIn checks that a user who wants to opt in and misspells the label, or writes it as an annotation, sees that in the output
// of kubectl, for a namespace as for a workload.
func (a *advisor) meantOptIn(t *testing.T) {
	plain := plainNamespace(t, withLabel(adviseLabel, "true"))
	for metadata, want := range map[string]string{
		`labels: {app: web, pilion.dev/inject: enabled}`:                             "unknown_parameter: the label pilion.dev/inject means nothing to Pillion; did you mean pillion.dev/inject?",
		`labels: {app: web, pillion.dev/injct: enabled}`:                             "unknown_parameter: the label pillion.dev/injct means nothing; did you mean pillion.dev/inject?",
		`labels: {app: web, pillion.dev/inject: "yes"}`:                              `unknown_parameter: the label pillion.dev/inject: "yes" means nothing; it must be enabled or disabled`,
		`labels: {app: web}, annotations: {pillion.dev/inject: enabled}`:             "unknown_parameter: the annotation pillion.dev/inject means nothing; set it as a label",
		`labels: {app: web, pillion.dev/inject: disabled}`:                           "",
		`labels: {app: web}, annotations: {"sidecar.istio.io/inject": "true", a: b}`: "",
	} {
		var all []string
		if want != "" {
			all = []string{want}
		}
		text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 0, selector: {matchLabels: {app: web}}, template: {metadata: {" + metadata + "}, spec: {containers: [{name: web, image: registry.example/web:1}]}}}\n"
		if got := applied(t, plain, text); !slices.Equal(got, all) {
			t.Errorf("a Deployment with %s: kubectl shows the warnings %q, want %q", metadata, got, all)
		}
	}
	for _, step := range []struct{ metadata, want string }{
		{`labels: {pillion.dev/injct: enabled, %s}`, `misplaced: the label pillion.dev/injct of the namespace means nothing; did you mean pillion.dev/inject?`},
		{`labels: {pillion.dev/inject: "true", %s}`, "misplaced: the label pillion.dev/inject: true of the namespace means nothing; the value must be enabled, disabled or shadow"},
		{`labels: {%s}, annotations: {pillion.dev/inject: enabled}`, "misplaced: the annotation pillion.dev/inject of the namespace means nothing; set it as a label"},
		{`labels: {pillion.dev/inject: enabled, %s}`, ""},
	} {
		var all []string
		if step.want != "" {
			all = []string{step.want}
		}
		text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + plain + ", " + fmt.Sprintf(step.metadata, adviseLabel+`: "true"`) + "}\n"
		got := slices.DeleteFunc(applied(t, plain, text), func(w string) bool { return strings.Contains(w, "last-applied-configuration") })
		if !slices.Equal(got, all) {
			t.Errorf("the namespace with %s: kubectl shows the warnings %q, want %q", step.metadata, got, all)
		}
	}
}

// updates checks that Pillion is called only for updates that change what it reads: not for those of a controller, of
// replicas or of the status.
func (a *advisor) updates(t *testing.T) {
	ns := advisedNamespace(t)
	const text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: often, annotations: {a: \"%s\"}}\nspec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.example/web:1}]}}}\n"
	before := len(a.Decided(ns))
	called := func() int { return len(a.Decided(ns)) - before }
	applied(t, ns, fmt.Sprintf(text, "b"))
	eventually(t, "the controller has updated the Deployment", func(ctx context.Context) error {
		d, err := env.Client.AppsV1().Deployments(ns).Get(ctx, "often", metav1.GetOptions{})
		if err == nil && (d.Annotations["deployment.kubernetes.io/revision"] == "" || d.Status.ObservedGeneration == 0) {
			err = errors.New("not yet")
		}
		return err
	})
	for _, command := range []string{`patch --type=merge -p {"spec":{"replicas":2,"paused":true,"minReadySeconds":1}}`, "scale --replicas=0"} {
		args := append(strings.Fields(command), "deployment/often", "-n", ns)
		if _, err := env.RunKubectl(testContext(t), nil, args...); err != nil {
			t.Fatal(err)
		}
	}
	applied(t, ns, fmt.Sprintf(text, "c"))
	eventually(t, "the last update is answered", func(context.Context) error {
		if called() < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	if n := called(); n != 2 {
		t.Errorf("Pillion was called %d times, want 2, for the creation and for the annotation: %v", n, a.Decided(ns)[before:])
	}
}

// hung checks that users wait for one call of 1 second for each workload if Pillion does not answer, and that nothing is
// rejected. What kubectl and a busy API server need besides is not Pillion's.
func (a *advisor) hung(t *testing.T) {
	ns := advisedNamespace(t)
	configuration, err := env.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(testContext(t), adviseConfiguration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range configuration.Webhooks {
		if *w.TimeoutSeconds != 1 {
			t.Errorf("the API server waits %d seconds for %s, want 1", *w.TimeoutSeconds, w.Name)
		}
	}
	a.proxy.Hang()
	defer a.proxy.Any()
	for _, kind := range []string{"Deployment", "ReplicaSet"} {
		before := countFailOpen(t, "validating", "namespace.advise.pillion.dev", "pod.advise.pillion.dev")
		began := time.Now()
		if _, err := env.RunKubectl(testContext(t), []byte(workload("apps/v1", kind, "{REPLICAS, PODS}", "info", 0)), "create", "-n", ns, "-f", "-"); err != nil {
			t.Error(err)
		}
		took := time.Since(began)
		t.Logf("kubectl create of a %s took %s while Pillion hung", kind, took.Round(10*time.Millisecond))
		if took < time.Second {
			t.Errorf("kubectl create of a %s took %s, so that Pillion did not hang", kind, took)
		}
		if n := countFailOpen(t, "validating", "namespace.advise.pillion.dev", "pod.advise.pillion.dev") - before; n != 1 {
			t.Errorf("the API server waited for %v calls when a %s was created, want 1", n, kind)
		}
	}
}

// down checks that nothing is rejected and that no warning appears without Pillion. It is the last test of the advisor.
func (a *advisor) down(t *testing.T) {
	ns := advisedNamespace(t)
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := applied(t, ns, workload("apps/v1", "Deployment", "{REPLICAS, PODS}", "info", 1)); len(got) > 0 {
		t.Errorf("warnings %q", got)
	}
}
