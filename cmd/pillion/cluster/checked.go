// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pillion-dev/pillion/cmd/pillion/check"
	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Checking configures what the checks read.
type Checking struct {
	Commands  check.Commands
	Namespace string   // for the dry-run pod; "": the first one that opted in
	Endpoints []string // to connect to; none: those of the Service
	Overlay   string   // for the checks before the installation
	Now       time.Time
}

// checking collects the facts after the installation.
type checking struct {
	*podLister
	Checking
	*check.Facts
}

// Checked reads what the checks after the installation need. If that takes long, it writes its
// progress to stderr.
func (c *Client) Checked(ctx context.Context, how Checking, stderr io.Writer) (*check.Facts, error) {
	k := &checking{&podLister{c, cli.NewProgress(stderr)}, how, &check.Facts{Commands: how.Commands, Namespace: c.system}}
	err := inSteps(ctx, k.progress, []step{
		{"the version", k.version},
		{"webhooks and certificate", k.chain},
		{"Deployments", k.deployments},
		{"kinds of templates", k.kinds},
		{"rights", k.rights},
		{"replicas", k.agreement},
		{"templates and namespaces", k.look},
	})
	return k.Facts, err
}

func (k *checking) version(ctx context.Context) (err error) {
	k.Version, err = k.podLister.version(ctx)
	return err
}

// version returns the version of the API server, or "" if the user is not allowed to read it.
func (c *Client) version(ctx context.Context) (string, error) {
	api, err := c.raw()
	if err != nil {
		return "", err
	}
	text, err := api.Get().AbsPath("/version").Do(ctx).Raw()
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	return v.GitVersion, err
}

func (k *checking) chain(ctx context.Context) error {
	chain, err := k.Client.Chain(ctx, manifests.Name, k.Endpoints, k.Now)
	if err == nil {
		k.Chain = *chain
	}
	return err
}

func (k *checking) deployments(ctx context.Context) (err error) {
	if k.Server, err = k.deployment(ctx, manifests.Name); err != nil {
		return err
	}
	k.Controller, err = k.deployment(ctx, manifests.ControllerName)
	return err
}

// kinds reads the CustomResourceDefinitions.
func (k *checking) kinds(ctx context.Context) error {
	type definition struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	resource := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	for _, name := range []string{v1alpha1.ClusterResource, v1alpha1.NamespacedResource} {
		kind := check.Kind{Name: name + "." + v1alpha1.Group}
		read, err := get[definition](ctx, k.Resource(resource), kind.Name)
		if kind.Found = err == nil; apierrors.IsNotFound(err) {
			err = nil
		}
		if kind.Unknown, err = unknown(err, "get", resource.Resource, ""); err != nil {
			return err
		}
		kind.Established = meta.IsStatusConditionTrue(read.Status.Conditions, "Established")
		for _, c := range read.Status.Conditions {
			if c.Status != metav1.ConditionTrue && slices.Contains([]string{"Established", "NamesAccepted"}, c.Type) {
				kind.Why = c.Message
			}
		}
		k.Kinds = append(k.Kinds, kind)
	}
	return nil
}

func (k *checking) rights(ctx context.Context) (err error) {
	k.Rights, err = k.accountRights(ctx, k.Chain.SelfManaged)
	return err
}

func (k *checking) agreement(ctx context.Context) (err error) {
	k.Replicas, err = k.replicas(ctx)
	return err
}

// look reads templates and namespaces as status does, and then sends a pod.
func (k *checking) look(ctx context.Context) error {
	l, err := k.newLook(ctx, Query{})
	if err != nil {
		return k.without(err)
	}
	wrong := l.unsure
	k.Templates.Valid = len(l.injector.All().Templates)
	for _, problem := range wrong.problems {
		if !slices.Contains(wrong.denied, problem) {
			k.Templates.Problems = append(k.Templates.Problems, withoutFiles(problem))
		}
	}
	k.Templates.Unknown = withoutFiles(strings.Join(wrong.denied, " "))
	if err := k.conditions(ctx); err != nil {
		return err
	}
	chosen, _, err := l.choose(ctx, false)
	if k.Namespaces.Unknown, err = unknown(err, "list", "namespaces", ""); err != nil {
		return err
	}
	for _, ns := range chosen {
		k.Namespaces.OptedIn = append(k.Namespaces.OptedIn, ns.GetName())
	}
	k.Namespaces.Shadow, k.Namespaces.Wrong = l.shadowed, l.wrong
	return k.send(ctx, l, chosen)
}

// without records that the templates cannot be read.
func (k *checking) without(err error) error {
	if _, network := errors.AsType[*url.Error](err); network {
		return err
	}
	if apierrors.IsForbidden(err) {
		k.Templates.Unknown = withoutFiles(cli.OneLine(err))
	} else {
		k.Templates.Problems = []string{withoutFiles(cli.OneLine(err))}
	}
	k.Namespaces.Unknown = "the templates cannot be read"
	return nil
}

// send sends the pod to the namespace that the user named, or else to the first one that opted in.
func (k *checking) send(ctx context.Context, l *look, chosen []*unstructured.Unstructured) (err error) {
	if k.Checking.Namespace != "" {
		ns, err := l.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, k.Checking.Namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("there is no namespace %s", k.Checking.Namespace)
		case apierrors.IsForbidden(err):
			k.Probe = check.Probe{Namespace: k.Checking.Namespace, Unknown: "you are not allowed to get namespaces, so the labels of " + k.Checking.Namespace + " are unknown"}
			return nil
		case err != nil:
			return err
		}
		chosen = []*unstructured.Unstructured{needed(ns)}
	}
	for _, ns := range chosen {
		if known := l.known(ns); known.Deleted || known.Excluded != "" && len(chosen) > 1 {
			continue
		}
		k.Probe, err = l.probe(ctx, ns)
		return err
	}
	return nil
}

// conditions reads the condition Ready of all template objects.
func (k *checking) conditions(ctx context.Context) error {
	for _, resource := range kube.TemplateResources() {
		err := k.pages(ctx, k.Resource(resource), "", func(o *unstructured.Unstructured) error {
			k.Templates.Objects = append(k.Templates.Objects, condition(o))
			return nil
		}, func() { k.Templates.Objects = nil })
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) { // which newLook reports
			return err
		}
	}
	return nil
}

func condition(o *unstructured.Unstructured) check.Template {
	t := check.Template{ID: kube.TemplateID(o)}
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range all {
		fields, ok := item.(map[string]any)
		if !ok || fields["type"] != "Ready" {
			continue
		}
		text := func(key string) string { s, _ := fields[key].(string); return s }
		t.Status, t.Reason, t.Message = text("status"), text("reason"), text("message")
		observed, _ := fields["observedGeneration"].(int64)
		t.Outdated = observed < o.GetGeneration()
	}
	return t
}
