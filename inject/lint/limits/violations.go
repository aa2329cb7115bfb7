// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// violation is what one check says about a pod.
type violation struct {
	level  psa.Level // that the pod then conforms to: baseline, or privileged
	reason string
	detail string
}

// findViolations returns what the checks say about what templates have added to a pod. It ignores the pod's own volumes and host
// namespaces.
func (e *Evaluator) findViolations(pod, before *corev1.Pod) (all []violation) {
	pod = pod.DeepCopy()
	pod.Spec.HostNetwork, pod.Spec.HostPID, pod.Spec.HostIPC = false, false, false
	own := map[string]bool{}
	for i := range before.Spec.Volumes {
		own[before.Spec.Volumes[i].Name] = true
	}
	pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return own[v.Name] })
	for _, level := range []psa.Level{psa.LevelBaseline, psa.LevelRestricted} {
		result := policy.AggregateCheckResults(e.EvaluatePod(psa.LevelVersion{Level: level, Version: psa.LatestVersion()}, &pod.ObjectMeta, &pod.Spec))
		for i, reason := range result.ForbiddenReasons {
			v := violation{psa.LevelPrivileged, reason, result.ForbiddenDetails[i]}
			if level == psa.LevelRestricted {
				v.level = psa.LevelBaseline
			}
			if !slices.ContainsFunc(all, func(had violation) bool { return had.reason == reason && had.detail == v.detail }) {
				all = append(all, v)
			}
		}
	}
	return all
}

// worstLevel returns the level of a pod with violations.
func worstLevel(all []violation) psa.Level {
	worst := psa.LevelRestricted
	for _, v := range all {
		worst = weakerLevel(worst, v.level)
	}
	return worst
}

// weakerLevel returns the weaker one of two levels.
func weakerLevel(a, b psa.Level) psa.Level {
	if psa.CompareLevels(a, b) < 0 {
		return a
	}
	return b
}

func (v violation) why() string {
	next := psa.LevelRestricted
	if v.level == psa.LevelPrivileged {
		next = psa.LevelBaseline
	}
	if v.detail == "" {
		return fmt.Sprintf("not %s: %s", next, v.reason)
	}
	return fmt.Sprintf("not %s: %s (%s)", next, v.reason, v.detail)
}

// isNew reports whether there is no such violation among others. A violation of the level restricted is the same if its reason is: the
// level of the pod is the same. Otherwise, it must also be about the same names and values.
func (v violation) isNew(others []violation) bool {
	return !slices.ContainsFunc(others, func(o violation) bool {
		return o.reason == v.reason && (v.level == psa.LevelBaseline || !slices.ContainsFunc(quotedIn(v.detail), func(word string) bool { return !strings.Contains(o.detail, word) }))
	})
}

// quotedIn returns the words in quotes of a violation's detail: names and values.
func quotedIn(detail string) []string { return quoted().FindAllString(detail, -1) }

var quoted = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"[^"]*"`) })
