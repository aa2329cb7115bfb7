// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/explain"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates"
)

// clusterOptions say which cluster a command asks, as kubectl's do.
type clusterOptions struct {
	cmd        *cobra.Command
	kubeconfig string
	context    string
	system     string
}

func (o *clusterOptions) flags(cmd *cobra.Command, namespace *string) {
	o.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "the `FILE` that says how to reach the cluster (default: $KUBECONFIG, or the one in your home)")
	f.StringVar(&o.context, "context", "", "the kubeconfig's `CONTEXT`")
	f.StringVar(&o.system, "system-namespace", manifests.Namespace, "the `NAMESPACE` that Pillion runs in")
	if namespace != nil {
		f.StringVarP(namespace, "namespace", "n", "", "the `NAMESPACE` (default: the kubeconfig's, or default)")
	}
}

// cluster is a cluster as its user sees it.
type cluster struct {
	dynamic.Interface
	config    *rest.Config
	namespace string // the kubeconfig's
	system    string
	warn      func(string) // says each thing once
}

func (o *clusterOptions) connect() (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, noCluster(err)
	}
	config.UserAgent = "pillion/" + buildVersion().Version
	config.WarningHandler = rest.NoWarnings{} // what is said of a dry run is nobody's news
	config.QPS, config.Burst = 50, 100        // as kubectl's; the API server has its own limits
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, noCluster(err)
	}
	client, err := dynamic.NewForConfig(config)
	said := map[string]bool{}
	warn := func(text string) {
		if !said[text] {
			fmt.Fprintln(o.cmd.ErrOrStderr(), "pillion: "+text)
		}
		said[text] = true
	}
	return &cluster{client, config, namespace, o.system, warn}, err
}

// noCluster says in plain words what is wrong with a kubeconfig.
func noCluster(err error) error {
	switch {
	case clientcmd.IsEmptyConfig(err): // also where the context names none
		return errors.New("no cluster is known: say --kubeconfig FILE, and --context if the file has no current one")
	case strings.Contains(err.Error(), "json parse error"): // which goes on about types of Go
		text, _, _ := strings.Cut(err.Error(), ": couldn't get version/kind")
		return fmt.Errorf("the kubeconfig: %s: it holds no kubeconfig", text)
	}
	return fmt.Errorf("the kubeconfig: %s", strings.TrimPrefix(err.Error(), "invalid configuration: "))
}

// noAnswer says in plain words why a cluster does not answer; any other error stays.
func noAnswer(err error) error {
	if call, ok := errors.AsType[*url.Error](err); ok {
		if at, parseErr := url.Parse(call.URL); parseErr == nil {
			return fmt.Errorf("the cluster at %s does not answer: %w", at.Host, call.Err)
		}
	}
	if apierrors.IsUnauthorized(err) {
		return errors.New("the cluster does not take your credentials: sign in again, or see the user in the kubeconfig")
	}
	return err
}

func (c *cluster) namespaceOr(named string) string {
	if named != "" {
		return named
	}
	return c.namespace
}

// The resources that hold pods, by all that people call them.
func podResources() map[schema.GroupVersionResource][]string {
	apps, batch, core := schema.GroupVersion{Group: "apps", Version: "v1"}, schema.GroupVersion{Group: "batch", Version: "v1"}, schema.GroupVersion{Version: "v1"}
	return map[schema.GroupVersionResource][]string{
		core.WithResource("pods"):                   {"pod", "po"},
		core.WithResource("replicationcontrollers"): {"replicationcontroller", "rc"},
		core.WithResource("podtemplates"):           {"podtemplate"},
		apps.WithResource("deployments"):            {"deployment", "deploy"},
		apps.WithResource("replicasets"):            {"replicaset", "rs"},
		apps.WithResource("statefulsets"):           {"statefulset", "sts"},
		apps.WithResource("daemonsets"):             {"daemonset", "ds"},
		batch.WithResource("jobs"):                  {"job"},
		batch.WithResource("cronjobs"):              {"cronjob", "cj"},
	}
}

