// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

const (
	canaryWorkloads = 20
	canaryPods      = 2 // of each workload
	// canaryLimit is for the controllers, which wait longer after each failure.
	canaryLimit = 3 * time.Minute
)

// logTemplate is a sidecar with an image and further lines of its spec.
func logTemplate(name, image string, lines ...string) string {
	return "---\napiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: " + name + "}\nspec:\n  default: true\n  required: true\n" + strings.Join(lines, "") +
		"  pod: {spec: {initContainers: [{name: log, image: \"registry.example/log:" + image + "\", restartPolicy: Always}]}}\n"
}

// canary is a template that replaces the sidecar in a share of the workloads.
func canary() string {
	return logTemplate("log-next", "2", "  replaces: log\n  share: 20\n")
}

// canaries is a cluster with workloads for which the sidecar changes.
type canaries struct {
	*authors
	controlled *controlled
	manifests  string // a file with the workloads
}

// TestCanary follows a template that replaces another one in a share of 20 workloads: it comes, ends, comes again
// and is promoted.
func TestCanary(t *testing.T) {
	t.Parallel()
	i := install(t, newCluster(t), "self-signed")
	c := &canaries{authors: &authors{installed: i}, controlled: &controlled{i.Cluster}, manifests: filepath.Join(t.TempDir(), "workloads.yaml")}
	var err error
	if c.objects, err = dynamic.NewForConfig(i.Config); err != nil {
		t.Fatal(err)
	}
	c.controlled.start(t)
	c.waitForInjection(t)
	c.use(t, logTemplate("log", "1"))
	c.create(t)
	c.wantImages(t, func(string) string { return "1" })
	c.wantCounts(t, "log", canaryWorkloads*canaryPods, 0)

	selected := c.selected(t)
	if n := len(selected); n < 1 || n > canaryWorkloads/2 {
		t.Fatalf("a share of 20 selects %d of %d workloads", n, canaryWorkloads)
	}
	image := func(name string) string {
		if selected[name] {
			return "2"
		}
		return "1"
	}
	c.use(t, canary())
	first := len(selected) * canaryPods
	c.wantStatus(t, fmt.Sprintf("log %d/%d/0, log-next 0/0/0", canaryWorkloads*canaryPods-first, first))
	c.recreate(t)
	c.wantImages(t, image)
	c.everyReplica(t, image)
	c.wantCounts(t, "log", canaryWorkloads*canaryPods-first, 0)
	c.wantCounts(t, "log-next", first, 0)
	c.wantStatus(t, fmt.Sprintf("log %d/0/0, log-next %d/0/0", canaryWorkloads*canaryPods-first, first))
	c.wantMetrics(t)

	t.Log("it ends")
	c.remove(t, "log-next")
	c.wantCounts(t, "log", canaryWorkloads*canaryPods-first, first)
	c.wantStatus(t, fmt.Sprintf("log %d/%d/0", canaryWorkloads*canaryPods-first, first))
	c.recreate(t)
	c.wantImages(t, func(string) string { return "1" })

	t.Log("it comes again, and is promoted")
	c.use(t, canary())
	c.recreate(t)
	c.wantImages(t, image)
	c.use(t, logTemplate("log", "2"))
	c.remove(t, "log-next")
	c.wantCounts(t, "log", first, canaryWorkloads*canaryPods-first) // those with the canary have it already
	c.wantStatus(t, fmt.Sprintf("log %d/%d/0", first, canaryWorkloads*canaryPods-first))
	c.recreate(t)
	c.wantImages(t, func(string) string { return "2" })
	c.wantCounts(t, "log", canaryWorkloads*canaryPods, 0)

	t.Run("mistakes", c.wrong)
}

