// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// Unexplained reports whether the owner's status does not contain the reason.
func (f *Failing) Unexplained() bool { return f.unexplained != "" }

// Explain sets the reason from the message of an event.
func (f *Failing) Explain(message string) {
	f.Why = f.unexplained + ": " + shortenMessage(aboutCreation.ReplaceAllString(message, ""))
}

// aboutCreation matches the part of a controller's message before the reason.
var aboutCreation = regexp.MustCompile(`^(\(combined from similar events\): )?(Error creating: |[Cc]reate Pod \S+ in StatefulSet \S+ failed error: )?`)

// maker has the relevant fields of an object that creates pods.
type maker struct {
	APIVersion, Kind string
	Metadata         struct {
		Name              string
		Generation        int64
		DeletionTimestamp *metav1.Time
		OwnerReferences   []metav1.OwnerReference
	}
	Spec struct {
		Replicas            *int
		Completions         *int
		Suspend             bool
		PodManagementPolicy string
		Template            json.RawMessage
	}
	Status struct {
		ObservedGeneration                             int64
		Replicas, ReadyReplicas                        int
		DesiredNumberScheduled, CurrentNumberScheduled int
		StartTime                                      *metav1.Time
		Active, Succeeded, Failed, Terminating         int
		UncountedTerminatedPods                        struct{ Succeeded, Failed []string }
		Conditions                                     []metav1.Condition
	}
}

// FindFailing checks an object that creates pods, as JSON. It returns nil if the object can create all of its pods and then finds
// them, or if its pods are not counted. It also returns nil if the object was changed a moment ago, or if its pods are created one
// after another, because some pods may be missing then for good reasons.
func (c *Count) FindFailing(object []byte) (*Failing, error) {
	m := &maker{}
	m.Spec.Template = json.RawMessage(`{}`)
	if err := json.Unmarshal(object, m); err != nil {
		return nil, err
	}
	why, unexplained := m.whyLacksPods()
	if ptr.Deref(m.Spec.Replicas, 1) > 0 && m.Metadata.DeletionTimestamp == nil {
		leaves, err := c.leavesSelector(m, object)
		if err != nil {
			return nil, err
		}
		if leaves != "" { // the cause, even if a quota stops the creation of further pods
			why, unexplained = leaves, ""
		}
	}
	if why == "" || m.Metadata.DeletionTimestamp != nil || !c.concernsPod(m.Spec.Template) {
		return nil, nil
	}
	f := &Failing{Namespace: c.scope.Namespace.Name, Owner: Owner{m.APIVersion, m.Kind, m.Metadata.Name}, Why: why, unexplained: unexplained}
	if o := controllerOf(m.Metadata.OwnerReferences); o != nil {
		f.Owner = *o
	}
	return f, nil
}

// leavesSelector returns why an object does not find the pods that it creates, or "".
func (c *Count) leavesSelector(m *maker, object []byte) (string, error) {
	node, err := new(jsontree.Parser).Parse(string(object), 0)
	if err != nil {
		return "", err
	}
	owner := workloads.OwnerOf(m.Kind, node)
	if owner.Selector == "" {
		return "", nil
	}
	req := inject.Request{Operation: "CREATE", Namespace: c.scope.Namespace, Object: m.Spec.Template, Claims: workloads.Claims(node), Owner: owner}
	if !c.scope.Unknown {
		if req.OptedIn, _ = c.callsPillion(m.Spec.Template); !req.OptedIn {
			return "", nil
		}
	}
	r, err := c.injector.Inject(req)
	if err != nil {
		return "", err
	}
	for i := range r.Decisions {
		if d := &r.Decisions[i]; d.LeavesSelector() {
			return fmt.Sprintf("%s because of the template %s: %s", explain.LosesPods, d.Template, shortenMessage(d.Sentence())), nil
		}
	}
	return "", nil
}

// concernsPod reports whether Pillion is relevant to a pod.
func (c *Count) concernsPod(pod []byte) bool {
	if c.scope.Unknown {
		return c.scope.Namespace.Labels[inject.LabelInject] == inject.Enabled
	}
	return explain.Concerns(c.scope.Entries, c.scope.Namespace.Labels, pod)
}

// whyLacksPods returns why the object cannot create all of its pods, or "". If its status has no reason, unexplained is the
// beginning of a sentence that [Failing.Explain] completes.
func (m *maker) whyLacksPods() (why, unexplained string) {
	for _, condition := range m.Status.Conditions {
		if condition.Type == "ReplicaFailure" && condition.Status == metav1.ConditionTrue && condition.Reason == "FailedCreate" {
			return shortenMessage(condition.Message), ""
		}
	}
	s := &m.Status
	has, want := 0, 0
	switch {
	case s.ObservedGeneration < m.Metadata.Generation && m.Kind != "Job": // a Job has none
	case m.Kind == "StatefulSet" && (s.ReadyReplicas == s.Replicas || m.Spec.PodManagementPolicy == "Parallel"):
		has, want = s.Replicas, ptr.Deref(m.Spec.Replicas, 1)
	case m.Kind == "DaemonSet":
		has, want = s.CurrentNumberScheduled, s.DesiredNumberScheduled
	case m.Kind == "Job" && m.waitsForPods():
		want = 1
	}
	if has >= want {
		return "", ""
	}
	unexplained = fmt.Sprintf("it has %d of %d pods", has, want)
	return unexplained + "; see its events", unexplained
}

// waitsForPods reports whether a Job should have pods and never had one. After a failed pod, a Job
// has none for a while.
func (m *maker) waitsForPods() bool {
	s := &m.Status
	ended := slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
	pods := s.Active + s.Succeeded + s.Failed + s.Terminating + len(s.UncountedTerminatedPods.Succeeded) + len(s.UncountedTerminatedPods.Failed)
	return !ended && !m.Spec.Suspend && s.StartTime != nil && pods == 0 && ptr.Deref(m.Spec.Completions, 1) > 0
}

// shortenMessage limits the length of a message, which any user may have written.
func shortenMessage(message string) string {
	return problem.Cut(strings.Join(strings.Fields(message), " "), 1000)
}

// AddFailing records an owner that cannot create its pods. As long as there is one, the report
// suggests no restart in the namespace, because other new pods may fail too.
func (c *Count) AddFailing(f *Failing) {
	if !slices.ContainsFunc(c.failing, func(k Failing) bool { return k.Owner == f.Owner }) {
		c.failing = append(c.failing, *f)
	}
}

// WhyNoRestarts returns why no owner in the namespace should be restarted: an owner that cannot create its pods. It returns "" if
// there is none.
func (c *Count) WhyNoRestarts() string {
	if len(c.failing) == 0 {
		return ""
	}
	if c.failing[0].losesPods() {
		return c.failing[0].title() + " loses its new pods, so others here may too"
	}
	return "new pods of " + c.failing[0].title() + " cannot be created, so other new pods here may fail too"
}
