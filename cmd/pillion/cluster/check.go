// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	Namespace string   // for the dry-run pod; "": any that opted in, the kubeconfig's first
	Endpoints []string // to connect to (HOST:PORT); none: those of the Service
	Overlay   string   // for the checks before the installation
	Now       time.Time
}

// checking collects the facts after the installation.
type checking struct {
	*podLister
	Checking
	*check.Facts

	survey *survey                      // nil if the templates cannot be read
	chosen []*unstructured.Unstructured // the namespaces that opted in
}

// Checked reads what the checks after the installation need. If that takes long, it writes its
// progress to stderr.
func (c *Client) Checked(ctx context.Context, how Checking, stderr io.Writer) (*check.Facts, error) {
	// The steps report the progress, because they run at the same time.
	k := &checking{podLister: &podLister{c, &cli.Progress{}}, Checking: how, Facts: &check.Facts{Commands: how.Commands, Namespace: c.system}}
	err := runSteps(ctx, cli.NewProgress(stderr), step{"the version", k.readVersion, nil},
		[]step{
			{"webhooks and certificate", k.readChain, func(why string) { k.ChainUnknown = why }},
			{"rights", k.reviewRights, func(why string) { k.Rights.Unknown = why }},
		},
		[]step{
			{"templates", k.checkTemplates, func(why string) { k.Templates.Unknown = why }},
			{"namespaces", k.findOptedIn, func(why string) { k.Namespaces.Unknown = why }},
			{"a pod", k.sendPod, func(why string) { k.Probe.Unknown = why }},
		},
		[]step{{"replicas", k.askReplicas, func(why string) { k.Replicas.Unknown = why }}},
		[]step{
			{"the server", k.readServer, func(why string) { k.Server.Unknown = why }},
			{"the controller", k.readController, func(why string) { k.Controller.Unknown = why }},
			{"kinds of templates", k.readKinds, func(why string) { k.Kinds = []check.Kind{{Unknown: why}} }},
		},
	)
	return k.Facts, err
}

func (k *checking) readVersion(ctx context.Context) (err error) {
	k.Version, err = k.serverVersion(ctx)
	return err
}

