// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"maps"
	"slices"

	"github.com/pillion-dev/pillion/inject/lint/exposure"
	"github.com/pillion-dev/pillion/inject/lint/sample"
)

// tryInjection injects a pod with settings. It returns the violation if the pod has it.
func (a *attempt) tryInjection(settings sample.Settings, want *ways) (violation, bool) {
	to, ok := sample.SetParams(a.template, a.from, settings)
	if !ok {
		return want.violation, false
	}
	if a.left--; a.left < 0 {
		return want.violation, false
	}
	r := a.now.injectAgain(to)
	if !r.Decisions[0].Code.Succeeded() {
		return want.violation, false
	}
	for _, v := range a.findViolations(r.pod, a.before) {
		if v.reason == want.reason && v.level == want.level && v.isNew(a.known) && v.isAbout(want.names) {
			return v, true
		}
	}
	return want.violation, false
}

// findSettings looks for values that lead to a violation. It returns false if there are none.
func (a *attempt) findSettings(of *ways, others []exposure.Way) (Allowed, bool) {
	for _, way := range of.all {
		if len(way.Settings) == 0 {
			continue
		}
		if v, ok := a.tryInjection(way.Settings, of); ok {
			return a.describeViolation(v, way, a.minimizeSettings(way.Settings, v, of)), true
		}
	}
	if a.effort == searching {
		if allowed, ok := a.searchSettings(of, others); ok {
			return allowed, true
		}
	}
	of.all = slices.DeleteFunc(of.all, func(way *exposure.Way) bool { return way.IsInvalid(others) })
	if len(of.all) == 0 || a.effort == certain || a.excludesViolation(of, others) {
		return Allowed{}, false
	}
	allowed := a.describeViolation(of.violation, of.all[0], nil)
	allowed.Uncertain = true
	return allowed, true
}

// searchSettings looks for values that lead to a violation together, and for values that the expressions suggest.
func (a *attempt) searchSettings(of *ways, others []exposure.Way) (Allowed, bool) {
	const reserve = maxTries / 4 // for other violations
	for _, way := range of.all[:min(len(of.all), 3)] {
		for i := range others { // another value may be needed, so that the pod is valid
			both, ok := way.Settings.Merge(others[i].Settings)
			if !ok || len(way.Settings) == 0 || len(both) == len(way.Settings) || a.left < reserve {
				continue
			}
			if v, ok := a.tryInjection(both, of); ok {
				return a.describeViolation(v, way, a.minimizeSettings(both, v, of)), true
			}
		}
	}
	for _, settings := range exposure.CandidateSettings(a.template, of.all[0].Params, min(maxCandidates, a.left-reserve)) {
		if v, ok := a.tryInjection(settings, of); ok {
			return a.describeViolation(v, of.all[0], a.minimizeSettings(settings, v, of)), true
		}
	}
	return Allowed{}, false
}

// excludesViolation tries all values of all parameters that can decide about a violation. It returns true if it could try them all,
// and none leads to the violation: a pod with these values would be invalid, so it does not get the template.
func (a *attempt) excludesViolation(of *ways, others []exposure.Way) bool {
	var coupled []exposure.Way
	var names []string
	for i := range others {
		if of.all[0].IsCoupled(&others[i]) {
			coupled, names = append(coupled, others[i]), append(names, others[i].Params...)
		}
	}
	slices.Sort(names)
	all, ok := exposure.AllSettings(a.template, slices.Compact(names), coupled, min(256, a.left))
	return ok && len(coupled) > 0 && !slices.ContainsFunc(all, func(settings sample.Settings) bool {
		_, violates := a.tryInjection(settings, of)
		return violates
	})
}

// minimizeSettings leaves out settings without which the violation is the same.
func (a *attempt) minimizeSettings(settings sample.Settings, want violation, of *ways) sample.Settings {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fewer := maps.Clone(settings)
		delete(fewer, name)
		if v, ok := a.tryInjection(fewer, of); ok && v.detail == want.detail {
			settings = fewer
		}
	}
	return settings
}

// describeViolation returns a violation with the parameters that allow it.
func (a *attempt) describeViolation(v violation, way *exposure.Way, settings sample.Settings) Allowed {
	all := Allowed{PodSecurity: v.level, Why: v.why(), Path: way.Path, Params: []ParamValue{}}
	names := slices.Sorted(maps.Keys(settings))
	if settings == nil {
		names = way.Params
	}
	for _, name := range names {
		all.Params = append(all.Params, newParamValue(a.template, name, settings[name]))
	}
	return all
}

// maxCandidates limits how many values lint tries for one violation if it is not known which lead to it.
const maxCandidates = 40
