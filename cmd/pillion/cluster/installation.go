// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates/request"
)

// Installation is the part of Pillion's installation in a cluster that the user can read. The
// notes list what is missing.
type Installation struct {
	*podLister
	Explaining

	injector   *inject.Injector
	entries    []explain.Entry // Pillion's webhooks
	unknown    bool            // whether the user is not allowed to read the webhooks
	answered   *bool           // whether a server answers the webhooks, or nil if that is unknown
	mutation   *status.Mutation
	notes      []string
	whole      bool // whether all objects of a namespace are explained
	wrong      unsure
	since      time.Time // when the webhooks were installed
	namespaces map[string]*namespace
	owners     map[string]*unstructured.Unstructured
	accounts   request.ServiceAccounts
	resizable  func() bool                     // whether the API server can resize pods; it is asked only once
	resources  func() (meta.RESTMapper, error) // the API server's resources; it is asked only once
}

// Explaining configures how to explain the objects of a cluster.
type Explaining struct {
	Fits     *limits.Evaluator
	Overlay  func(request.Namespace) (request.Namespace, error) // applies the label flags
	Overlaid bool                                               // whether Overlay changes namespaces
	Commands status.Commands
}

func (i *Installation) addNote(text string) {
	if !slices.Contains(i.notes, text) {
		i.notes = append(i.notes, text)
	}
}

// noteUnseen notes that something cannot be read. If the user may read nothing of Pillion, the report says that already, and further
// notes would only hide it.
func (i *Installation) noteUnseen(text string) {
	if !i.wrong.blind {
		i.addNote(text)
	}
}

// Installed reads the webhook configurations, their endpoints, and the templates, unless paths
// name other templates.
func (c *Client) Installed(ctx context.Context, paths []string, how Explaining) (*Installation, error) {
	l := &podLister{c, &cli.Progress{}}
	i := &Installation{podLister: l, Explaining: how, namespaces: map[string]*namespace{}, owners: map[string]*unstructured.Unstructured{}, resizable: sync.OnceValue(c.canResize), resources: sync.OnceValues(c.resourceMapper)}
	var err error
	if i.injector, err = c.newInjector(ctx, paths, i.addNote, &i.wrong); err != nil {
		return nil, err
	}
	for _, problem := range i.wrong.problems {
		i.addNote(problem)
	}
	i.accounts = c.serviceAccounts(ctx, i.addNote)
	i.mutation = l.readMutation(ctx, i.noteUnseen)
	i.ownPolicies(ctx)
	return i, i.readOwnWebhooks(ctx)
}

// readOwnWebhooks reads Pillion's webhook configurations, and checks whether a server answers them.
func (i *Installation) readOwnWebhooks(ctx context.Context) error {
	v1 := admissionregistrationv1.SchemeGroupVersion
	mutating, err := getObject[admissionregistrationv1.MutatingWebhookConfiguration](ctx, i.Resource(v1.WithResource("mutatingwebhookconfigurations")), manifests.Name)
	if err == nil || apierrors.IsNotFound(err) {
		i.entries, i.since = explain.MutatingEntries(mutating), mutating.CreationTimestamp.Time
		switch problem, unsure := i.checkAnswers(ctx, mutating); {
		case problem+unsure != "":
			i.addNote(problem + unsure)
			if problem != "" {
				i.answered = new(false)
			}
		case len(mutating.Webhooks) > 0:
			i.answered = new(true)
		}
		var validating *admissionregistrationv1.ValidatingWebhookConfiguration
		validating, err = getObject[admissionregistrationv1.ValidatingWebhookConfiguration](ctx, i.Resource(v1.WithResource("validatingwebhookconfigurations")), manifests.Name)
		i.entries = append(i.entries, explain.ValidatingEntries(validating)...)
		if missing := notInstalled(i.entries); missing != "" && len(i.entries) > 0 {
			i.addNote(missing)
		}
	}
	switch {
	case apierrors.IsForbidden(err):
		i.unknown = true
		i.noteUnseen("You are not allowed to get mutatingwebhookconfigurations and validatingwebhookconfigurations, so only the labels " + inject.LabelInject + " show whether the API server calls Pillion.")
		return nil
	case apierrors.IsNotFound(err):
		return nil
	}
	return err
}

// ownPolicies notes the policies that pillion policy wrote, because reports do not cover their
// effect.
func (i *Installation) ownPolicies(ctx context.Context) {
	if names := i.mutation.OwnPolicies(); len(names) > 0 {
		i.addNote(fmt.Sprintf("Policies that pillion policy wrote also inject, without the webhook (%s). This report does not show what they add.", strings.Join(names, ", ")))
	}
	validating := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	var names []string
	err := i.eachObject(ctx, i.Resource(validating), status.OwnPolicyLabel, func(p *unstructured.Unstructured) error {
		names = append(names, p.GetName())
		return nil
	}, func() { names = nil })
	if err == nil && len(names) > 0 {
		i.addNote(fmt.Sprintf("Policies that pillion policy wrote also validate pods (%s). This report does not show their results.", strings.Join(names, ", ")))
	}
}

// namespace is what all objects of a namespace have in common.
type namespace struct {
	request.Namespace

	limits  limits.Limits
	unknown string // why some limits are unknown, or ""
	notes   []string
	optedIn time.Time                // when the namespace was labelled
	counts  map[string]*status.Count // the counted pods by selector
	failing map[string]string        // why Jobs of a CronJob cannot create their pods

	// What is shown if no template can be read, see [Installation.showWorkload].
	recorded   map[string][]recordedPod // the counted pods by selector
	reported   map[types.UID][]string   // what the controller has reported about an object, or nil if that was not read
	unreported string                   // what is shown for an object without a report
}

// readNamespace reads a namespace once.
func (i *Installation) readNamespace(ctx context.Context, name string) (*namespace, error) {
	if p := i.namespaces[name]; p != nil {
		return p, nil
	}
	p := &namespace{Namespace: request.Namespace{Name: name}}
	object, err := i.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		p.notes = append(p.notes, "You are not allowed to read the namespace "+name+", so its labels and annotations are unknown. This report assumes that it opted in and sets no parameters.")
	case err != nil:
		return nil, err
	default:
		p.Namespace = request.Namespace{Name: name, Labels: object.GetLabels(), Annotations: object.GetAnnotations(), Known: true}
	}
	if object != nil {
		p.sinceLabelled(object.GetManagedFields())
	}
	p.ServiceAccounts = i.accounts
	if p.Namespace, err = i.Overlay(p.Namespace); err != nil {
		return nil, err
	}
	if p.limits, err = i.readLimits(ctx, name); err != nil {
		p.unknown = fmt.Sprintf("Whether the limits of the namespace %s allow the injected pod is unknown: %s.", name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	for _, m := range i.mutation.Mutators([]map[string]string{p.Labels}) {
		if m.Namespaces > 0 {
			p.notes = append(p.notes, fmt.Sprintf("The %s may change the pod too, %s Pillion: %s.", m.Title(), m.Runs, m.Effect))
		}
	}
	i.namespaces[name] = p
	return p, nil
}

// sinceLabelled sets when the namespace was labelled, if it opted in.
func (p *namespace) sinceLabelled(fields []metav1.ManagedFieldsEntry) {
	if p.Labels[inject.LabelInject] == inject.Enabled {
		p.optedIn = status.OptedIn(fields)
	}
}
