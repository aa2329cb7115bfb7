// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"

	"github.com/pillion-dev/pillion/inject/lint/exposure"
	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates"
)

const (
	searching effort = iota // also values that the expressions only suggest
	direct                  // values that lead to a field's value by themselves; other violations are uncertain
	certain                 // the same, and nothing that is uncertain is reported
)

// attempt tries values of a template's parameters on one pod.
type attempt struct {
	*Evaluator

	template *templates.Template
	from     sample.Situation
	before   *corev1.Pod
	now      *result // with the current parameters
	known    []violation
	left     int // tries
	effort   effort
}

// effort is how much is tried to find values that lead to a violation.
type effort int

// maxTries limits how many pods lint injects to find out what the parameters of a template allow.
const maxTries = 600

// ways are ways that lead to the same violation and depend on the same parameters.
type ways struct {
	violation

	all   []*exposure.Way
	names []string // of the containers and volumes that the violation is about
}

// namesIn returns the names of containers and volumes of a pod that a violation is about. A name that is not known before the pod
// is has a *.
func (v violation) namesIn(pod *corev1.Pod) (names []string) {
	note := func(name string) {
		if strings.Contains(v.detail, fmt.Sprintf("%q", name)) && !strings.Contains(name, "*") {
			names = append(names, name)
		}
	}
	for _, c := range containersOf(pod) {
		note(c.Name)
	}
	for i := range pod.Spec.Volumes {
		note(pod.Spec.Volumes[i].Name)
	}
	return names
}

// isAbout reports whether a violation is about all of these containers and volumes.
func (v violation) isAbout(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !strings.Contains(v.detail, fmt.Sprintf("%q", name)) })
}

// groupWays returns the ways that lead to violations that the pod does not have with the current parameters.
func (a *attempt) groupWays(found *exposure.Result, base []violation) (groups []*ways) {
	add := func(v violation, way *exposure.Way) {
		same := func(g *ways) bool {
			return g.reason == v.reason && g.level == v.level && slices.Equal(g.all[0].Params, way.Params) && slices.Equal(g.names, v.namesIn(way.Pod))
		}
		if i := slices.IndexFunc(groups, same); i >= 0 {
			groups[i].all = append(groups[i].all, way)
			return
		}
		groups = append(groups, &ways{v, []*exposure.Way{way}, v.namesIn(way.Pod)})
	}
	for _, v := range base {
		if v.isNew(a.known) && !slices.ContainsFunc(a.known, func(k violation) bool { return k.reason == v.reason }) {
			add(v, &exposure.Way{Path: "spec", Params: a.settableParams(), Pod: found.Base})
		}
	}
	violated := make([][]violation, len(found.Ways))
	for i := range found.Ways {
		violated[i] = a.findViolations(found.Ways[i].Pod, a.before)
	}
	for i := range found.Ways {
		way := &found.Ways[i]
		for _, v := range violated[i] {
			if v.isNew(base) && v.isNew(a.known) && !isOfParent(found.Ways, violated, way, v) {
				add(v, way)
			}
		}
	}
	slices.SortStableFunc(groups, func(a, b *ways) int { return psa.CompareLevels(a.level, b.level) })
	return groups
}

// isOfParent reports whether a way has a violation only because a piece around its field exists, so that the piece has it too.
func isOfParent(all []exposure.Way, violated [][]violation, way *exposure.Way, v violation) bool {
	for i := range all {
		if len(all[i].Path) < len(way.Path) && strings.HasPrefix(way.Path, all[i].Path) && slices.Contains(violated[i], v) {
			return true
		}
	}
	return false
}

// settableParams returns the parameters that annotations may set and that an expression reads.
func (a *attempt) settableParams() (names []string) {
	for i := range a.template.Spec.Params {
		if p := &a.template.Spec.Params[i]; sample.IsSettable(p) && a.template.Uses(p.Name) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}
