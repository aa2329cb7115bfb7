// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates"
)

// showWorkload returns what a user who can read no template still sees of a workload, in sentences: which mistakes Pillion's
// controller has reported, and which templates its pods record. What the user is not allowed to read either is left out.
func (i *Installation) showWorkload(ctx context.Context, object *unstructured.Unstructured) []string {
	return slices.Concat(i.showReported(ctx, object), i.showRecorded(ctx, object))
}

// EventDetails begins the end of an Event of Pillion's controller: the command that prints more.
const EventDetails = " Details: pillion explain "

// showReported returns the messages of the controller's Events about an object, the oldest first.
func (i *Installation) showReported(ctx context.Context, object *unstructured.Unstructured) (all []string) {
	options := metav1.ListOptions{Limit: pageSize, FieldSelector: "involvedObject.kind=" + object.GetKind() + ",involvedObject.name=" + object.GetName()}
	list, err := i.Resource(corev1.SchemeGroupVersion.WithResource("events")).Namespace(object.GetNamespace()).List(ctx, options)
	if err != nil {
		return nil
	}
	var events []corev1.Event
	for k := range list.Items {
		e := corev1.Event{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[k].Object, &e); err == nil && e.ReportingController == manifests.ControllerName && e.InvolvedObject.UID == object.GetUID() {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	for k := range events {
		message, _, _ := strings.Cut(events[k].Message, EventDetails) // the command that runs now
		if text := fmt.Sprintf("Pillion's controller reported %s: %s", events[k].Reason, message); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// showRecorded says how many pods of an object record which templates.
func (i *Installation) showRecorded(ctx context.Context, object *unstructured.Unstructured) []string {
	selector := podsOf(object)
	if selector == "" {
		return nil
	}
	pods, by := 0, map[string]int{}
	resource := i.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(object.GetNamespace())
	err := i.eachObject(ctx, resource, selector, func(pod *unstructured.Unstructured) error {
		if pods++; pods > maxRunning {
			return errEnough
		}
		for key := range pod.GetAnnotations() {
			if template, name, ok := templates.SplitAnnotation(key); ok && name == templates.AnnotationInjected {
				by[template]++
			}
		}
		return nil
	}, func() { pods = 0; clear(by) })
	if err != nil && !errors.Is(err, errEnough) || pods == 0 {
		return nil
	}
	if len(by) == 0 {
		return []string{fmt.Sprintf("no injection is recorded in its %s; a pod that is older than the label of its namespace, or than a template, is injected when it is created again", explain.Plural(pods, "pod"))}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s in %d", name, by[name]))
	}
	return []string{fmt.Sprintf("its %s record these templates: %s", explain.Plural(pods, "pod"), strings.Join(parts, ", "))}
}
