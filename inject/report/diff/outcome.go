// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"cmp"
	"strings"

	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// Kind is what happens to a template in a pod.
type Kind string

// The kinds. Before and after are by the set in use and by the other set.
const (
	// Gets means that new pods have the template after, and not before.
	Gets Kind = "gets"
	// Loses means that new pods have the template before, and not after.
	Loses Kind = "loses"
	// Changes means that new pods have another content of the template.
	Changes Kind = "changes"
	// Rejected means that new pods are rejected after, and not before.
	Rejected Kind = "rejected"
	// Accepted means that new pods are rejected before, and not after.
	Accepted Kind = "accepted"
	// Fails means that new pods should get the template and cannot, so that they stay without it.
	Fails Kind = "fails"
)

// Owner is the owner of pods, as users know it.
type Owner struct {
	Namespace  string `json:"namespace"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// String returns the owner as Kind/name.
func (o *Owner) String() string { return o.Kind + "/" + o.Name }

// CompareOwners orders owners by namespace, kind and name.
func CompareOwners(a, b Owner) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name), strings.Compare(a.APIVersion, b.APIVersion))
}

// Effect is what happens to one template in the new pods of an owner.
type Effect struct {
	Template string `json:"template"`
	Effect   Kind   `json:"effect"`
	// Pods is the number of pods.
	Pods int `json:"pods"`
	// How is how running pods get a change: in place, with a resize, or with new pods. If only the recorded revision
	// differs, only the record changes.
	How rollout.How `json:"how,omitempty"`
	// Fields are the fields that change in this way.
	Fields []string `json:"fields,omitempty"`
	// By is what rejects a pod, or has rejected it: Pillion, Pod Security, a LimitRange or a ResourceQuota.
	By string `json:"by,omitempty"`
	// Why is one sentence.
	Why string `json:"why,omitempty"`
}

// Outcome is what changes for the new pods of an owner.
type Outcome struct {
	Owner

	Pods    int      `json:"pods"`
	Effects []Effect `json:"effects"`
	// Diff is the index of the rendered diff, or absent if the pods stay the same.
	Diff *int `json:"diff,omitempty"`

	diff        *Diff
	replacement limits.Replacement
}

// addEffect adds an effect on all pods.
func (o *Outcome) addEffect(e Effect) {
	e.Pods = o.Pods
	o.Effects = append(o.Effects, e)
}

// acceptPods makes the pods accepted because of the templates that the pods get or lose or that change.
func (o *Outcome) acceptPods(by string) {
	for _, e := range o.Effects {
		if e.Effect == Gets || e.Effect == Loses || e.Effect == Changes {
			o.addEffect(Effect{Template: e.Template, Effect: Accepted, By: by})
		}
	}
}

// rejectPods makes n of the pods rejected because of a template. If the template is "", the causes are all templates that the pods get or
// that change. A rejected pod has no other effect.
func (o *Outcome) rejectPods(by, why, template string, n int) {
	names := []string{template}
	var rest []Effect
	for _, e := range o.Effects {
		if e.Effect == Rejected {
			rest = append(rest, e)
			continue
		}
		if template == "" && (e.Effect == Gets || e.Effect == Changes) {
			names = append(names, e.Template)
		}
		if all := e.Pods <= n; !all {
			e.Pods -= n
			rest = append(rest, e)
		}
	}
	if len(names) > 1 {
		names = names[1:]
	}
	for _, name := range names {
		rest = append(rest, Effect{Template: name, Effect: Rejected, Pods: n, By: by, Why: why})
	}
	o.Effects = rest
}