// serverVersion returns the version of the API server, or "" if the user is not allowed to read it.
func (c *Client) serverVersion(ctx context.Context) (string, error) {
	api, err := c.restClient()
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

func (k *checking) readChain(ctx context.Context) error {
	chain, err := k.Client.Chain(ctx, manifests.Name, k.Endpoints, k.Now)
	if err == nil {
		k.Chain = *chain
	}
	return err
}

func (k *checking) readServer(ctx context.Context) (err error) {
	k.Server, err = k.readDeployment(ctx, manifests.Name)
	return err
}

func (k *checking) readController(ctx context.Context) (err error) {
	k.Controller, err = k.readDeployment(ctx, manifests.ControllerName)
	return err
}

// readKinds reads the CustomResourceDefinitions. If the user may not read them, it asks the API server which kinds it serves, which every
// user may.
func (k *checking) readKinds(ctx context.Context) error {
	type definition struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	resource := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	for _, name := range []string{v1alpha1.ClusterResource, v1alpha1.NamespacedResource} {
		kind := check.Kind{Name: name + "." + v1alpha1.Group}
		read, err := getObject[definition](ctx, k.Resource(resource), kind.Name)
		if kind.Found = err == nil; apierrors.IsNotFound(err) {
			err = nil
		}
		if kind.Unknown, err = whyForbidden(err, "get", resource.Resource, ""); err != nil {
			return err
		}
		if kind.Unknown != "" {
			if kind.Found, err = k.servesResource(v1alpha1.Group+"/"+v1alpha1.Version, name); err == nil {
				kind.Established, kind.Unknown = kind.Found, ""
			}
		}
		kind.Established = kind.Established || meta.IsStatusConditionTrue(read.Status.Conditions, "Established")
		for _, c := range read.Status.Conditions {
			if c.Status != metav1.ConditionTrue && slices.Contains([]string{"Established", "NamesAccepted"}, c.Type) {
				kind.Why = c.Message
			}
		}
		k.Kinds = append(k.Kinds, kind)
	}
	return nil
}

func (k *checking) reviewRights(ctx context.Context) (err error) {
	k.Rights, err = k.accountRights(ctx, k.Chain.SelfManaged)
	return err
}

func (k *checking) askReplicas(ctx context.Context) (err error) {
	k.Replicas, err = k.readReplicas(ctx)
	return err
}

// errNoTemplates is why nothing is known that depends on the templates.
var errNoTemplates = errors.New("the templates cannot be read")

// checkTemplates reads the templates as status does.
func (k *checking) checkTemplates(ctx context.Context) error {
	s, err := k.newSurvey(ctx, Query{})
	_, network := errors.AsType[*url.Error](err)
	switch {
	case apierrors.IsForbidden(err):
		return errors.New(withoutFiles(cli.OneLine(err)))
	case network, isAnswer(err) && !apierrors.IsNotFound(err), errors.Is(err, context.DeadlineExceeded):
		return err
	case err != nil:
		k.Templates.Problems = []string{withoutFiles(cli.OneLine(err))}
		return nil
	}
	k.survey = s
	wrong := s.unsure
	k.Templates.Valid = len(s.injector.All().Templates)
	for _, problem := range wrong.problems {
		if !slices.Contains(wrong.denied, problem) && problem != wrong.unserved {
			k.Templates.Problems = append(k.Templates.Problems, withoutFiles(problem))
		}
	}
	k.Templates.Unknown = cmp.Or(wrong.unserved, withoutFiles(strings.Join(wrong.denied, " ")))
	if len(wrong.denied) > 0 && wrong.unserved == "" {
		k.Templates.Unknown, _, _ = strings.Cut(k.Templates.Unknown, mayAllow) // the check prints the command by itself
		k.Templates.Allow = k.viewerCommand(ctx)
	}
	k.Templates.Running, k.Templates.Stopped = wrong.running, wrong.stopped
	return k.readConditions(ctx)
}

// findOptedIn finds the namespaces that opted in.
func (k *checking) findOptedIn(ctx context.Context) error {
	if k.survey == nil {
		return errNoTemplates
	}
	chosen, _, err := k.survey.chooseNamespaces(ctx)
	if k.Namespaces.Unknown, err = whyForbidden(err, "list", "namespaces", ""); err != nil {
		return err
	}
	k.chosen = chosen
	for _, ns := range chosen {
		k.Namespaces.OptedIn = append(k.Namespaces.OptedIn, ns.GetName())
	}
	k.Namespaces.Shadow, k.Namespaces.Wrong = k.survey.shadowed, k.survey.wrong
	return nil
}

// sendPod sends the pod to the namespace that the user named. If the user named none, it sends the pod to namespaces that opted in, the
// kubeconfig's first, until one accepts it.
func (k *checking) sendPod(ctx context.Context) error {
	if k.survey == nil {
		return errNoTemplates
	}
	chosen := k.chosen
	if i := slices.IndexFunc(chosen, func(ns *unstructured.Unstructured) bool { return ns.GetName() == k.NamespaceOr("") }); i > 0 {
		chosen = slices.Concat(chosen[i:i+1], chosen[:i], chosen[i+1:])
	}
	if k.Checking.Namespace != "" {
		k.Probe.Namespace = k.Checking.Namespace
		ns, err := k.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, k.Checking.Namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			k.Probe.Missing = true
			return nil
		case apierrors.IsForbidden(err):
			return errors.New("you are not allowed to get namespaces, so the labels of " + k.Checking.Namespace + " are unknown")
		case err != nil:
			return err
		}
		chosen = []*unstructured.Unstructured{withNeededFields(ns)}
	}
	tried := 0
	for _, ns := range chosen {
		if known := k.survey.namespaceFacts(ns); known.Deleted || known.Excluded != "" && len(chosen) > 1 {
			continue
		}
		probe, err := k.survey.probeNamespace(ctx, ns)
		if err != nil {
			k.Probe.Namespace = ns.GetName()
			return err
		}
		if tried++; tried == 1 || probe.Sent() {
			k.Probe = probe
		}
		// A namespace may deny the pod because of a quota or another policy. A few namespaces are enough to learn whether Pillion works.
		if probe.Sent() || tried == mostProbes {
			return nil
		}
	}
	return nil
}

// mostProbes is the maximum number of namespaces to which a pod is sent.
const mostProbes = 5

// readConditions reads the condition Ready of all template objects.
func (k *checking) readConditions(ctx context.Context) error {
	for _, resource := range kube.TemplateResources() {
		err := k.eachObject(ctx, k.Resource(resource), "", func(o *unstructured.Unstructured) error {
			k.Templates.Objects = append(k.Templates.Objects, templateCondition(o))
			return nil
		}, func() { k.Templates.Objects = nil })
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) { // which newLook reports
			return err
		}
	}
	return nil
}

func templateCondition(o *unstructured.Unstructured) check.Template {
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
