// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/endpointslice"
	"k8s.io/kubectl/pkg/cmd/util/podcmd"
	"k8s.io/kubectl/pkg/drain"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"

	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/testing/size"
)

// TestEffectsAgree checks with random pods and additions that an effect is reported if, and only if, Kubernetes' own code
// treats the two pods differently.
func TestEffectsAgree(t *testing.T) {
	rnd := rand.New(rand.NewPCG(20261127, 12))
	seen := map[string]int{}
	for range size.Choose(t, 2_000, 50_000) {
		kind := choose(rnd, "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
		before := randomPod(rnd, kind)
		after := before.DeepCopy()
		addTo(rnd, after)
		reported := limits.EffectsOf(encode(t, before), encode(t, after), "")
		for _, effect := range []struct {
			begins string
			facts  func(*corev1.Pod) []string // about what Kubernetes does; new ones are reported
		}{
			{"kubectl drain", func(p *corev1.Pod) []string { return drains(t, p) }},
			{"kubectl logs", chosenContainer},
			{"a Service", func(p *corev1.Pod) []string { return foundPorts(before, p) }},
			{"the kubelet evicts", storageLimits},
			{"a HorizontalPodAutoscaler", func(p *corev1.Pod) []string { return failsToScale(t, kind, p) }},
		} {
			was, is := effect.facts(before), effect.facts(after)
			differs := slices.ContainsFunc(is, func(fact string) bool { return !slices.Contains(was, fact) })
			got := ""
			for _, sentence := range reported {
				if strings.HasPrefix(sentence, effect.begins) {
					got = sentence
				}
			}
			if differs != (got != "") {
				t.Fatalf("Kubernetes has %q without the additions and %q with them, and %q is reported (%s)\n%s\n%s",
					was, is, got, kind, encode(t, before), encode(t, after))
			}
			if got != "" {
				seen[effect.begins]++
			}
		}
	}
	for _, begins := range []string{"kubectl drain", "kubectl logs", "a Service", "the kubelet evicts", "a HorizontalPodAutoscaler"} {
		if seen[begins] < 10 {
			t.Errorf("%q is reported only %d times", begins, seen[begins])
		}
	}
	t.Log(seen)
}

func choose[T any](rnd *rand.Rand, all ...T) T { return all[rnd.IntN(len(all))] }

func encode(t *testing.T, pod *corev1.Pod) []byte {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func randomPod(rnd *rand.Rand, kind string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "shop", CreationTimestamp: metav1.Unix(0, 0), Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "web", Controller: new(true)}},
	}}
	pod.Spec.NodeName = "node"
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, new(metav1.Unix(0, 0))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for i := range 1 + rnd.IntN(2) {
		pod.Spec.Containers = append(pod.Spec.Containers, randomContainer(rnd, fmt.Sprint("app-", i)))
	}
	if rnd.IntN(3) == 0 {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, randomInit(rnd, "prepare"))
	}
	if rnd.IntN(4) == 0 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, randomVolume(rnd, "own"))
	}
	if rnd.IntN(6) == 0 {
		pod.Annotations[podcmd.DefaultContainerAnnotationName] = "app-0"
	}
	if rnd.IntN(8) == 0 {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: randomResources(rnd, corev1.ResourceCPU, corev1.ResourceMemory)}
	}
	return pod
}

// addTo adds what templates can add.
func addTo(rnd *rand.Rand, pod *corev1.Pod) {
	switch rnd.IntN(4) {
	case 0:
		pod.Spec.Containers = append(pod.Spec.Containers, randomContainer(rnd, "side"))
	case 1:
		pod.Spec.Containers = append([]corev1.Container{randomContainer(rnd, "side")}, pod.Spec.Containers...)
	case 2:
		pod.Spec.InitContainers = append([]corev1.Container{randomInit(rnd, "side")}, pod.Spec.InitContainers...)
	}
	if rnd.IntN(3) == 0 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, randomVolume(rnd, "added"))
	}
	if _, has := pod.Annotations[podcmd.DefaultContainerAnnotationName]; !has && rnd.IntN(4) == 0 {
		pod.Annotations[podcmd.DefaultContainerAnnotationName] = choose(rnd, pod.Spec.Containers...).Name
	}
}

