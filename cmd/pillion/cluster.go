// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/manifests"
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
	for flag, complete := range map[string]cobra.CompletionFunc{
		"context": o.completeContexts, "system-namespace": o.completeNamespaces, "namespace": o.completeNamespaces,
	} {
		if f.Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // of a flag that is there
		}
	}
}

// given are those of these flags that were given, as a shell takes them.
func (o *clusterOptions) given(names ...string) (all []string) {
	for _, name := range names {
		if f := o.cmd.Flags().Lookup(name); f != nil && f.Changed {
			all = append(all, "--"+name+" "+quote(f.Value.String()))
		}
	}
	return all
}

// kubectl is the beginning of a command of kubectl's for the same cluster.
func (o *clusterOptions) kubectl() string {
	return strings.Join(append([]string{"kubectl"}, o.given("kubeconfig", "context")...), " ")
}

// quote is an argument as a shell takes it.
func quote(argument string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("-_./:@%+=,", r)
	}
	if argument != "" && !strings.ContainsFunc(argument, func(r rune) bool { return !plain(r) }) {
		return argument
	}
	return "'" + strings.ReplaceAll(argument, "'", `'\''`) + "'"
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
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(o.rules(), &clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) && o.kubeconfig == "" && nowhere(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)) {
		return nil, fmt.Errorf("no cluster is known: $KUBECONFIG names %s, which is not there", os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	}
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
			fmt.Fprintln(o.cmd.ErrOrStderr(), fold(o.cmd.ErrOrStderr(), "pillion: "+text))
		}
		said[text] = true
	}
	return &cluster{client, config, namespace, o.system, warn}, err
}

// nowhere says whether some files are named, and none is there.
func nowhere(list string) bool {
	files := slices.DeleteFunc(filepath.SplitList(list), func(file string) bool { return file == "" })
	return len(files) > 0 && !slices.ContainsFunc(files, func(file string) bool {
		_, err := os.Stat(file)
		return !errors.Is(err, os.ErrNotExist)
	})
}

// noCluster says in plain words what is wrong with a kubeconfig.
func noCluster(err error) error {
	switch {
	case clientcmd.IsEmptyConfig(err): // also where the context names none
		return errors.New("no cluster is known: say --kubeconfig FILE, and --context if the file has no current one")
	}
	for _, jargon := range []string{": couldn't get version/kind", ": no kind "} { // about types of Go
		if text, _, ok := strings.Cut(err.Error(), jargon); ok {
			return fmt.Errorf("the kubeconfig: %s: it holds no kubeconfig", text)
		}
	}
	return fmt.Errorf("the kubeconfig: %s", strings.TrimPrefix(inPlainWords(err), "invalid configuration: "))
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

// get reads an object as its type; an empty one where there is an error.
func get[T any](ctx context.Context, client dynamic.ResourceInterface, name string) (*T, error) {
	typed := new(T)
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed)
	}
	return typed, err
}

// newInjector goes by the templates in the files or by those of the cluster's own pods of Pillion, and
// otherwise as these do, as far as that is known; what is not is noted or in wrong.
func (c *cluster) newInjector(ctx context.Context, paths []string, note func(string), wrong *unsure) (*inject.Injector, error) {
	d, err := c.deployed(ctx, note)
	if err != nil {
		return nil, withoutTemplates(err)
	}
	if d.guessed {
		wrong.doubts = append(wrong.doubts, "The Deployment of Pillion may not be read, so what it goes by is not certain.")
	}
	set, err := d.set(ctx, wrong)
	if len(paths) > 0 {
		theirs, known := set, err == nil && d.found
		if set, err = loadTemplates(paths); known && err == nil && set.Revision != theirs.Revision {
			wrong.doubts = append(wrong.doubts, "The templates of --templates are not those of the cluster, by which new pods are made.")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the templates cannot be used:\n%w", withoutTemplates(err))
	}
	return inject.New(set, d.options.excluded...), nil
}

// unsure is what may be other than the templates that are known say: with problems, or because
// that could not be found out.
type unsure struct{ problems, doubts []string }

func withoutTemplates(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; use --templates PATH to go by templates that you have", err)
	}
	return err
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
	if denied, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsForbidden(err) {
		// An authorizer names no pod; admission does.
		if d := denied.ErrStatus.Details; d != nil && d.Kind == "pods" && d.Name == "" {
			return "", fmt.Errorf("--server needs the right to create pods in the namespace %s, even for a dry run: get it, or say another --namespace", namespace)
		}
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		return err.Error(), nil
	}
	return "", err
}
