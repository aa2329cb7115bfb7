// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject/lint/limits"
)

func needs(name string, requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func sidecar(requests, limits corev1.ResourceList) corev1.Container {
	c := needs("log", requests, limits)
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

func ranges(items ...corev1.LimitRangeItem) limits.Limits {
	return limits.Limits{Ranges: []*corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "sizes"}, Spec: corev1.LimitRangeSpec{Limits: items}}}}
}

// quota takes pairs of a resource and its hard limit, with the used amount if there is a slash ("2/1").
func quota(pairs map[corev1.ResourceName]string, scopes ...corev1.ResourceQuotaScope) limits.Limits {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "compute"}, Spec: corev1.ResourceQuotaSpec{Scopes: scopes}}
	q.Status.Hard, q.Status.Used = corev1.ResourceList{}, corev1.ResourceList{}
	for name, text := range pairs {
		hard, used, _ := strings.Cut(text, "/")
		q.Status.Hard[name] = resource.MustParse(hard)
		if used != "" {
			q.Status.Used[name] = resource.MustParse(used)
		}
	}
	return limits.Limits{Quotas: []*corev1.ResourceQuota{q}}
}

func item(of corev1.LimitType, set func(*corev1.LimitRangeItem)) corev1.LimitRangeItem {
	i := corev1.LimitRangeItem{Type: of}
	set(&i)
	return i
}