func randomInit(rnd *rand.Rand, name string) corev1.Container {
	c := randomContainer(rnd, name)
	if rnd.IntN(2) == 0 {
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	}
	return c
}

func randomContainer(rnd *rand.Rand, name string) corev1.Container {
	c := corev1.Container{Name: name}
	c.Resources.Requests = randomResources(rnd, corev1.ResourceCPU, corev1.ResourceMemory)
	for range rnd.IntN(3) {
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: choose(rnd, "", "http", "metrics"), Protocol: choose(rnd, corev1.ProtocolTCP, corev1.ProtocolUDP), ContainerPort: 8080 + int32(rnd.IntN(3))})
	}
	if rnd.IntN(4) == 0 {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
	}
	return c
}

// randomResources returns most of them.
func randomResources(rnd *rand.Rand, names ...corev1.ResourceName) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range names {
		if rnd.IntN(4) > 0 {
			list[name] = resource.MustParse("1")
		}
	}
	return list
}

func randomVolume(rnd *rand.Rand, name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: choose(rnd,
		corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
		corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}},
		corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}},
	)}
}

// drains returns what kubectl drain objects to.
func drains(t *testing.T, pod *corev1.Pod) (all []string) {
	t.Helper()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}
	helper := drain.Helper{Ctx: t.Context(), Client: fake.NewSimpleClientset(pod, set), IgnoreAllDaemonSets: true, Out: io.Discard, ErrOut: io.Discard}
	_, errs := helper.GetPodsForDeletion("node")
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

func chosenContainer(pod *corev1.Pod) []string {
	c, err := podcmd.FindOrDefaultContainerByName(pod, "", true, io.Discard)
	if err != nil {
		return []string{err.Error()}
	}
	return []string{c.Name}
}

// foundPorts returns the ports that Services find by the names of another pod's ports.
func foundPorts(names, pod *corev1.Pod) (found []string) {
	for _, list := range [][]corev1.Container{names.Spec.Containers, names.Spec.InitContainers} {
		for _, c := range list {
			for _, p := range c.Ports {
				service := &corev1.ServicePort{TargetPort: intstr.FromString(p.Name), Protocol: p.Protocol}
				if _, err := endpointslice.FindPort(names, service); p.Name == "" || err != nil {
					continue // of an init container
				}
				number, err := endpointslice.FindPort(pod, service)
				found = append(found, fmt.Sprint(p.Name, p.Protocol, number, err))
			}
		}
	}
	return found
}

// storageLimits returns whether the kubelet compares the storage that the pod uses with a limit, and which container of the
// template it counts without a limit of its own.
func storageLimits(pod *corev1.Pod) (all []string) {
	if _, has := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]; !has {
		return nil
	}
	all = append(all, "the pod has a limit")
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		isSidecar := c.RestartPolicy != nil || !slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name })
		if _, has := c.Resources.Limits[corev1.ResourceEphemeralStorage]; !has && isSidecar {
			all = append(all, c.Name)
		}
	}
	return all
}

// metrics returns that a pod uses something.
type metrics struct{ metricsclient.MetricsClient }

func (metrics) GetResourceMetric(context.Context, corev1.ResourceName, string, labels.Selector, string) (metricsclient.PodMetricsInfo, time.Time, error) {
	return metricsclient.PodMetricsInfo{"web": {Timestamp: time.Now(), Window: time.Minute, Value: 1}}, time.Now(), nil
}

// failsToScale returns the resources of which the controller of HorizontalPodAutoscalers cannot compute the utilization.
func failsToScale(t *testing.T, kind string, pod *corev1.Pod) (all []string) {
	t.Helper()
	if kind == "DaemonSet" || kind == "Job" {
		return nil
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := indexer.Add(pod); err != nil {
		t.Fatal(err)
	}
	calculator := podautoscaler.NewReplicaCalculator(metrics{}, corelisters.NewPodLister(indexer), time.Minute, time.Minute)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, _, _, _, err := calculator.GetResourceReplicas(t.Context(), 1, 50, name, podautoscaler.Tolerances{}, "shop", labels.Everything(), ""); err != nil {
			all = append(all, string(name))
		}
	}
	return all
}
