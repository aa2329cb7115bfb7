// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// limitCase is a namespace with limits, and a pod that breaks them only once it is injected, or does not.
type limitCase struct {
	name   string
	level  string // of Pod Security
	item   corev1.LimitRangeItem
	hard   corev1.ResourceList
	scopes []corev1.ResourceQuotaScope

	templates string // that the pod asks for; "" for what every pod gets
	pod       corev1.PodSpec
	want      string // of the advice; "" for none
	denied    bool   // even if nothing is injected
}

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func app(requests, limits corev1.ResourceList) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{
		Name: "web", Image: "registry.example/web:1", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
	}}}
}

func limitCases() []limitCase {
	const perContainer, perPod = corev1.LimitTypeContainer, corev1.LimitTypePod
	one := amounts("cpu", "1", "memory", "1Gi")
	whole := corev1.PodSpec{Containers: app(nil, nil).Containers, Resources: &corev1.ResourceRequirements{Requests: one, Limits: one}}
	migrating := app(one, one)
	migrating.InitContainers = []corev1.Container{{Name: "migrate", Image: "m", Resources: corev1.ResourceRequirements{Limits: amounts("cpu", "3", "memory", "1Gi")}}}
	return []limitCase{
		{name: "quota demands", hard: amounts("limits.memory", "10Gi"), templates: "bare", pod: app(one, one), want: "the container bare has no memory limit, which the quota limits requires"},
		{name: "quota demands of all", hard: amounts("limits.memory", "10Gi"), templates: "bare", pod: app(nil, nil), denied: true},
		{name: "quota and pod-level resources", hard: amounts("limits.memory", "10Gi", "requests.cpu", "10"), templates: "bare", pod: whole},
		{name: "quota fits", hard: amounts("requests.cpu", "1050m", "limits.memory", "1088Mi"), pod: app(one, one)},
		{name: "quota is full", hard: amounts("requests.cpu", "1049m"), pod: app(one, one), want: "the pod needs 1050m of requests.cpu, but the quota limits has 1049m of 1049m left"},
		{name: "quota and init container", hard: amounts("limits.cpu", "3"), pod: migrating, want: "the pod needs 3200m of limits.cpu, but the quota limits has 3 of 3 left"},
		{name: "quota by class", hard: amounts("pods", "0"), scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotBestEffort}, pod: app(nil, nil), want: "the pod needs 1 of pods, but the quota limits has 0 of 0 left"},
		{name: "quota by class, still", hard: amounts("pods", "0"), scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotBestEffort}, templates: "bare", pod: app(nil, nil)},
		{name: "defaults", item: corev1.LimitRangeItem{Type: perContainer, Max: one}, hard: amounts("limits.memory", "10Gi"), templates: "bare", pod: app(one, one)},
		{name: "min", item: corev1.LimitRangeItem{Type: perContainer, Min: amounts("cpu", "100m")}, pod: app(one, one), want: "the container logger requests 50m cpu, but the LimitRange limits requires at least 100m"},
		{name: "min of both", item: corev1.LimitRangeItem{Type: perContainer, Min: amounts("cpu", "100m")}, pod: app(amounts("cpu", "10m"), nil), denied: true},
		{name: "quota of both", hard: amounts("requests.cpu", "10m", "requests.memory", "16Mi"), pod: app(nil, nil), denied: true},
		{name: "max", item: corev1.LimitRangeItem{Type: perContainer, Max: amounts("memory", "32Mi")}, pod: app(nil, nil), want: "the container logger has a memory limit of 64Mi, but the LimitRange limits allows at most 32Mi"},
		{name: "max of the pod", item: corev1.LimitRangeItem{Type: perPod, Max: amounts("cpu", "1")}, pod: app(one, one), want: "the pod has a cpu limit of 1200m, but the LimitRange limits allows at most 1"},
		{name: "max of the pod, bare", item: corev1.LimitRangeItem{Type: perPod, Max: amounts("cpu", "1")}, templates: "bare", pod: app(one, one)},
		{name: "ratio", item: corev1.LimitRangeItem{Type: perContainer, MaxLimitRequestRatio: amounts("cpu", "3")}, pod: app(one, one), want: "the container logger has a cpu limit of 4 times its request, but the LimitRange limits allows at most 3 times"},
		{name: "ratio kept", item: corev1.LimitRangeItem{Type: perContainer, MaxLimitRequestRatio: amounts("cpu", "4")}, pod: app(one, one)},
		{name: "Pod Security", level: "baseline", templates: "host", pod: app(nil, nil), want: "the pod is denied: the namespace enforces the Pod Security level baseline: hostPort"},
		{name: "Pod Security kept", level: "baseline", pod: app(nil, nil)},
		{name: "Pod Security broken anyway", level: "restricted", templates: "host", pod: app(nil, nil), denied: true},
	}
}

