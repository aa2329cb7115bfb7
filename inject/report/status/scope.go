// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/templates/request"
)

// Scope is what the pods of a namespace have in common.
type Scope struct {
	explain.Past

	Namespace request.Namespace
	// Entries are the installed webhooks. Unknown is set if they cannot be read.
	Entries []explain.Entry
	Unknown bool
	// Incomplete is set if some templates are unknown, because the ConfigMap with them is
	// invalid.
	Incomplete bool
	// LastWord lists the webhooks and policies that may change pods here after Pillion ([Mutation.LastWord]).
	LastWord []string
	// Mutated is set if other webhooks or policies may change new pods here, before or after Pillion
	// ([Mutation.Changes]).
	Mutated bool
	// Plans is set to find out what a rollout would do with pods. Resizes is set if the API server can resize running
	// pods.
	Plans, Resizes bool
}

// Changed sets LastWord and Mutated.
func (s *Scope) Changed(by *Mutation) {
	s.LastWord = by.LastWord(s.Namespace.Labels)
	if by.Webhooks == nil {
		s.LastWord = []string{"webhooks that you may not list"}
	}
	s.Mutated = by.Changes(s.Namespace.Labels) || len(s.LastWord) > 0
}

// pod has the relevant fields of a pod, apart from those that the engine reads.
type pod struct {
	Metadata struct {
		Name              string
		GenerateName      string
		CreationTimestamp metav1.Time
		DeletionTimestamp *metav1.Time
		Labels            map[string]string
		Annotations       map[string]string
		OwnerReferences   []metav1.OwnerReference
	}
	Status struct{ Phase corev1.PodPhase }
}

// isCounted reports whether the pod is counted. A pod that has ended or is terminating will get no sidecar any more, and mirror pods are
// never injected.
func (p *pod) isCounted() bool {
	_, mirror := p.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirror && p.Metadata.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// owner returns the pod's controller. All pods without a controller have the same owner: a Pod
// without a name.
func (p *pod) owner() Owner {
	if o := controllerOf(p.Metadata.OwnerReferences); o != nil {
		return *o
	}
	return Owner{"v1", "Pod", ""}
}

// callsPillion reports whether the API server would call Pillion for an ordinary pod if the
// namespace had this label, and the reason if not. If the webhooks are unknown, the label
// decides.
func (s *Scope) callsPillion(label string) (called bool, why string) {
	if s.Unknown || !slices.ContainsFunc(s.Entries, func(e explain.Entry) bool { return e.Type == explain.Mutating }) {
		return label == inject.Enabled, "of its labels"
	}
	labels := map[string]string{}
	maps.Copy(labels, s.Namespace.Labels)
	if label != "" {
		labels[inject.LabelInject] = label
	}
	return explain.Calls(s.Entries, labels, []byte(`{"metadata":{},"spec":{}}`))
}

// OptedIn returns when the namespace's label was set, according to its managed fields. The
// real time may be earlier, because the entry has the time of its manager's last change.
func OptedIn(fields []metav1.ManagedFieldsEntry) time.Time {
	for _, entry := range fields {
		var owned struct {
			Metadata struct {
				Labels map[string]json.RawMessage `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || entry.Time == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			continue
		}
		if _, ok := owned.Metadata.Labels["f:"+inject.LabelInject]; ok {
			return entry.Time.Time
		}
	}
	return time.Time{}
}