// podResource is the resource that somebody means by a kind.
func podResource(kind string) (schema.GroupVersionResource, error) {
	bare, _, _ := strings.Cut(strings.ToLower(kind), ".") // deployments.apps
	var known []string
	for resource, names := range podResources() {
		if bare == resource.Resource || slices.Contains(names, bare) {
			return resource, nil
		}
		known = append(known, names[0])
	}
	slices.Sort(known)
	return schema.GroupVersionResource{}, fmt.Errorf("%q holds no pods; say one of %s", kind, strings.Join(known, ", "))
}

// installation is what of Pillion is installed in a cluster.
type installation struct {
	injector *inject.Injector
	entries  []explain.Entry
}

// installed reads the webhook configurations, and the templates unless paths name others.
func (c *cluster) installed(ctx context.Context, paths []string) (*installation, error) {
	injector, err := c.newInjector(ctx, paths, c.warn)
	if err != nil {
		return nil, err
	}
	i := &installation{injector: injector}
	v1 := admissionregistrationv1.SchemeGroupVersion
	mutating, err := get[admissionregistrationv1.MutatingWebhookConfiguration](ctx, c.Resource(v1.WithResource("mutatingwebhookconfigurations")), manifests.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	validating, err := get[admissionregistrationv1.ValidatingWebhookConfiguration](ctx, c.Resource(v1.WithResource("validatingwebhookconfigurations")), manifests.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	i.entries = append(explain.MutatingEntries(mutating), explain.ValidatingEntries(validating)...)
	return i, nil
}

// get reads an object as its type; an empty one where there is an error.
func get[T any](ctx context.Context, client dynamic.ResourceInterface, name string) (*T, error) {
	typed := new(T)
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed)
	}
	return typed, err
}

// newInjector goes by the templates in the files, or as the cluster's own pods of Pillion do,
// as far as that is known; what is not is noted.
func (c *cluster) newInjector(ctx context.Context, paths []string, note func(string)) (*inject.Injector, error) {
	if len(paths) > 0 {
		set, err := loadTemplates(paths)
		if err != nil {
			return nil, fmt.Errorf("the templates cannot be used:\n%w", err)
		}
		return inject.New(set), nil
	}
	d, err := c.deployed(ctx, note)
	if err != nil {
		return nil, withoutTemplates(err)
	}
	set, err := d.set(ctx, note)
	if err != nil {
		return nil, fmt.Errorf("the templates cannot be used:\n%w", withoutTemplates(err))
	}
	return inject.New(set, d.options.excluded...), nil
}

func withoutTemplates(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; say --templates PATH to go by templates that you have", err)
	}
	return err
}

// explain explains one object of the cluster.
func (i *installation) explain(ctx context.Context, c *cluster, kind, namespace, name string) (*explain.Report, error) {
	resource, err := podResource(kind)
	if err != nil {
		return nil, err
	}
	object, err := c.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	ns, err := c.about(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return i.explainObject(object, ns)
}

func (c *cluster) about(ctx context.Context, namespace string) (templates.Namespace, error) {
	object, err := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return templates.Namespace{}, err
	}
	return templates.Namespace{Name: namespace, Labels: object.GetLabels(), Annotations: object.GetAnnotations(), Known: true}, nil
}

func (i *installation) explainObject(object *unstructured.Unstructured, ns templates.Namespace) (*explain.Report, error) {
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
	s := explain.Subject{
		Object:   explain.Object{Kind: object.GetKind(), Name: object.GetName(), Namespace: ns.Name, Live: len(podAt) == 0},
		Request:  inject.Request{Operation: "CREATE", Namespace: ns, Object: text},
		Webhooks: []explain.Webhook{},
	}
	for k := range i.entries {
		s.Webhooks = append(s.Webhooks, i.entries[k].Match(ns.Labels, text))
	}
	return explain.New(i.injector, s)
}

// dryRun has the API server validate a pod: it says why it would not take it.
func (c *cluster) dryRun(ctx context.Context, namespace string, pod []byte) (refused string, err error) {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(pod, &object.Object); err != nil {
		return "", err
	}
	object.SetAPIVersion("v1")
	object.SetKind("Pod")
	object.SetGenerateName("pillion-lint-")
	_, err = c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(namespace).Create(ctx, object,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		return err.Error(), nil
	}
	return "", err
}