func TestBroken(t *testing.T) {
	t.Parallel()
	const perContainer, perPod = corev1.LimitTypeContainer, corev1.LimitTypePod
	web := needs("web", list("1", "1Gi"), list("2", "2Gi"))
	log := sidecar(list("100m", "64Mi"), list("200m", "64Mi"))
	bare := sidecar(nil, nil)
	type pairs = map[corev1.ResourceName]string
	for name, c := range map[string]struct {
		limits     limits.Limits
		containers []corev1.Container // of the pod; web, if there is none
		inits      []corev1.Container
		brings     corev1.Container // the sidecar
		resources  *corev1.ResourceRequirements
		want       []string
	}{
		"no limits": {brings: bare},
		"container max": {
			limits: ranges(item(perContainer, func(i *corev1.LimitRangeItem) { i.Max = list("2", "2Gi") })), brings: bare,
			want: []string{"the container log has no cpu limit, which the LimitRange sizes requires", "the container log has no memory limit, which the LimitRange sizes requires"},
		},
		"container max by default": {
			limits: ranges(item(perContainer, func(i *corev1.LimitRangeItem) { i.Max = list("2", "2Gi"); i.Default = i.Max })), brings: bare,
		},
		"container max exceeded": {
			limits: ranges(item(perContainer, func(i *corev1.LimitRangeItem) { i.Max = list("2", "") })), brings: sidecar(nil, list("3", "")),
			want: []string{"the container log has a cpu limit of 3, but the LimitRange sizes allows at most 2"},
		},
		"container min": {
			limits: ranges(item(perContainer, func(i *corev1.LimitRangeItem) { i.Min = list("500m", "") })), brings: log,
			want: []string{"the container log requests 100m cpu, but the LimitRange sizes requires at least 500m"},
		},
		"container min of nothing": {
			limits: ranges(item(perContainer, func(i *corev1.LimitRangeItem) { i.Min = list("500m", "") })), brings: bare,
			want: []string{"the container log has no cpu request, which the LimitRange sizes requires"},
		},
		"a limit is a request": {
			limits: ranges(item(perContainer, func(i *corev1.LimitRangeItem) { i.Min = list("500m", "") })), brings: sidecar(nil, list("1", "")),
		},
		"container ratio": {
			limits: ranges(item(perContainer, func(i *corev1.LimitRangeItem) { i.MaxLimitRequestRatio = list("3", "") })), brings: sidecar(list("100m", ""), list("400m", "")),
			want: []string{"the container log has a cpu limit of 4 times its request, but the LimitRange sizes allows at most 3 times"},
		},
		"container ratio kept": {
			limits: ranges(item(perContainer, func(i *corev1.LimitRangeItem) { i.MaxLimitRequestRatio = list("2", "") })), brings: log,
		},
		"request above the default limit": {
			limits: ranges(item(perContainer, func(i *corev1.LimitRangeItem) { i.Default = list("", "32Mi") })), brings: sidecar(list("", "64Mi"), nil),
			want: []string{"the container log requests 64Mi memory, but the LimitRange sizes gives it a limit of 32Mi"},
		},
		"the pod breaks it already": {
			limits: ranges(item(perContainer, func(i *corev1.LimitRangeItem) { i.Max = list("1", "") })), brings: sidecar(nil, list("3", "")),
		},
		"pod max": {
			limits: ranges(item(perPod, func(i *corev1.LimitRangeItem) { i.Max = list("2100m", "") })), brings: log,
			want: []string{"the pod has a cpu limit of 2200m, but the LimitRange sizes allows at most 2100m"},
		},
		"pod max, an init container is more": {
			limits: ranges(item(perPod, func(i *corev1.LimitRangeItem) { i.Max = list("5", "") })), brings: log,
			inits: []corev1.Container{needs("migrate", nil, list("5", ""))},
			want:  []string{"the pod has a cpu limit of 5200m, but the LimitRange sizes allows at most 5"},
		},
		"pod ratio": {
			limits: ranges(item(perPod, func(i *corev1.LimitRangeItem) { i.MaxLimitRequestRatio = list("2", "") })), brings: sidecar(list("100m", ""), list("1", "")),
			want: []string{"the pod has a cpu limit of 2.73 times its request, but the LimitRange sizes allows at most 2 times"},
		},
		"quota demands": {
			limits: quota(pairs{"limits.memory": "10Gi", "requests.cpu": "10", "memory": "10Gi", "pods": "5"}), brings: sidecar(list("1m", ""), nil),
			want: []string{"the container log has no memory limit, which the quota compute requires", "the container log has no memory request, which the quota compute requires"},
		},
		"quota demands nothing of storage": {limits: quota(pairs{"limits.ephemeral-storage": "1Gi"}), brings: bare},
		"quota of a pod with resources of its own": {
			limits: quota(pairs{"limits.memory": "10Gi", "requests.cpu": "10"}), brings: bare,
			resources: &corev1.ResourceRequirements{Requests: list("2", ""), Limits: list("2", "4Gi")},
		},
		"quota demands of the pod too": {
			limits: quota(pairs{"requests.cpu": "10m", "requests.memory": "16Mi"}), containers: []corev1.Container{{Name: "web"}}, brings: sidecar(list("20m", "32Mi"), nil),
		},
		"quota fits":        {limits: quota(pairs{"requests.cpu": "3/1900m"}), brings: log},
		"quota is full":     {limits: quota(pairs{"requests.cpu": "3/1950m"}), brings: log, want: []string{"the pod needs 1100m of requests.cpu, but the quota compute has 1050m of 3 left"}},
		"quota was full":    {limits: quota(pairs{"requests.cpu": "3/2500m"}), brings: log},
		"quota, old name":   {limits: quota(pairs{"cpu": "1"}), brings: log, want: []string{"the pod needs 1100m of cpu, but the quota compute has 1 of 1 left"}},
		"quota, limits":     {limits: quota(pairs{"limits.memory": "2Gi"}), brings: log, want: []string{"the pod needs 2112Mi of limits.memory, but the quota compute has 2Gi of 2Gi left"}},
		"quota, extended":   {limits: quota(pairs{"requests.example.com/gpu": "1/1"}), brings: sidecar(corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}, nil), want: []string{"the pod needs 1 of requests.example.com/gpu, but the quota compute has 0 of 1 left"}},
		"quota not counted": {limits: limits.Limits{Quotas: []*corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{Name: "compute"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": resource.MustParse("1")}}}}}, brings: log, want: []string{"the pod needs 1100m of requests.cpu, but the quota compute has 1 of 1 left"}},
		"best effort no more": {
			limits: quota(pairs{"pods": "0"}, corev1.ResourceQuotaScopeNotBestEffort), containers: []corev1.Container{{Name: "web"}}, brings: log,
			want: []string{"the pod needs 1 of pods, but the quota compute has 0 of 0 left"},
		},
		"best effort still":        {limits: quota(pairs{"pods": "0"}, corev1.ResourceQuotaScopeNotBestEffort), containers: []corev1.Container{{Name: "web"}}, brings: bare},
		"best effort anyway":       {limits: quota(pairs{"pods": "0"}, corev1.ResourceQuotaScopeBestEffort), containers: []corev1.Container{{Name: "web"}}, brings: log},
		"another scope":            {limits: quota(pairs{"requests.cpu": "1"}, corev1.ResourceQuotaScopeTerminating), brings: log},
		"this scope":               {limits: quota(pairs{"requests.cpu": "1"}, corev1.ResourceQuotaScopeNotTerminating), brings: log, want: []string{"the pod needs 1100m of requests.cpu, but the quota compute has 1 of 1 left"}},
		"a scope of another day":   {limits: quota(pairs{"requests.cpu": "1"}, "Lunar"), brings: log},
		"a default fills a demand": {limits: limits.Limits{Ranges: ranges(item(perContainer, func(i *corev1.LimitRangeItem) { i.Default = list("1", "1Gi") })).Ranges, Quotas: quota(pairs{"limits.memory": "10Gi"}).Quotas}, brings: bare},
	} {
		before := &corev1.Pod{Spec: corev1.PodSpec{Containers: c.containers, InitContainers: c.inits, Resources: c.resources}}
		if c.containers == nil {
			before.Spec.Containers = []corev1.Container{web}
		}
		after := before.DeepCopy()
		after.Spec.InitContainers = append([]corev1.Container{c.brings}, after.Spec.InitContainers...)
		untouched := after.DeepCopy()
		if got := c.limits.Broken(before, after); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got, _ := json.Marshal(after); string(got) != string(mustJSON(untouched)) {
			t.Errorf("%s: the pod is changed", name)
		}
		if got := c.limits.Broken(after, after); got != nil {
			t.Errorf("%s: said of a pod that nothing was injected into: %q", name, got)
		}
	}
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func TestMisfits(t *testing.T) {
	t.Parallel()
	e := evaluator(t)
	privileged := corev1.Container{Name: "log", SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}
	web := corev1.Container{Name: "web"}
	pod := func(all ...corev1.Container) []byte {
		return mustJSON(corev1.Pod{Spec: corev1.PodSpec{Containers: all}})
	}
	baseline := map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}
	got := e.Misfits(baseline, limits.Limits{}, pod(web), pod(web, privileged))
	if len(got) != 1 || !strings.HasPrefix(got[0], `once injected, the pod is denied: the namespace enforces the Pod Security level baseline: privileged (container "log"`) {
		t.Errorf("%q", got)
	}
	for name, nothing := range map[string][]string{
		"privileged before": e.Misfits(baseline, limits.Limits{}, pod(privileged), pod(privileged, privileged)),
		"nothing enforced":  e.Misfits(nil, limits.Limits{}, pod(web), pod(web, privileged)),
		"no pods":           e.Misfits(baseline, limits.Limits{}, []byte("3"), pod(web, privileged)),
		"an absurd number":  e.Misfits(baseline, limits.Limits{}, pod(web), []byte(`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu": "1e-2147483647" }}}]}}`)),
		"behind a space":    e.Misfits(baseline, limits.Limits{}, pod(web), []byte(`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu": " 1e-2147483647 " }}}]}}`)),
		"very many digits":  e.Misfits(baseline, limits.Limits{}, pod(web), []byte(`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu": "`+strings.Repeat("9", 10_000_000)+`k" }}}]}}`)),
		"another one":       e.Misfits(baseline, limits.Limits{}, pod(web), []byte(`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":1E2147483647}}}]}}`)),
	} {
		if nothing != nil {
			t.Errorf("%s: %q", name, nothing)
		}
	}
}

// TestOriginal checks that a reason that denies the pod without Pillion too is not attributed to
// the sidecar. Reasons that depend on other running pods are not reported for the original pod.
func TestOriginal(t *testing.T) {
	t.Parallel()
	e := evaluator(t)
	pod := mustJSON(&corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "web"}}}})
	limits := quota(map[corev1.ResourceName]string{"requests.cpu": "10m", "pods": "0"})
	got := e.Original(map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}, limits, pod)
	if len(got) != 2 || !strings.HasPrefix(got[0], "the namespace enforces the Pod Security level baseline") || got[1] != "the container web has no cpu request, which the quota compute requires" {
		t.Errorf("got %q", got)
	}
	if got := e.Original(nil, quota(map[corev1.ResourceName]string{"pods": "0"}), pod); got != nil {
		t.Errorf("got %q", got)
	}
}
