// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/manifests"
)

// showWorkload returns what a user who can read no template still sees of a workload, in sentences: which mistakes Pillion's
// controller has reported, and which templates its pods record. What the user is not allowed to read either is left out.
func (i *Installation) showWorkload(ctx context.Context, p *namespace, object *unstructured.Unstructured) []string {
	if p.reported == nil {
		p.reported, p.unreported = i.readReported(ctx, p.Name)
	}
	reported := p.reported[object.GetUID()]
	recorded, some := i.showRecorded(p, object)
	if len(reported) == 0 && len(recorded) > 0 && !some && p.unreported != "" {
		reported = []string{p.unreported}
	}
	return slices.Concat(reported, recorded)
}

// showReported returns what Pillion's controller has reported about an object that is no workload of Kubernetes, for example a pod, and
// about the workload that it belongs to, in sentences.
func (i *Installation) showReported(ctx context.Context, p *namespace, object *unstructured.Unstructured) (all []string) {
	if p.reported == nil {
		p.reported, p.unreported = i.readReported(ctx, p.Name)
	}
	all = append(all, p.reported[object.GetUID()]...)
	for range 2 { // the ReplicaSet of a pod, and its Deployment
		owner := metav1.GetControllerOf(object)
		if owner == nil {
			break
		}
		all = append(all, p.reported[owner.UID]...)
		if object = i.readOwner(ctx, p.Name, owner); object == nil {
			break
		}
	}
	return all
}

// noEvents is what follows if the Events of the controller can be read, and none is about an object.
const noEvents = "there is no Event of Pillion's controller about it: the controller creates one only for a mistake in a new pod, and it is kept for about an hour"

// EventDetails begins the end of an Event of Pillion's controller: the command that prints more.
const EventDetails = " Details: pillion explain "

// readReported returns the messages of the controller's Events in a namespace by the UID of the object, the oldest first, and
// the sentence for objects without one. The sentence is "" if the Events cannot be read.
func (i *Installation) readReported(ctx context.Context, namespace string) (all map[types.UID][]string, none string) {
	all = map[types.UID][]string{}
	options := metav1.ListOptions{Limit: pageSize, FieldSelector: "reportingComponent=" + manifests.ControllerName}
	list, err := i.Resource(corev1.SchemeGroupVersion.WithResource("events")).Namespace(namespace).List(ctx, options)
	if err != nil {
		return all, ""
	}
	var events []corev1.Event
	for k := range list.Items {
		e := corev1.Event{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[k].Object, &e); err == nil {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	for k := range events {
		message, _, _ := strings.Cut(events[k].Message, EventDetails) // without the advice to run explain, which runs now
		about, text := events[k].InvolvedObject.UID, fmt.Sprintf("Pillion's controller reported %s: %s", events[k].Reason, message)
		if !slices.Contains(all[about], text) {
			all[about] = append(all[about], text)
		}
	}
	return all, noEvents
}

// showRecorded returns which templates the counted pods of an object record, and whether there are some.
func (i *Installation) showRecorded(p *namespace, object *unstructured.Unstructured) (sentences []string, some bool) {
	text := podsOf(object)
	selector, err := labels.Parse(text)
	if text == "" || err != nil {
		return nil, false
	}
	pods, older, by := 0, 0, map[string]int{}
	for _, pod := range p.recorded[i.listedBy(text)] {
		if !selector.Matches(pod.labels) {
			continue
		}
		if pods++; pod.created.Before(p.optedIn) {
			older++
		}
		for _, template := range pod.templates {
			by[template]++
		}
	}
	switch {
	case pods == 0:
		return nil, false
	case len(by) > 0:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(by)) {
			parts = append(parts, fmt.Sprintf("%s in %d", name, by[name]))
		}
		return []string{fmt.Sprintf("the records of its %s have these templates: %s", explain.Plural(pods, "pod"), strings.Join(parts, ", "))}, true
	case older > 0:
		return []string{fmt.Sprintf("no injection is recorded in its %s, of which %d existed before the namespace opted in; Pillion sees a pod when it is created", explain.Plural(pods, "pod"), older)}, false
	}
	return []string{fmt.Sprintf("no injection is recorded in its %s; if a template is newer, create them again, because Pillion sees a pod when it is created", explain.Plural(pods, "pod"))}, false
}
