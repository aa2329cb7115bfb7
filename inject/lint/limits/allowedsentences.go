// SPDX-License-Identifier: Apache-2.0

package limits

import (
	psa "k8s.io/pod-security-admission/api"
)

// Weaker returns why pods with the template do not all conform to a level: one sentence for what the template does by itself, and one
// for each violation that values of parameters allow. A template that could not be tried may violate the level. On a user's pod, it
// counts only if the pod conforms to a stricter level without the template.
func (trial *Trial) Weaker(level psa.Level) (all []string) {
	isWeaker := func(of psa.Level) bool { return psa.CompareLevels(of, level) < 0 }
	switch {
	case trial.On == "" && trial.PodSecurity == "":
		return []string{"it was not tried, so it may violate " + string(level)}
	case trial.PodSecurity == "":
		return nil
	case trial.On != "" && isWeaker(trial.PodSecurity) && trial.Without != trial.PodSecurity, trial.On == "" && isWeaker(trial.added):
		all = append(all, trial.Level())
	}
	for i := range trial.Allows {
		if isWeaker(trial.Allows[i].PodSecurity) {
			all = append(all, trial.Allows[i].Sentence())
		}
	}
	return all
}
