// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/explain"
	"github.com/pillion-dev/pillion/inject/fit"
	"github.com/pillion-dev/pillion/inject/survey"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// installation is what of Pillion is installed in a cluster, as far as its user
// may see it; notes say what not.
type installation struct {
	*podLister

	injector *inject.Injector
	entries  []explain.Entry
	unknown  bool // the entries may not be read
	answered *bool
	mutation *survey.Mutation
	notes    []string
	fits     *fit.Evaluator
}

func (i *installation) note(text string) {
	if !slices.Contains(i.notes, text) {
		i.notes = append(i.notes, text)
	}
}

// installed reads the webhook configurations and who answers them, and the
// templates unless paths name others.
func (c *cluster) installed(ctx context.Context, paths []string) (*installation, error) {
	l := &podLister{c, &progress{}}
	i := &installation{podLister: l}
	var wrong unsure
	var err error
	if i.injector, err = c.newInjector(ctx, paths, i.note, &wrong); err != nil {
		return nil, err
	}
	for _, problem := range wrong.problems {
		i.note(problem)
	}
	i.mutation = l.mutation(ctx, i.note)
	i.ownPolicies(ctx)
	return i, i.configurations(ctx)
}

func (i *installation) configurations(ctx context.Context) error {
	v1 := admissionregistrationv1.SchemeGroupVersion
	mutating, err := get[admissionregistrationv1.MutatingWebhookConfiguration](ctx, i.Resource(v1.WithResource("mutatingwebhookconfigurations")), manifests.Name)
	if err == nil || apierrors.IsNotFound(err) {
		i.entries = explain.MutatingEntries(mutating)
		i.answered = i.answers(ctx, mutating)
		var validating *admissionregistrationv1.ValidatingWebhookConfiguration
		validating, err = get[admissionregistrationv1.ValidatingWebhookConfiguration](ctx, i.Resource(v1.WithResource("validatingwebhookconfigurations")), manifests.Name)
		i.entries = append(i.entries, explain.ValidatingEntries(validating)...)
	}
	switch {
	case apierrors.IsForbidden(err):
		i.unknown = true
		i.note("You may not read Pillion's webhook configurations, so whether the API server asks Pillion is told by the labels " + inject.LabelInject + " alone.")
		return nil
	case apierrors.IsNotFound(err):
		return nil
	}
	return err
}

// answers says whether anybody is ready behind the Service that the API server
// calls; nil where that is not known.
func (i *installation) answers(ctx context.Context, c *admissionregistrationv1.MutatingWebhookConfiguration) *bool {
	for k := range c.Webhooks {
		service := c.Webhooks[k].ClientConfig.Service
		if service == nil {
			continue
		}
		ready, err := i.readyEndpoints(ctx, service.Namespace, service.Name)
		switch {
		case err != nil:
			i.note(fmt.Sprintf("Whether anybody answers for Pillion is not known: %s.", whyNot(err, "endpointslices in the namespace "+service.Namespace)))
			return nil
		case ready == 0:
			i.note(nobodyAnswers(service))
		}
		return new(ready > 0)
	}
	return nil
}

// ownPolicies notes the policies that pillion policy wrote: what they do is not told.
func (i *installation) ownPolicies(ctx context.Context) {
	if names := i.mutation.OwnPolicies(); len(names) > 0 {
		i.note(fmt.Sprintf("Policies of Pillion's inject too, without its webhook (%s); what they add is not told here.", strings.Join(names, ", ")))
	}
	validating := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	var names []string
	err := i.pages(ctx, i.Resource(validating), survey.OwnPolicyLabel, func(p *unstructured.Unstructured) error {
		names = append(names, p.GetName())
		return nil
	}, func() { names = nil })
	if err == nil && len(names) > 0 {
		i.note(fmt.Sprintf("Policies of Pillion's judge pods too (%s); what they say is not told here.", strings.Join(names, ", ")))
	}
}

// explain explains one object of the cluster.
func (i *installation) explain(ctx context.Context, kind, namespace, name string) (*explain.Report, error) {
	resource, err := podResource(kind)
	if err != nil {
		return nil, err
	}
	object, err := i.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	ns, err := i.about(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return i.explainObject(ctx, object, ns)
}

func (i *installation) about(ctx context.Context, namespace string) (templates.Namespace, error) {
	object, err := i.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		i.note("You may not read the namespace " + namespace + ", so its labels and annotations are not known: this is told as if it had opted in, and sets no parameter.")
		return templates.Namespace{Name: namespace}, nil
	}
	if err != nil {
		return templates.Namespace{}, err
	}
	return templates.Namespace{Name: namespace, Labels: object.GetLabels(), Annotations: object.GetAnnotations(), Known: true}, nil
}

func (i *installation) explainObject(ctx context.Context, object *unstructured.Unstructured, ns templates.Namespace) (*explain.Report, error) {
	podAt, _ := inject.PodIn(object.GetAPIVersion(), object.GetKind())
	pod, found, err := unstructured.NestedMap(object.Object, podAt...)
	if len(podAt) == 0 {
		pod, found = object.Object, true
	}
	if err != nil || !found {
		return nil, errors.Join(err, errors.New("there is no pod in it"))
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	node, err := nodeOf(object)
	if err != nil {
		return nil, err
	}
	s := explain.Subject{
		Object:   explain.Object{Kind: object.GetKind(), Name: object.GetName(), Namespace: ns.Name, Live: len(podAt) == 0},
		Request:  inject.Request{Operation: "CREATE", Namespace: ns, Object: text, Claims: inject.Claims(node)},
		Answered: i.answered, Notes: slices.Clone(i.notes),
		Misplaced: i.misplaced(ctx, object, node),
		Misfits: func(pod, injected []byte) ([]string, string) {
			limits, err := i.limits(ctx, ns.Name)
			note := ""
			if err != nil {
				note = fmt.Sprintf("Whether the limits of the namespace %s allow the injected pod is not known: %s.", ns.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
			}
			return i.fits.Misfits(ns.Labels, limits, pod, injected), note
		},
	}
	if !i.unknown && ns.Known {
		s.Webhooks = []explain.Webhook{}
		for k := range i.entries {
			s.Webhooks = append(s.Webhooks, i.entries[k].Match(ns.Labels, text))
		}
	}
	for _, m := range i.mutation.Mutators([]map[string]string{ns.Labels}) {
		if m.Namespaces > 0 {
			s.Notes = append(s.Notes, fmt.Sprintf("The %s may change the pod too, %s Pillion: %s.", m.Title(), m.Runs, m.Effect))
		}
	}
	return explain.New(i.injector, s)
}

// misplaced is what the object has in its own metadata and means for its pods', and what
// those have that own it: a ReplicaSet has no metadata that a user wrote.
func (i *installation) misplaced(ctx context.Context, object *unstructured.Unstructured, node *tree.Node) []inject.Finding {
	for range 2 { // a pod's ReplicaSet, and its Deployment
		owner := metav1.GetControllerOf(object)
		if owner == nil {
			break
		}
		resource, err := podResource(owner.Kind)
		if err == nil {
			object, err = i.Resource(resource).Namespace(object.GetNamespace()).Get(ctx, owner.Name, metav1.GetOptions{})
		}
		if err == nil {
			node, err = nodeOf(object)
		}
		if err != nil { // it may be gone, or not to be read
			return nil
		}
	}
	return i.injector.Misplaced(object.GetAPIVersion(), object.GetKind(), node)
}

func nodeOf(object *unstructured.Unstructured) (*tree.Node, error) {
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return new(tree.Parser).Parse(string(text), 0)
}