// use applies templates, and waits until all replicas use them.
func (c *canaries) use(t *testing.T, texts ...string) {
	t.Helper()
	before, err := c.templateRevisions(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	c.apply(t, texts...)
	c.changed(t, before)
}

// remove deletes a template, and waits until no replica uses it.
func (c *canaries) remove(t *testing.T, name string) {
	t.Helper()
	before, err := c.templateRevisions(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.try(testContext(t), t, "delete cst "+name, ""); err != nil {
		t.Fatal(err)
	}
	c.changed(t, before)
}

func (c *canaries) changed(t *testing.T, before []string) {
	t.Helper()
	eventually(t, "all replicas use the templates", func(ctx context.Context) error {
		now, err := c.templateRevisions(ctx)
		if err == nil && (slices.Contains(now, before[0]) || len(slices.Compact(slices.Clone(now))) != 1) {
			err = fmt.Errorf("they have the revisions %v", now)
		}
		return err
	})
}

// create makes the workloads.
func (c *canaries) create(t *testing.T) {
	t.Helper()
	var text strings.Builder
	for i := range canaryWorkloads {
		fmt.Fprintf(&text, "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web-%[1]d, namespace: %[2]s}\nspec:\n  replicas: %[3]d\n  selector: {matchLabels: {app: web-%[1]d}}\n"+
			"  template:\n    metadata: {labels: {app: web-%[1]d}}\n    spec: {containers: [{name: web, image: \"registry.example/web:1\"}]}\n", i, c.namespace, canaryPods)
	}
	if err := os.WriteFile(c.manifests, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c.recreate(t) // what the installation needed
	if _, err := c.try(testContext(t), t, "apply -f -", text.String()); err != nil {
		t.Fatal(err)
	}
}

// selected returns the workloads that the canary takes, as pillion inject finds them in the manifests.
func (c *canaries) selected(t *testing.T) map[string]bool {
	t.Helper()
	u := &user{installed: c.installed, dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(u.dir, "templates.yaml"), []byte(logTemplate("log", "1")+canary()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code, err := u.run(testContext(t), env.binary+" inject --templates templates.yaml -f "+c.manifests+" 2>/dev/null")
	if err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	selected := map[string]bool{}
	for document := range strings.SplitSeq(out, "\n---\n") {
		_, rest, _ := strings.Cut(document, "name: ")
		name, _, _ := strings.Cut(rest, ",")
		if strings.Contains(document, "registry.example/log:2") {
			selected[name] = true
		}
	}
	return selected
}

// recreate deletes all pods. Their ReplicaSets make new ones.
func (c *canaries) recreate(t *testing.T) {
	t.Helper()
	if err := c.Client.CoreV1().Pods(c.namespace).DeleteCollection(testContext(t), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
}

// wantImages waits until each workload has its pods, all with the same image of the sidecar.
func (c *canaries) wantImages(t *testing.T, image func(workload string) string) {
	t.Helper()
	var last error
	eventuallyWithin(t, canaryLimit, "the pods have their images", func(ctx context.Context) error {
		pods, err := c.Client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return errors.Join(err, last)
		}
		n := 0
		for k := range pods.Items {
			pod := &pods.Items[k]
			if pod.DeletionTimestamp != nil || pod.Labels["app"] == "" {
				continue
			}
			n++
			err = errors.Join(err, wantImage(pod, image(pod.Labels["app"])))
		}
		if n != canaryWorkloads*canaryPods {
			err = errors.Join(err, fmt.Errorf("there are %d pods", n))
		}
		last = err
		return err
	})
}

// wantImage checks the sidecar of a pod.
func wantImage(pod *corev1.Pod, version string) error {
	var got []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name != "web" {
			got = append(got, c.Image)
		}
	}
	if want := "registry.example/log:" + version; !slices.Equal(got, []string{want}) {
		return fmt.Errorf("%s has %v, want %s", pod.Name, got, want)
	}
	return nil
}

// everyReplica creates pods like those of each workload, as a dry run, until every replica has answered for it.
func (c *canaries) everyReplica(t *testing.T, image func(workload string) string) {
	t.Helper()
	pods, err := c.Client.CoreV1().Pods(c.namespace).List(testContext(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	one := map[string]*corev1.Pod{}
	for k := range pods.Items {
		one[pods.Items[k].Labels["app"]] = &pods.Items[k]
	}
	for _, name := range slices.Sorted(maps.Keys(one)) {
		like := one[name]
		for range 4 * len(c.replicas) { // the API server balances anew for each connection
			again := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: like.GenerateName, Labels: like.Labels, OwnerReferences: like.OwnerReferences},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}},
			}
			pod, err := c.Client.CoreV1().Pods(c.namespace).Create(testContext(t), again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil {
				err = wantImage(pod, image(name))
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// wantCounts waits until the status of a template has these numbers of pods.
func (c *canaries) wantCounts(t *testing.T, template string, current, outdated int) {
	t.Helper()
	eventually(t, "the status of "+template, func(context.Context) error {
		got := c.controlled.field(t, "clustersidecartemplate/"+template, "{.status.pods.current} {.status.pods.outdated}") //nolint:contextcheck // kubectl has the test's context
		if want := fmt.Sprint(current, " ", outdated); got != want {
			return fmt.Errorf("current and outdated are %s, want %s", got, want)
		}
		return nil
	})
}

// wantStatus compares the numbers of pods in pillion status: "TEMPLATE CURRENT/OUTDATED/OTHER, ...".
func (c *canaries) wantStatus(t *testing.T, want string) {
	t.Helper()
	u := &user{installed: c.installed, dir: t.TempDir()}
	eventually(t, "pillion status has "+want, func(ctx context.Context) error {
		out, code, err := u.run(ctx, env.binary+" status -n "+c.namespace+" -o json 2>/dev/null")
		if err != nil || code > 1 {
			return fmt.Errorf("exit code %d, %w: %s", code, err, out)
		}
		var report statusReport
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			return err
		}
		var got []string
		for _, s := range report.Templates {
			if !strings.HasPrefix(s.Template, "log") {
				continue // one of the library
			}
			got = append(got, fmt.Sprintf("%s %d/%d/%d", s.Template, s.Current, s.Outdated, s.Missing+s.Altered))
		}
		if slices.Sort(got); strings.Join(got, ", ") != want {
			return fmt.Errorf("it has %v: %s", got, out)
		}
		return nil
	})
}

// wantMetrics checks that the metrics of the replicas distinguish the two templates.
func (c *canaries) wantMetrics(t *testing.T) {
	t.Helper()
	all := map[string]float64{}
	for _, r := range c.replicas {
		metrics, err := r.Metrics(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range [][2]string{{"log", "injected"}, {"log", "replaced"}, {"log-next", "injected"}, {"log-next", "not_in_share"}} {
			all[of[0]+" "+of[1]] += metrics.Counter("pillion_decisions_total", map[string]string{"template": of[0], "code": of[1]})
		}
	}
	for of, n := range all {
		if n < canaryPods {
			t.Errorf("%s: %v decisions", of, n)
		}
	}
	t.Logf("decisions: %v", all)
}

// wrong checks that kubectl apply rejects a mistake and names its field, and that it only warns if other templates are the reason.
func (c *canaries) wrong(t *testing.T) {
	spec := func(lines string) string { return logTemplate("log-next", "2", lines) }
	team := "---\napiVersion: pillion.dev/v1alpha1\nkind: SidecarTemplate\nmetadata: {name: log-next, namespace: shop}\nspec: {replaces: log, required: true, pod: {metadata: {annotations: {a: b}}}}\n"
	for text, want := range map[string]string{
		spec("  share: 20\n"):                   "spec.share",
		spec("  replaces: log\n  share: 0\n"):   "spec.share",
		spec("  replaces: log\n  share: 101\n"): "spec.share",
		spec("  replaces: log-next\n"):          "spec.replaces",
		spec("  replaces: Log\n"):               "spec.replaces",
		team:                                    "spec.replaces: log is a ClusterSidecarTemplate; a SidecarTemplate can replace only one of its own namespace",
	} {
		if _, err := c.try(testContext(t), t, "apply -f -", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q: %v\n%s", want, err, text)
		}
	}
	out := c.apply(t, spec("  replaces: lgo\n"))
	if want := `Warning: spec.replaces: there is no template lgo to replace; did you mean "log"?; until then, no pod gets this template`; !strings.Contains(out, want) {
		t.Errorf("it does not say %q: %s", want, out)
	}
	c.controlled.wantReady(t, "clustersidecartemplate/log-next", "False CannotReplace")
	c.use(t, canary())
	c.controlled.wantReady(t, "clustersidecartemplate/log-next", "True Valid")
	if _, err := c.try(testContext(t), t, "apply -f -", strings.Replace(canary(), "name: log-next", "name: log-third", 1)+
		strings.Replace(strings.Replace(canary(), "name: log-next", "name: log-fourth", 1), "replaces: log", "replaces: log-next", 1)); err == nil ||
		!strings.Contains(err.Error(), "spec.replaces: log-next itself replaces log; replace that one") {
		t.Errorf("a canary of a canary: %v", err)
	}
}
