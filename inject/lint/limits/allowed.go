// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	psa "k8s.io/pod-security-admission/api"
)

// Allowed is a violation of Pod Security that the values of parameters allow.
type Allowed struct {
	// PodSecurity is the strictest level that the pod conforms to with these values, and Why why it does not conform to the next one.
	PodSecurity psa.Level `json:"podSecurity"`
	Why         string    `json:"why"`
	// Params are the parameters with the values. If no value is known, they are those that the field depends on.
	Params []ParamValue `json:"parameters"`
	// Path is the field in the template.
	Path string `json:"path"`
	// Uncertain means that lint did not find values with which the pod violates it, but cannot exclude that there are some.
	Uncertain bool `json:"uncertain,omitempty"`
}

// isPartOf reports whether another violation is known with the same values, and with a level that is not stricter.
func (a *Allowed) isPartOf(known Allowed) bool {
	return psa.CompareLevels(known.PodSecurity, a.PodSecurity) <= 0 && reflect.DeepEqual(a.Params, known.Params) && !known.Uncertain &&
		(known.PodSecurity != a.PodSecurity || a.Why == known.Why)
}

// joinSameValues makes one of the violations that the same values lead to.
func joinSameValues(all []Allowed) (joined []Allowed) {
	for i := range all {
		a := &all[i]
		same := func(b Allowed) bool {
			return !a.Uncertain && !b.Uncertain && a.PodSecurity == b.PodSecurity && reflect.DeepEqual(a.Params, b.Params)
		}
		of := slices.IndexFunc(joined, same)
		if of < 0 {
			joined = append(joined, *a)
			continue
		}
		if _, why, ok := strings.Cut(a.Why, ": "); ok && !strings.Contains(joined[of].Why, why) {
			joined[of].Why += ", " + why
		}
	}
	return joined
}

// Sentence returns a sentence about what the values of parameters allow.
func (a *Allowed) Sentence() string {
	if a.Uncertain {
		return fmt.Sprintf("Pod Security may be %s, %s: %s depends on %s, and lint could not try all values", a.PodSecurity, a.Why, a.Path, describeParams(a.Params))
	}
	return fmt.Sprintf("with %s, Pod Security is %s, %s", describeParams(a.Params), a.PodSecurity, a.Why)
}
