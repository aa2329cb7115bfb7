// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/manifests"
)

func ownLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": manifests.Name}
}

// TestAvailability checks that no update, drain or lost node stops all replicas.
func TestAvailability(t *testing.T) { checkAvailability(t) }

func checkAvailability(t testing.TB) {
	t.Helper()
	b := load(t)
	d := b.deployment.Spec
	wantSame(t, "replicas", d.Replicas, new(int32(manifests.Replicas)))
	wantSame(t, "strategy", d.Strategy, appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
		MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
	}})
	var spread []corev1.TopologySpreadConstraint
	for _, key := range []string{corev1.LabelHostname, corev1.LabelTopologyZone} {
		spread = append(spread, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway, // a cluster may have one node
			LabelSelector: &metav1.LabelSelector{MatchLabels: ownLabels()}, MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey},
		})
	}
	wantSame(t, "spread", d.Template.Spec.TopologySpreadConstraints, spread)
	wantSame(t, "PodDisruptionBudget", b.budget.Spec, policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: new(intstr.FromInt32(1)), UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow), Selector: &metav1.LabelSelector{MatchLabels: ownLabels()},
	})
	if b.priority.Value != 1_000_000_000 || b.priority.GlobalDefault || b.priority.PreemptionPolicy != nil {
		t.Errorf("the priority is %+v", b.priority)
	}
}

// TestReplica checks where a replica can run, that it can reach only the API server, that it stops
// in time, and that it has resources.
func TestReplica(t *testing.T) { checkReplica(t) }

func checkReplica(t testing.TB) {
	t.Helper()
	b := load(t)
	pod := b.deployment.Spec.Template.Spec
	c := pod.Containers[0]
	// Without a token it cannot follow namespaces and is never ready. No other pod of this ServiceAccount gets one.
	wantSame(t, "automountServiceAccountToken of the pod", pod.AutomountServiceAccountToken, new(true))
	wantSame(t, "automountServiceAccountToken of the ServiceAccount", b.serviceAccount.AutomountServiceAccountToken, new(false))
	// A variable for each Service of the namespace: PILLION_PORT would be one, and taken for a flag.
	wantSame(t, "enableServiceLinks", pod.EnableServiceLinks, new(false))
	wantSame(t, "nodeSelector", pod.NodeSelector, map[string]string{corev1.LabelOSStable: "linux"})
	wantSame(t, "preStop", c.Lifecycle, &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}})
	wantSame(t, "terminationGracePeriodSeconds", pod.TerminationGracePeriodSeconds, new(int64(30)))
	wantSame(t, "resources", c.Resources, corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
	})
	wantSame(t, "runAs", []*int64{pod.SecurityContext.RunAsUser, pod.SecurityContext.RunAsGroup}, []*int64{new(int64(65532)), new(int64(65532))})
	// A replica has 30 s to start. It is restarted after 30 s without an answer, and gets no requests after 4 s.
	for what, p := range map[string]struct {
		probe                    *corev1.Probe
		periodSeconds, threshold int32
	}{"startup": {c.StartupProbe, 1, 30}, "liveness": {c.LivenessProbe, 10, 3}, "readiness": {c.ReadinessProbe, 2, 2}} {
		wantSame(t, what, []int32{p.probe.PeriodSeconds, p.probe.FailureThreshold}, []int32{p.periodSeconds, p.threshold})
	}
	wantSame(t, "terminationGracePeriodSeconds of a replica that hangs", c.LivenessProbe.TerminationGracePeriodSeconds, new(int64(1)))
	if c.Name != manifests.Name || b.deployment.Namespace != manifests.Namespace {
		t.Errorf("the container is %s", c.Name)
	}
}

func wantSame(t testing.TB, what string, got, want any) {
	t.Helper()
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// TestAutoscaler checks that there are never fewer replicas than without the autoscaler.
func TestAutoscaler(t *testing.T) {
	var hpa autoscalingv2.HorizontalPodAutoscaler
	decodeAll(t, "components/hpa/horizontalpodautoscaler.yaml", &hpa)
	checkAutoscaler(t, &hpa)
	noSurvivors(t, &hpa, checkAutoscaler)
}

func checkAutoscaler(t testing.TB, hpa *autoscalingv2.HorizontalPodAutoscaler) {
	t.Helper()
	wantSame(t, "metadata", hpa.ObjectMeta, metav1.ObjectMeta{Name: manifests.Name, Namespace: manifests.Namespace, Labels: ownLabels()})
	policy := func(kind autoscalingv2.HPAScalingPolicyType, value, seconds int32) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: kind, Value: value, PeriodSeconds: seconds}
	}
	wantSame(t, "spec", hpa.Spec, autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: manifests.Name},
		MinReplicas:    new(int32(2)), MaxReplicas: 10,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse("500m"))},
		}}},
		Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: &autoscalingv2.HPAScalingRules{
				StabilizationWindowSeconds: new(int32(0)), SelectPolicy: new(autoscalingv2.MaxChangePolicySelect),
				Policies: []autoscalingv2.HPAScalingPolicy{policy(autoscalingv2.PercentScalingPolicy, 100, 15), policy(autoscalingv2.PodsScalingPolicy, 2, 15)},
			},
			ScaleDown: &autoscalingv2.HPAScalingRules{
				StabilizationWindowSeconds: new(int32(300)), Policies: []autoscalingv2.HPAScalingPolicy{policy(autoscalingv2.PodsScalingPolicy, 1, 60)},
			},
		},
	})
}
