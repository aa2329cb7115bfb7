// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"
)

// Problems returns how the template fails for pods that would then be denied. A template with a
// problem must not be used.
func (trial *Trial) Problems() (all []string) {
	for _, fails := range trial.Fails {
		switch {
		case trial.Insists && trial.On == "":
			all = append(all, fails+"; such pods are denied")
		case trial.Insists:
			all = append(all, fails)
		}
	}
	return all
}

// Failing returns how the template fails for pods that then do not get it.
func (trial *Trial) Failing() (all []string) {
	for _, fails := range trial.Fails {
		if !trial.Insists {
			all = append(all, fails+"; such pods do not get the template")
		}
	}
	return all
}

// Level returns the sentence about Pod Security, or about why the template was not tried.
func (trial *Trial) Level() string {
	because := ""
	if trial.Why != "" {
		because = ", " + trial.Why
	}
	switch {
	case trial.PodSecurity == "":
		return "valid, but not tried: " + trial.Why
	case trial.Without == trial.PodSecurity:
		return fmt.Sprintf("Pod Security: %s, with and without it", trial.PodSecurity)
	case trial.Without != "":
		return fmt.Sprintf("Pod Security: %s (without it: %s)%s", trial.PodSecurity, trial.Without, because)
	}
	return fmt.Sprintf("Pod Security: %s%s", trial.PodSecurity, because)
}

// Classes returns the changes of quality of service classes.
func (trial *Trial) Classes() (all []string) {
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		if to := trial.QoS[class]; to != "" {
			all = append(all, fmt.Sprintf("a %s pod becomes %s, because %s", class, to, trial.QoSWhy[class]))
		}
	}
	return all
}

// Wants returns which parameters pods must set, or "".
func (trial *Trial) Wants() string {
	if len(trial.Needs) == 0 {
		return ""
	}
	without := "the pod does not get the template"
	if trial.Denied {
		without = "the pod is denied"
	}
	return fmt.Sprintf("the pod or its namespace must set %s, because there is no default; otherwise %s", strings.Join(trial.Needs, ", "), without)
}

// Conflict returns the conflict with other templates, or "".
func (trial *Trial) Conflict() string {
	if trial.Conflicts == "" {
		return ""
	}
	return "conflict with the other templates: " + trial.Conflicts
}

// Warnings returns what the author of a new template should know about it.
func (trial *Trial) Warnings() []string {
	all := trial.Failing()
	if trial.PodSecurity != psa.LevelRestricted && (trial.PodSecurity != "" || len(trial.Fails) == 0) {
		all = append(all, trial.Level())
	}
	for i := range trial.Allows {
		all = append(all, trial.Allows[i].Sentence())
	}
	all = append(all, trial.Classes()...)
	for _, effect := range trial.Effects {
		all = append(all, "effect: "+effect)
	}
	for _, sentence := range slices.Concat(trial.Choices, trial.ByValue) {
		all = append(all, "hint: "+sentence)
	}
	for _, hint := range trial.Hints {
		all = append(all, "hint: "+hint)
	}
	for _, sentence := range []string{trial.Wants(), trial.Conflict()} {
		if sentence != "" {
			all = append(all, sentence)
		}
	}
	return all
}
