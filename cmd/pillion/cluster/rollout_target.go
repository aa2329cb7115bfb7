// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// Bounds limit a rollout.
type Bounds struct {
	Template string // only changes of the template with this name, or NAMESPACE/NAME; "": of all
	Object   string // only changes of the template in this object, see [kube.TemplateID]; set for the controller
	Revision string // the revision of the template in Object, which the plan needs, see [ErrOtherContent]; "": any, also none
	InPlace  bool   // whether no pod is replaced
	Undo     bool   // whether Revision has failed, so that pods go back to what they had before; otherwise they get the present content
	// Workloads are the only ones that change. None: all.
	Workloads []WorkloadName
}

// WorkloadName is a workload in each of the namespaces of a rollout.
type WorkloadName struct {
	Kind Kind
	Name string
}

// ParseWorkload parses KIND/NAME, for example deployment/web.
func ParseWorkload(text string) (w WorkloadName, err error) {
	kind, name, _ := strings.Cut(text, "/")
	if w.Kind, err = KindOf(kind); err == nil && name == "" {
		err = fmt.Errorf("%q has no name: write KIND/NAME, for example deployment/web", text)
	}
	w.Name = name
	return w, err
}

// includesWorkload reports whether a workload is within the bounds.
func (b Bounds) includesWorkload(o status.Owner) bool {
	return len(b.Workloads) == 0 || slices.ContainsFunc(b.Workloads, func(w WorkloadName) bool { return w.Kind.Kind == o.Kind && w.Name == o.Name })
}

// includesTemplate reports whether changes of a template are within the bounds.
func (b Bounds) includesTemplate(t *templates.Template) bool {
	return (b.Template == "" || b.Template == t.Name || b.Template == t.ID()) && (b.Object == "" || b.Object == t.File)
}

// checkTemplate returns an error if there is no template with the name Template. It does not check Object, because Pillion may not use
// the template of an object.
func (b Bounds) checkTemplate(set *templates.Set) error {
	if b.Template == "" || slices.ContainsFunc(set.Templates, b.includesTemplate) {
		return nil
	}
	var names []string
	for _, t := range set.Templates {
		names = append(names, t.Name, t.ID())
	}
	return cli.UsageError{Err: fmt.Errorf("there is no template %q%s", b.Template, problem.DidYouMean(b.Template, names))}
}

// ErrOtherContent is the error of a plan whose template has another content than the caller knows: the API server has a newer content,
// or still an older one. A caller that went on would report what happens to the pods about a content that they do not get.
var ErrOtherContent = errors.New("the API server has another content of the template")

// findRevision returns the template in Object if it has the revision.
func (b Bounds) findRevision(set *templates.Set) (*templates.Template, error) {
	i := slices.IndexFunc(set.Templates, b.includesTemplate)
	if i < 0 {
		return nil, fmt.Errorf("the template %s is not used, for example because a file has one of its name", b.Object)
	}
	if t := set.Templates[i]; b.Revision == t.Revision {
		return t, nil
	}
	return nil, ErrOtherContent
}

// onlyTemplate returns the name of the only template whose changes pods get, or "" for all. If there is none, ok is false.
func (b Bounds) onlyTemplate(set *templates.Set) (name string, ok bool) {
	if b.Template == "" && b.Object == "" {
		return "", true
	}
	i := slices.IndexFunc(set.Templates, b.includesTemplate)
	if i < 0 {
		return "", false
	}
	return set.Templates[i].Name, true
}

// Targets are the workloads that a rollout updates, and how.
type Targets struct {
	Workloads []*rollout.Workload
	Notes     []string
	Pods      int // all that were inspected

	namespaces map[string]*targetNamespace
}

// targetNamespace is what planning the pods of a namespace needs.
type targetNamespace struct {
	planner *rollout.Planner
	back    *wayBack // if pods go back, or nil
	makers  map[status.Owner]*maker
}

