// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// quotaBreaches returns the objections of the plugin ResourceQuota to a pod, or to n copies of
// it (k8s.io/kubernetes/pkg/quota/v1/evaluator/core/pods.go).
func quotaBreaches(q *corev1.ResourceQuota, pod *corev1.Pod, n int) []breach {
	if !countsPod(q, pod) {
		return nil
	}
	hard := hardOf(q)
	all := unsetBreaches(q.Name, hard, pod)
	usage := usageOf(pod)
	for _, name := range sortedNames(hard) {
		needs, ok := usage[name]
		if !ok {
			continue
		}
		who := "the pod needs"
		if n > 1 {
			needs.Mul(int64(n))
			who = fmt.Sprintf("%d pods need", n)
		}
		limit := hard[name]
		left := limit.DeepCopy()
		left.Sub(q.Status.Used[name])
		if needs.Cmp(left) <= 0 {
			continue
		}
		if left.Sign() < 0 {
			left = resource.Quantity{}
		}
		all = append(all, breach{
			"ResourceQuota " + q.Name,
			fmt.Sprintf("%s %s of %s, but the quota %s has %s of %s left", who, &needs, name, q.Name, &left, &limit), true,
		})
	}
	return all
}

// countsPod reports whether a quota counts the pod. Quotas with unknown scopes do not count,
// because a sidecar does not change them.
func countsPod(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	scopes := slices.Clone(q.Spec.Scopes)
	if q.Spec.ScopeSelector != nil {
		for _, e := range q.Spec.ScopeSelector.MatchExpressions {
			if e.Operator != corev1.ScopeSelectorOpExists {
				return false
			}
			scopes = append(scopes, e.ScopeName)
		}
	}
	ends := pod.Spec.ActiveDeadlineSeconds != nil
	for _, scope := range scopes {
		var in bool
		switch scope {
		case corev1.ResourceQuotaScopeBestEffort:
			in = QoS(pod) == corev1.PodQOSBestEffort
		case corev1.ResourceQuotaScopeNotBestEffort:
			in = QoS(pod) != corev1.PodQOSBestEffort
		case corev1.ResourceQuotaScopeTerminating:
			in = ends
		case corev1.ResourceQuotaScopeNotTerminating:
			in = !ends
		}
		if !in {
			return false
		}
	}
	return true
}

// unsetBreaches returns the containers that do not set a value that a quota on CPU or memory requires,
// unless the pod has resources of its own (Constraints).
func unsetBreaches(quota string, hard corev1.ResourceList, pod *corev1.Pod) []breach {
	if r := pod.Spec.Resources; r != nil && slices.ContainsFunc(slices.Concat(sortedNames(r.Requests), sortedNames(r.Limits)), isPodLevel) {
		return nil
	}
	var all []breach
	for _, c := range containersOf(pod) {
		for _, name := range sortedNames(hard) {
			list, what := c.Resources.Requests, "request"
			bare, ok := strings.CutPrefix(string(name), "limits.")
			if ok {
				list, what = c.Resources.Limits, "limit"
			}
			bare = strings.TrimPrefix(bare, "requests.")
			if bare != string(corev1.ResourceCPU) && bare != string(corev1.ResourceMemory) {
				continue
			}
			if _, ok := list[corev1.ResourceName(bare)]; !ok {
				all = append(all, breach{
					"ResourceQuota " + quota,
					fmt.Sprintf("the container %s has no %s %s, which the quota %s requires", c.Name, bare, what, quota), false,
				})
			}
		}
	}
	return all
}

// usageOf returns a pod's usage by the resource names of quotas.
func usageOf(pod *corev1.Pod) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	usage := corev1.ResourceList{corev1.ResourcePods: one, "count/pods": one}
	for name, q := range totalResources(pod, requestsOf) {
		usage[corev1.DefaultResourceRequestsPrefix+name] = q
		if isPodLevel(name) || name == corev1.ResourceEphemeralStorage {
			usage[name] = q
		}
	}
	for name, q := range totalResources(pod, limitsOf) {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
			usage["limits."+name] = q
		}
	}
	return usage
}

// hardOf returns the limits of a quota.
func hardOf(q *corev1.ResourceQuota) corev1.ResourceList {
	if len(q.Status.Hard) > 0 {
		return q.Status.Hard
	}
	return q.Spec.Hard // the controller has not counted yet
}
