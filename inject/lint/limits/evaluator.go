// SPDX-License-Identifier: Apache-2.0

// Package limits checks pods against the limits of their namespace. It computes the Pod Security
// level of a pod, its quality of service class, and whether LimitRanges and quotas allow it.
//
// The arithmetic of LimitRanges and quotas (limits.go, quota.go) is that of the API server's
// plugins. A server-side dry run cannot replace it: the webhook /advise must not call the API
// server, status checks whether several new pods fit at once, and many users of explain are not
// allowed to create pods.
package limits

import (
	"fmt"
	"regexp"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// Evaluator evaluates the Pod Security Standards of the Kubernetes version that
// this build knows.
type Evaluator struct{ policy.Evaluator }

// NewEvaluator returns an Evaluator.
func NewEvaluator() (*Evaluator, error) {
	e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	return &Evaluator{e}, err
}

// isAbsurd reports whether a pod has a quantity whose exponent is so large that parsing or comparing it takes hours.
func isAbsurd(pod []byte) bool { return absurd().Match(pod) }

var absurd = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`[:,\[]\s*"?[\s\pZ\x{85}]*[-+]?(?:[0-9.]+[eE][-+]?[0-9]{4,}|[0-9.]{100,}[^",}\]]*?)[\s\pZ\x{85}]*"?\s*[,}\]]`)
})

// Level returns the strictest Pod Security level that a pod conforms to, and why it does not
// conform to the next one, or "" for restricted.
func (e *Evaluator) Level(pod *corev1.Pod) (level psa.Level, why string) {
	for _, level := range []psa.Level{psa.LevelRestricted, psa.LevelBaseline} {
		found := e.levelViolation(psa.LevelVersion{Level: level, Version: psa.LatestVersion()}, pod)
		if found == "" {
			return level, why
		}
		why = fmt.Sprintf("not %s: %s", level, found)
	}
	return psa.LevelPrivileged, why
}

// Violation returns how a pod violates the level that the labels of its namespace enforce, or
// "" if it does not. The API server's own defaults and exemptions are unknown.
func (e *Evaluator) Violation(namespace map[string]string, pod *corev1.Pod) string {
	free := psa.LevelVersion{Level: psa.LevelPrivileged, Version: psa.LatestVersion()}
	all, errs := psa.PolicyToEvaluate(namespace, psa.Policy{Enforce: free, Audit: free, Warn: free})
	if len(errs) > 0 || all.Enforce.Level == psa.LevelPrivileged {
		return ""
	}
	if found := e.levelViolation(all.Enforce, pod); found != "" {
		return fmt.Sprintf("the namespace enforces the Pod Security level %s: %s", all.Enforce.Level, found)
	}
	return ""
}

func (e *Evaluator) levelViolation(level psa.LevelVersion, pod *corev1.Pod) string {
	result := policy.AggregateCheckResults(e.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
	if result.Allowed {
		return ""
	}
	return result.ForbiddenDetail()
}

// QoS returns a pod's quality of service class, computed as in the API server (ComputePodQOS
// in k8s.io/kubernetes/pkg/apis/core/v1/helper/qos): from the pod's own resources if it has
// some, else from all containers and init containers.
func QoS(pod *corev1.Pod) corev1.PodQOSClass {
	var all []corev1.ResourceRequirements
	if r := pod.Spec.Resources; r != nil {
		all = append(all, *r)
	} else {
		for i := range pod.Spec.Containers {
			all = append(all, pod.Spec.Containers[i].Resources)
		}
		for i := range pod.Spec.InitContainers {
			all = append(all, pod.Spec.InitContainers[i].Resources)
		}
	}
	any, guaranteed := false, true
	for i := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := all[i].Requests[name], all[i].Limits[name]
			any = any || request.Sign() > 0 || limit.Sign() > 0
			guaranteed = guaranteed && limit.Sign() > 0 && (request.IsZero() || request.Cmp(limit) == 0)
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// qosWhy returns why an injected pod is not in its old class any more: what its first container
// has that no pod of this class may have.
func qosWhy(pod *corev1.Pod, old corev1.PodQOSClass) string {
	for _, c := range containersOf(pod) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			switch guaranteed := old == corev1.PodQOSGuaranteed; {
			case guaranteed && limit.IsZero():
				return fmt.Sprintf("the container %s has no %s limit", c.Name, name)
			case guaranteed && !request.IsZero() && request.Cmp(limit) != 0:
				return fmt.Sprintf("the container %s requests %s %s, and its limit is %s", c.Name, &request, name, &limit)
			case !guaranteed && !request.IsZero():
				return fmt.Sprintf("the container %s has a %s request", c.Name, name)
			case !guaranteed && !limit.IsZero():
				return fmt.Sprintf("the container %s has a %s limit", c.Name, name)
			}
		}
	}
	return "the pod's own resources change"
}

func mustQuantity(text string) resource.Quantity { return resource.MustParse(text) }
