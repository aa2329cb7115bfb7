// SPDX-License-Identifier: Apache-2.0

package exposure

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates"
)

// enclosingObject returns the path of the container, the volume or the entry that a path is in.
func enclosingObject(path string) string { return path[:strings.LastIndex(path, "]")+1] }

// isAboutUser reports whether a path is that of a container's user.
func isAboutUser(path string) bool {
	return strings.HasSuffix(path, ".runAsUser") || strings.HasSuffix(path, ".runAsNonRoot")
}

// IsCoupled reports whether the value of one way may be invalid only because of the value of the other way: the API server or the
// kubelet rejects both together. It may be if both are in the same container or volume. In a security context, runAsUser and runAsNonRoot are coupled only with
// each other.
func (w *Way) IsCoupled(other *Way) bool {
	rest, same := strings.CutPrefix(other.Path, enclosingObject(w.Path))
	return same && enclosingObject(other.Path) == enclosingObject(w.Path) &&
		(isAboutUser(w.Path) == isAboutUser(other.Path) || !strings.Contains(rest, "securityContext."))
}

// IsInvalid reports whether the value of a way makes each pod invalid: beside it, the template has a value that excludes it, and no
// other way changes that value. Pillion never injects such a pod, so the way is harmless.
func (w *Way) IsInvalid(all []Way) bool {
	mayChange := func(field string) bool {
		for i := range all {
			rest, same := strings.CutPrefix(all[i].Path, enclosingObject(w.Path))
			if same && (rest == ".securityContext" || rest == ".securityContext."+field) && all[i].Path != w.Path {
				return true
			}
		}
		return false
	}
	field := w.Path[strings.LastIndex(w.Path, ".")+1:]
	for _, list := range [][]corev1.Container{w.Pod.Spec.Containers, w.Pod.Spec.InitContainers} {
		for i := range list {
			s := list[i].SecurityContext
			switch {
			case s == nil:
			case field == "privileged" && isFalse(s.AllowPrivilegeEscalation) && isTrue(s.Privileged) && !mayChange("allowPrivilegeEscalation"):
				return true
			case field == "runAsUser" && isTrue(s.RunAsNonRoot) && s.RunAsUser != nil && *s.RunAsUser == 0 && !mayChange("runAsNonRoot"):
				return true
			}
		}
	}
	return false
}

func isTrue(b *bool) bool { return b != nil && *b }

func isFalse(b *bool) bool { return b != nil && !*b }

// AllSettings returns the combinations of settings of some parameters that can lead to a violation, those that change the fewest
// parameters first. If a parameter has few values, all of them count. If it has too many, only the values that lead to one of the ways
// count. These are enough if each field that depends on the parameter has exactly its value. AllSettings returns false if they may not be
// enough, or if there are more than most combinations.
func AllSettings(t *templates.Template, names []string, ways []Way, most int) (all []sample.Settings, complete bool) {
	domains := map[string]domain{}
	for i := range t.Spec.Params {
		p := &t.Spec.Params[i]
		domains[p.Name] = domainOf(t, p)
	}
	for _, name := range names {
		if !domains[name].finite {
			domains[name] = domainFromWays(ways, name)
		}
	}
	complete = eachSetting(domains, names, most, func(settings sample.Settings) { all = append(all, settings) })
	return all, complete
}

// domainFromWays returns the settings of a parameter that lead to ways. If a way depends on the parameter and has no setting of it, its
// value is computed from the parameter's, so other settings may lead to it, too. Then the domain is not finite.
func domainFromWays(ways []Way, name string) domain {
	d := domain{finite: true}
	for i := range ways {
		if !slices.Contains(ways[i].Params, name) {
			continue
		}
		setting, ok := ways[i].Settings[name]
		if !ok {
			return domain{}
		}
		if !slices.Contains(d.settings, setting) {
			d.settings = append(d.settings, setting)
		}
	}
	return d
}
