// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Limits are the LimitRanges and ResourceQuotas of a namespace.
type Limits struct {
	Ranges []*corev1.LimitRange
	Quotas []*corev1.ResourceQuota
}

// Broken returns a sentence for each limit that the pod violates only after an injection. It
// ignores LimitRanges and quotas that deny the original pod too. It first adds the defaults of
// the API server: requests that equal limits (SetDefaults_Pod), and the defaults of
// LimitRanges. The overhead of a RuntimeClass is unknown here.
func (l Limits) Broken(before, after *corev1.Pod) []string {
	denies := map[string]bool{}
	for _, b := range l.findBreaches(before, 1) {
		denies[b.by] = true
	}
	var all []string
	for _, b := range l.findBreaches(after, 1) {
		if !denies[b.by] {
			all = append(all, b.text)
		}
	}
	return all
}

func (l Limits) findBreaches(pod *corev1.Pod, n int) []breach {
	pod = withDefaults(pod)
	var all []breach
	containers := containersOf(pod)
	for _, r := range l.Ranges {
		for _, c := range containers {
			all = append(all, applyDefaults(r, c)...)
		}
	}
	for _, r := range l.Ranges {
		for i := range r.Spec.Limits {
			all = append(all, rangeBreaches(r.Name, &r.Spec.Limits[i], pod)...)
		}
	}
	for _, q := range l.Quotas {
		all = append(all, quotaBreaches(q, pod, n)...)
	}
	return all
}

// applyDefaults applies the defaults of the LimitRange to a container (mergeContainerResources of
// the plugin LimitRanger). A default limit may be less than the container's request, which
// validation rejects.
func applyDefaults(r *corev1.LimitRange, c *corev1.Container) []breach {
	var all []breach
	for i := range r.Spec.Limits {
		item := &r.Spec.Limits[i]
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		for _, name := range sortedNames(item.Default) {
			limit, request := item.Default[name], c.Resources.Requests[name]
			if _, ok := c.Resources.Limits[name]; !ok && request.Cmp(limit) > 0 {
				all = append(all, breach{
					"LimitRange " + r.Name,
					fmt.Sprintf("the container %s requests %s %s, but the LimitRange %s gives it a limit of %s", c.Name, &request, name, r.Name, &limit), false,
				})
			}
		}
		fillMissing(&c.Resources.Limits, item.Default)
		fillMissing(&c.Resources.Requests, item.DefaultRequest)
	}
	return all
}

// subject is the pod or container that a LimitRange limits.
type subject struct {
	name             string // "the pod", or for example "the container web"
	requests, limits corev1.ResourceList
}

func rangeBreaches(name string, item *corev1.LimitRangeItem, pod *corev1.Pod) []breach {
	var subjects []subject
	switch item.Type {
	case corev1.LimitTypeContainer:
		for _, c := range containersOf(pod) {
			subjects = append(subjects, subject{"the container " + c.Name, c.Resources.Requests, c.Resources.Limits})
		}
	case corev1.LimitTypePod:
		subjects = append(subjects, subject{"the pod", totalResources(pod, requestsOf), totalResources(pod, limitsOf)})
	}
	var all []breach
	for _, s := range subjects {
		for _, check := range []struct {
			limit corev1.ResourceList
			says  func(corev1.ResourceName, resource.Quantity) string
		}{{item.Min, s.belowMin}, {item.Max, s.aboveMax}, {item.MaxLimitRequestRatio, s.aboveRatio}} {
			for _, r := range sortedNames(check.limit) {
				if text := check.says(r, check.limit[r]); text != "" {
					all = append(all, breach{"LimitRange " + name, strings.ReplaceAll(text, "{}", "the LimitRange "+name), false})
				}
			}
		}
	}
	return all
}

// belowMin is minConstraint of the plugin LimitRanger; {} is a placeholder for the LimitRange.
func (s subject) belowMin(name corev1.ResourceName, least resource.Quantity) string {
	request, requested := s.requests[name]
	limit, limited := s.limits[name]
	switch {
	case !requested:
		return fmt.Sprintf("%s has no %s request, which {} requires", s.name, name)
	case request.Cmp(least) < 0:
		return fmt.Sprintf("%s requests %s %s, but {} requires at least %s", s.name, &request, name, &least)
	case limited && limit.Cmp(least) < 0:
		return fmt.Sprintf("%s has a %s limit of %s, but {} requires at least %s", s.name, name, &limit, &least)
	}
	return ""
}

// aboveMax is maxConstraint of the plugin LimitRanger.
func (s subject) aboveMax(name corev1.ResourceName, most resource.Quantity) string {
	request := s.requests[name]
	limit, limited := s.limits[name]
	switch {
	case !limited:
		return fmt.Sprintf("%s has no %s limit, which {} requires", s.name, name)
	case limit.Cmp(most) > 0:
		return fmt.Sprintf("%s has a %s limit of %s, but {} allows at most %s", s.name, name, &limit, &most)
	case request.Cmp(most) > 0:
		return fmt.Sprintf("%s requests %s %s, but {} allows at most %s", s.name, &request, name, &most)
	}
	return ""
}

// aboveRatio is limitRequestRatioConstraint of the plugin LimitRanger.
func (s subject) aboveRatio(name corev1.ResourceName, most resource.Quantity) string {
	request, limit := s.requests[name], s.limits[name]
	switch {
	case request.IsZero():
		return fmt.Sprintf("%s has no %s request, which {} requires", s.name, name)
	case limit.IsZero():
		return fmt.Sprintf("%s has no %s limit, which {} requires", s.name, name)
	}
	if ratio := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); ratio > most.AsApproximateFloat64() {
		return fmt.Sprintf("%s has a %s limit of %.3g times its request, but {} allows at most %s times", s.name, name, ratio, &most)
	}
	return ""
}