// maker is an object that creates pods.
type maker struct {
	text     []byte        // its JSON
	owner    *status.Owner // that controls it, or nil
	updating bool          // whether it is replacing its pods
	revision string        // of a ReplicaSet: its label pod-template-hash
	number   string        // of a ReplicaSet: its number among those of its Deployment
	// restarted is when an earlier rollout restarted it.
	restarted time.Time
}

// Plan plans a pod of the targets again.
func (t *Targets) Plan(namespace string, pod []byte) (*rollout.Pod, error) {
	listed, err := readListedPod(pod)
	if err != nil {
		return nil, err
	}
	return t.namespaces[namespace].planPod(listed)
}

func (n *targetNamespace) planPod(pod *listedPod) (*rollout.Pod, error) {
	var owner []byte
	if o := metav1.GetControllerOf(&pod.Metadata); o != nil {
		if m := n.makers[status.Owner{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name}]; m != nil {
			owner = m.text
		}
	}
	if n.back != nil {
		return n.planner.PlanBack(pod.text, owner, &n.back.WayBack)
	}
	return n.planner.Plan(pod.text, owner)
}

// targeting is a survey that finds the targets of a rollout.
type targeting struct {
	*survey
	bounds  Bounds
	targets *Targets
	back    *wayBack
	resizes bool
}

// prepareNamespace reads the objects that create pods in a namespace.
func (t *targeting) prepareNamespace(ctx context.Context, ns *unstructured.Unstructured, only string) (*targetNamespace, error) {
	scope := t.namespaceScope(ns)
	n := &targetNamespace{back: t.back, makers: map[status.Owner]*maker{}, planner: &rollout.Planner{
		Injector: t.injector, Namespace: scope.Namespace, Resizes: t.resizes, Only: only, Added: t.bounds.Object != "", Invalid: t.unsure.invalid[ns.GetName()],
		Mutated: t.mutation.Changes(ns.GetLabels()) || len(t.mutation.LastWord(ns.GetLabels())) > 0 || t.mutation.Webhooks == nil,
	}}
	if !t.own.Unknown {
		n.planner.Called = func(pod []byte) bool {
			called, _ := explain.Calls(t.own.Entries, ns.GetLabels(), pod)
			return called
		}
	}
	for _, kind := range Kinds() {
		if kind.Kind == "Pod" || kind.Kind == "PodTemplate" || kind.Kind == "CronJob" {
			continue
		}
		err := t.eachObject(ctx, t.Resource(kind.Resource()).Namespace(ns.GetName()), "", func(object *unstructured.Unstructured) error {
			object.SetGroupVersionKind(kind.GroupVersionKind) // items of a list may lack it
			return n.addMaker(object)
		}, func() {})
		if err != nil {
			return nil, explainForbidden(err, "list", kind.resource, ns.GetName(), "leave out this namespace")
		}
	}
	return n, nil
}

func (n *targetNamespace) addMaker(object *unstructured.Unstructured) error {
	replicas, _, _ := unstructured.NestedInt64(object.Object, "status", "replicas")
	if object.GetKind() == replicaSet.Kind && replicas == 0 {
		return nil // it belongs to an older revision of its Deployment
	}
	restarted := rollout.Restarted(&metav1.ObjectMeta{ManagedFields: object.GetManagedFields()})
	object.SetManagedFields(nil)
	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	m := &maker{text: text, restarted: restarted, revision: object.GetLabels()["pod-template-hash"], number: object.GetAnnotations()["deployment.kubernetes.io/revision"]}
	if o := metav1.GetControllerOf(object); o != nil {
		m.owner = &status.Owner{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name}
	}
	if isRestartable(object.GetKind()) {
		progress, err := rollout.ProgressOf(text)
		if err != nil {
			return err
		}
		m.updating = !progress.Done
	}
	n.makers[status.Owner{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Name: object.GetName()}] = m
	return nil
}
