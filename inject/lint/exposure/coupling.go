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

// IsCoupled reports whether the API server or the kubelet may reject the value of one way because of the value of the other one: they
// are in the same container or volume. The user of a container is coupled only with runAsNonRoot.
func (w *Way) IsCoupled(other *Way) bool {
	rest, same := strings.CutPrefix(other.Path, enclosingObject(w.Path))
	return same && enclosingObject(other.Path) == enclosingObject(w.Path) &&
		(isAboutUser(w.Path) == isAboutUser(other.Path) || !strings.Contains(rest, "securityContext."))
}

// IsInvalid reports whether no pod with the value of the way is valid, whatever else parameters do: the template itself has a value
// beside it that forbids it. Pillion then skips the template.
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

// AllSettings returns all settings of some parameters of a template that matter, those that change fewest of them first. Of a parameter
// with too many values, these are the ones that lead to the ways: if all that depends on it has exactly its value, no other one can lead
// to a violation. AllSettings returns false if that is not so, or if there are more than most.
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

// domainFromWays returns the settings of a parameter that lead to ways. It is not finite if a way depends on the parameter by more than its
// value.
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