// run checks that Pillion warns about a Deployment exactly if the API server rejects its pods because of the injection.
func (c *limitCase) run(t *testing.T) {
	t.Parallel()
	if c.hard != nil {
		needsControllerManager(t, "counts what quotas limit")
	}
	annotations := map[string]string{}
	if c.templates != "" {
		annotations["pillion.dev/templates"] = c.templates
	}
	ns := advisedNamespace(t)
	c.install(t, ns)
	eventually(t, "the API server goes by the limits, and Pillion knows them", func(ctx context.Context) error {
		plain, injected := c.create(ctx, ns, annotations, "disabled"), c.create(ctx, ns, annotations, "enabled")
		if (plain != nil) != c.denied || (injected != nil) != (c.denied || c.want != "") {
			return fmt.Errorf("the pod is denied: %w; the injected one: %w", plain, injected)
		}
		got, err := tryDeployment(ctx, t, ns, newDeployment("web", annotations, func(p *corev1.PodSpec) { *p = *c.pod.DeepCopy() }))
		got = slices.DeleteFunc(got, func(w string) bool { return !strings.HasPrefix(w, "once injected, ") })
		if err == nil && (c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], "once injected, "+c.want))) {
			err = fmt.Errorf("advice %q, want %q", got, c.want)
		}
		return err
	})
	c.explained(t, ns, annotations)
}

// explained checks that pillion explain reports the same about the Deployment once it exists.
func (c *limitCase) explained(t *testing.T, ns string, annotations map[string]string) {
	t.Helper()
	d := newDeployment("web", annotations, func(p *corev1.PodSpec) { *p = *c.pod.DeepCopy() })
	d.Spec.Replicas = new(int32) // which would use the quota
	if _, err := env.Client.AppsV1().Deployments(ns).Create(testContext(t), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	args := []string{"--kubeconfig", env.Kubeconfig, "-n", ns, "deploy/web"}
	for _, path := range env.templates {
		args = append(args, "--templates", path)
	}
	report := explain(t, nil, args...).Reports[0]
	if (len(report.Original) > 0) != c.denied {
		t.Errorf("explained that the pod is denied without Pillion too: %q; it was denied: %t", report.Original, c.denied)
	}
	got := report.Misfits
	if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], "once injected, "+c.want)) {
		t.Errorf("explained: %q, want %q", got, c.want)
	}
}

func (c *limitCase) install(t *testing.T, ns string) {
	t.Helper()
	ctx, core := testContext(t), env.Client.CoreV1()
	name := metav1.ObjectMeta{Name: "limits"}
	var err error
	if c.item.Type != "" {
		_, err = core.LimitRanges(ns).Create(ctx, &corev1.LimitRange{ObjectMeta: name, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{c.item}}}, metav1.CreateOptions{})
	}
	if err == nil && c.hard != nil {
		_, err = core.ResourceQuotas(ns).Create(ctx, &corev1.ResourceQuota{ObjectMeta: name, Spec: corev1.ResourceQuotaSpec{Hard: c.hard, Scopes: c.scopes}}, metav1.CreateOptions{})
		eventually(t, "the quota is counted", func(ctx context.Context) error {
			q, err := core.ResourceQuotas(ns).Get(ctx, name.Name, metav1.GetOptions{})
			if err == nil && len(q.Status.Hard) == 0 {
				err = fmt.Errorf("status %v", q.Status)
			}
			return err
		})
	}
	if err == nil && c.level != "" {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":%q}}}`, c.level)
		_, err = core.Namespaces().Patch(ctx, ns, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// create makes the Deployment's pod as a dry run, which admission does not notice.
func (c *limitCase) create(ctx context.Context, ns string, annotations map[string]string, inject string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Annotations: annotations, Labels: map[string]string{"app": "web", injectLabel: inject}},
		Spec:       *c.pod.DeepCopy(),
	}
	_, err := env.Client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
