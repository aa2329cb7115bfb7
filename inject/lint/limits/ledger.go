// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/json"
	"fmt"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Replacement is what the limits of a namespace say about a pod that takes the place of another one.
type Replacement struct {
	// By is what rejects the new pod but not the old one: "Pod Security", "LimitRange NAME" or
	// "ResourceQuota NAME". Why is the reason, a sentence. Both are "" if nothing does.
	By, Why string

	growth []growth
}

// growth is what a pod needs of a quota beyond what the old one needs. It may be less than 0.
type growth struct {
	quota *corev1.ResourceQuota
	name  corev1.ResourceName
	more  resource.Quantity
}

// Replace compares two pods, which are JSON. It does not decide whether a quota has enough left, see [Ledger].
func (e *Evaluator) Replace(namespace map[string]string, limits Limits, before, after []byte) (r Replacement) {
	var was, is corev1.Pod
	if isAbsurd(before) || isAbsurd(after) || json.Unmarshal(before, &was) != nil || json.Unmarshal(after, &is) != nil {
		return r
	}
	if why := e.Violation(namespace, &is); why != "" && e.Violation(namespace, &was) == "" {
		return Replacement{By: "Pod Security", Why: why}
	}
	rejected := map[string]bool{}
	for _, b := range limits.findBreaches(&was, 1) {
		rejected[b.by] = rejected[b.by] || !b.now
	}
	for _, b := range limits.findBreaches(&is, 1) {
		if !b.now && !rejected[b.by] {
			return Replacement{By: b.by, Why: b.text}
		}
	}
	r.growth = limits.quotaGrowth(&was, &is)
	return r
}

// SameQoS reports whether two pods, which are JSON, have the same quality of service class.
func (e *Evaluator) SameQoS(a, b []byte) bool {
	var one, other corev1.Pod
	if isAbsurd(a) || isAbsurd(b) || json.Unmarshal(a, &one) != nil || json.Unmarshal(b, &other) != nil {
		return false
	}
	return QoS(withDefaults(&one)) == QoS(withDefaults(&other))
}

// quotaGrowth returns how the usage of quotas changes.
func (l Limits) quotaGrowth(before, after *corev1.Pod) (all []growth) {
	before, after = l.withAllDefaults(before), l.withAllDefaults(after)
	for _, q := range l.Quotas {
		was, is := corev1.ResourceList{}, corev1.ResourceList{}
		if countsPod(q, before) {
			was = usageOf(before)
		}
		if countsPod(q, after) {
			is = usageOf(after)
		}
		for _, name := range sortedNames(hardOf(q)) {
			more := is[name].DeepCopy()
			more.Sub(was[name])
			if !more.IsZero() {
				all = append(all, growth{q, name, more})
			}
		}
	}
	return all
}

// withAllDefaults returns a pod with the defaults of the API server and of LimitRanges.
func (l Limits) withAllDefaults(pod *corev1.Pod) *corev1.Pod {
	pod = withDefaults(pod)
	for _, r := range l.Ranges {
		for _, c := range containersOf(pod) {
			applyDefaults(r, c)
		}
	}
	return pod
}

// Ledger follows what the quotas of a namespace have left while pods are replaced. Its zero value is ready
// to use.
type Ledger struct {
	left map[string]corev1.ResourceList // by quota
}

// Take replaces n pods. It returns how many of the new pods the quotas reject, by which quota, and why.
func (l *Ledger) Take(r Replacement, n int) (rejected int, by, why string) {
	fits := n
	for _, g := range r.growth {
		left := l.leftOf(g.quota)[g.name]
		if k := timesFitting(g.more, left, n); k < fits {
			limit := hardOf(g.quota)[g.name]
			if left.Sign() < 0 {
				left = resource.Quantity{}
			}
			fits, by = k, "ResourceQuota "+g.quota.Name
			why = fmt.Sprintf("each new pod needs %s more of %s, but the quota %s has %s of %s left", &g.more, g.name, g.quota.Name, &left, &limit)
		}
	}
	for _, g := range r.growth {
		of := l.leftOf(g.quota)
		left := of[g.name]
		more := g.more.DeepCopy()
		more.Mul(int64(fits))
		left.Sub(more)
		of[g.name] = left
	}
	return n - fits, by, why
}

// timesFitting returns how many times, at most n, a quantity fits into what is left.
func timesFitting(more, left resource.Quantity, n int) int {
	if more.Sign() <= 0 {
		return n
	}
	return sort.Search(n, func(k int) bool {
		all := more.DeepCopy()
		all.Mul(int64(k) + 1)
		return all.Cmp(left) > 0
	})
}

func (l *Ledger) leftOf(q *corev1.ResourceQuota) corev1.ResourceList {
	if of, ok := l.left[q.Name]; ok {
		return of
	}
	of := corev1.ResourceList{}
	for name, hard := range hardOf(q) {
		left := hard.DeepCopy()
		left.Sub(q.Status.Used[name])
		of[name] = left
	}
	if l.left == nil {
		l.left = map[string]corev1.ResourceList{}
	}
	l.left[q.Name] = of
	return of
}
