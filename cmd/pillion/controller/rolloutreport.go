// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// wrote is what this replica has last written about the rollout of a template. It counts instead of what is read, which may be older,
// and lacks what could not be saved. So a failure is never forgotten because the API server or the watch is slow.
type wrote struct {
	uid    types.UID
	at     time.Time
	status v1alpha1.Status // see rolloutStatus
	err    error           // why the API server does not have it
}

// staleFor is how long the status that is read may be older than the one that was written. After that, another client has changed it,
// and it is written again.
const staleFor = 5 * time.Second

// rolloutConditions returns the types of the conditions of a rollout.
func rolloutConditions() []string {
	return []string{v1alpha1.ConditionProgressing, v1alpha1.ConditionDegraded, v1alpha1.ConditionPaused}
}

// isOfRollout reports whether a condition is that of a rollout.
func isOfRollout(c metav1.Condition) bool { return slices.Contains(rolloutConditions(), c.Type) }

// rolloutStatus returns the part of a status that reports about the rollout.
func rolloutStatus(of *v1alpha1.Status) v1alpha1.Status {
	conditions := slices.DeleteFunc(slices.Clone(of.Conditions), func(c metav1.Condition) bool { return !isOfRollout(c) })
	return v1alpha1.Status{Failed: of.Failed, Conditions: conditions}
}

// sameReport reports whether two reports about a rollout are the same, without times, which the API server rounds to seconds.
func sameReport(a, b *v1alpha1.Status) bool {
	timeless := func(of *v1alpha1.Status) (all []metav1.Condition) {
		for _, c := range of.Conditions {
			c.LastTransitionTime = metav1.Time{}
			all = append(all, c)
		}
		slices.SortFunc(all, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
		return all
	}
	return equality.Semantic.DeepEqual(a.Failed, b.Failed) && equality.Semantic.DeepEqual(timeless(a), timeless(b))
}
