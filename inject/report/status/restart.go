// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// A restart must make nothing worse. So the report suggests a restart only if it is known that the new
// pods will be right, see [Count.ConsiderRestart].

// RestartCandidates returns the names of the owners of a kind that kubectl rollout restart supports
// and whose pods are not right.
func (c *Count) RestartCandidates(kind string) []string {
	return c.ownerNames(func(o Owner, g *group) bool { return o.Kind == kind && o.restartArgument() != "" && len(g.reasons) > 0 })
}

// Room returns why the namespace would reject n more copies of a pod, or "" if it would accept
// them.
type Room func(namespace map[string]string, pod []byte, n int) string

// workload has the relevant fields of a Deployment, StatefulSet or DaemonSet.
type workload struct {
	APIVersion, Kind string
	Metadata         struct {
		Name              string
		Generation        int64
		DeletionTimestamp *metav1.Time
	}
	Spec struct {
		Paused         bool
		Template       json.RawMessage
		UpdateStrategy struct {
			Type          string
			RollingUpdate struct{ Partition int }
		}
	}
	Status struct {
		ObservedGeneration                             int64
		Replicas, UpdatedReplicas                      int
		CurrentNumberScheduled, UpdatedNumberScheduled int
	}
}

// rollsOut reports whether some of the pods may be of an older pod template.
func (w *workload) rollsOut() bool {
	s := &w.Status
	return s.ObservedGeneration < w.Metadata.Generation || s.UpdatedReplicas < s.Replicas || s.UpdatedNumberScheduled < s.CurrentNumberScheduled
}

// ConsiderRestart finds out whether to restart an owner. A restart must replace all pods of the
// owner. The API server must accept the new pods, and they must be right.
func (c *Count) ConsiderRestart(object []byte, room Room) error {
	w := &workload{}
	if err := json.Unmarshal(object, w); err != nil {
		return err
	}
	g := c.owners[Owner{w.APIVersion, w.Kind, w.Metadata.Name}]
	if g == nil {
		return nil
	}
	// The pod template decides what new pods will be, see foreseeNewPods. What was found out about existing pods counts, too, only if
	// other webhooks change new pods, and if all existing pods have this pod template.
	g.wrong = g.wrong && c.scope.Mutated && !w.rollsOut()
	g.hold, g.updating = "", w.rollsOut()
	if err := c.planExamples(g, object); err != nil {
		return err
	}
	switch strategy := w.Spec.UpdateStrategy; {
	case w.Metadata.DeletionTimestamp != nil:
		g.hold = "it is being deleted"
	case w.Spec.Paused:
		g.hold = "it is paused"
	case strategy.Type == "OnDelete":
		g.hold = "its updateStrategy OnDelete does not replace its pods"
	case strategy.RollingUpdate.Partition > 0:
		g.hold = fmt.Sprintf("its partition %d does not replace some of its pods", strategy.RollingUpdate.Partition)
	case g.changed && len(c.scope.LastWord) > 0:
		g.hold = "its pods were changed after they were injected, and these may change new pods too: " + strings.Join(c.scope.LastWord, ", ")
	default:
		node, err := new(jsontree.Parser).Parse(string(object), 0)
		if err != nil {
			return err
		}
		n := max(g.pods.Pods, w.Status.Replicas, w.Status.CurrentNumberScheduled) // a selector may have left out some pods
		g.hold, err = c.foreseeNewPods(w.Spec.Template, workloads.Claims(node), workloads.OwnerOf(w.Kind, node), g.pods.Injected > 0, func(pod []byte) string { return room(c.scope.Namespace.Labels, pod, n) })
		return err
	}
	return nil
}

// WhyNotRecreate returns why a new pod in place of an existing one would not be current, or "" if it would be. Owner is the JSON
// of the object that has created the pod, or nil if that is unknown.
func (c *Count) WhyNotRecreate(pod, owner []byte, room Room) (why string, err error) {
	base, claims, why, err := c.newPlanner().Recreate(pod, owner)
	if why != "" || err != nil {
		return why, err
	}
	return c.foreseeNewPods(base, claims, workloads.Owner{}, true, func(pod []byte) string { return room(c.scope.Namespace.Labels, pod, 1) })
}

// foreseeNewPods returns what would be wrong with new pods of a pod template, or "". Injected reports
// whether some of the existing pods are injected, so that new pods without sidecars would be worse.
func (c *Count) foreseeNewPods(template []byte, claims []string, owner workloads.Owner, injected bool, room func(pod []byte) string) (wrong string, err error) {
	req := inject.Request{Operation: "CREATE", Namespace: c.scope.Namespace, Object: template, Claims: claims, Owner: owner, Detail: true}
	notCalled := ""
	req.OptedIn, notCalled = c.callsPillion(template)
	r, err := c.injector.Inject(req)
	if err != nil {
		return "", err
	}
	for i, t := range c.injector.Set().Templates {
		d := &r.Decisions[i]
		switch {
		case injected && (d.Code == inject.CodeNotOptedIn || d.Code == inject.CodeExcludedNamespace):
			return "a new pod would have no sidecars: " + d.Sentence(), nil
		case t.ReadsRequest() && (d.Code.Wanted() || d.Code == inject.CodeConditionFalse):
			return "the template " + d.Template + " depends on the user who creates a pod", nil
		case d.Code.Failed():
			return fmt.Sprintf("a new pod could not get %s: %s", d.Template, d.Sentence()), nil
		case d.Code.Wanted() && notCalled != "":
			return "the API server would not call Pillion for a new pod: " + notCalled, nil
		case d.Code.Wanted() && len(c.scope.LastWord) > 0 && !c.intact[d.Template]:
			return fmt.Sprintf("no pod here shows that %s stays unchanged, although these change pods after the injection: %s", d.Template, strings.Join(c.scope.LastWord, ", ")), nil
		}
	}
	if injected && notCalled != "" {
		return "a new pod would have no sidecars, because the API server would not call Pillion for it: " + notCalled, nil
	}
	req.Object = r.InjectedJSON()
	v, err := inject.NewJudge(c.injector, nil, true).Judge(req)
	if err != nil {
		return "", err
	}
	for i := range v.Judged {
		if f := &v.Judged[i]; v.Denied || f.Code.Failed() || f.Code == inject.CodeMissing || f.Code == inject.CodeAltered || f.Code == inject.CodeNotInjected {
			return "a new pod would not be current: " + f.String(), nil
		}
	}
	states, err := explain.StatesIn(c.injector, inject.Request{Operation: "CREATE", Namespace: c.scope.Namespace, Object: req.Object, OptedIn: req.OptedIn, Owner: owner})
	if err != nil {
		return "", err
	}
	for _, name := range sortedKeys(states) {
		if s := states[name]; s.IsBehind() {
			return fmt.Sprintf("the template %s would be %s in a new pod too, because the pod template was injected when the templates were others: apply the manifest without what was injected (pillion uninject)", name, s), nil
		}
	}
	if why := room(req.Object); why != "" {
		return "new pods would be denied: " + why, nil
	}
	return "", nil
}

// HoldRestarts records why the owners of a kind must not be restarted, or, if kind is "", all owners: it is unknown what their new
// pods would be.
func (c *Count) HoldRestarts(kind, why string) {
	for o, g := range c.owners {
		if kind == "" || o.Kind == kind {
			g.hold = why
		}
	}
}
