// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/metadata"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// History is a template object with the contents that it has had.
type History struct {
	// ID is how messages name the template.
	ID string
	// Revisions are the contents. The newest one is the first.
	Revisions []*kube.Revision
	// Content is the present content, as [kube.Content] returns it.
	Content []byte
	// Acts reports whether the controller updates running pods after a change, in namespaces with the label.
	Acts bool

	name   types.NamespacedName
	object *unstructured.Unstructured
	kube   *kube.History
	system string // Pillion's namespace
}

// templateResource returns the resource of the template objects of a namespace, or of the cluster.
func templateResource(namespace string) schema.GroupVersionResource {
	return kube.TemplateResources()[min(len(namespace), 1)]
}

// ReadHistory reads a template object and its history.
func (c *Client) ReadHistory(ctx context.Context, name types.NamespacedName) (*History, error) {
	h := &History{name: name}
	var err error
	resource := templateResource(name.Namespace)
	if h.object, err = c.Resource(resource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, c.noTemplateError(ctx, name)
		}
		return nil, NoAnswer(explainForbidden(err, "get", resource.Resource, name.Namespace, "ask an administrator"))
	}
	h.ID = kube.TemplateID(h.object)
	spec, err := json.Marshal(h.object.Object["spec"])
	if err == nil {
		h.Content, err = kube.Content(spec)
	}
	if err != nil {
		return nil, err
	}
	var of struct {
		Rollout v1alpha1.Rollout `json:"rollout"`
	}
	if err := json.Unmarshal(spec, &of); err != nil {
		return nil, err
	}
	h.Acts = of.Rollout.Acts() && !of.Rollout.Paused
	text, err := h.object.MarshalJSON()
	if err == nil {
		h.Revisions, err = kube.Recorded(text)
	}
	if err != nil {
		return nil, err
	}
	client, err := kube.NewRESTClient(c.config)
	if err != nil {
		return nil, err
	}
	h.kube, h.system = kube.NewHistory(client, c.system), c.system
	return h, nil
}

// noTemplateError returns the error about a template object that does not exist.
func (c *Client) noTemplateError(ctx context.Context, name types.NamespacedName) error {
	kind, where := v1alpha1.ClusterKind, ""
	if name.Namespace != "" {
		kind, where = v1alpha1.NamespacedKind, InNamespace(name.Namespace)
	}
	text := fmt.Sprintf("there is no %s %q%s", kind, name.Name, where)
	if names, err := c.namesOf(ctx, templateResource(name.Namespace), name.Namespace); err == nil {
		if hint := problem.DidYouMean(name.Name, names); hint != "" {
			return errors.New(text + hint)
		}
	}
	if name.Namespace == "" {
		return fmt.Errorf("%s; for a %s, name its namespace: NAMESPACE/%s. Templates of files have no history", text, v1alpha1.NamespacedKind, name.Name)
	}
	return fmt.Errorf("%s; for a %s, leave out the namespace", text, v1alpha1.ClusterKind)
}

// Fetch reads the content of a revision, as JSON.
func (h *History) Fetch(ctx context.Context, r *kube.Revision) ([]byte, error) {
	content, err := h.kube.Fetch(ctx, h.name, r)
	return content, NoAnswer(explainForbidden(err, "get", "controllerrevisions", cmp.Or(h.name.Namespace, h.system), "ask an administrator"))
}

// CountPods counts the running pods that record each revision of the template. It returns nil if the user is not allowed to list
// pods.
func (c *Client) CountPods(ctx context.Context, h *History) (map[string]int, error) {
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(h.name.Namespace)
	record := h.name.Name + "." + templates.Domain + "/" + templates.AnnotationInjected
	counts := map[string]int{}
	err = readPages(ctx, "", func(ctx context.Context, options metav1.ListOptions) (string, error) {
		options.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
		list, err := pods.List(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			if of := list.Items[i].Annotations[record]; of != "" && list.Items[i].DeletionTimestamp == nil {
				counts[of]++
			}
		}
		return list.Continue, nil
	}, func() { clear(counts) })
	if apierrors.IsForbidden(err) {
		return nil, nil //nolint:nilnil // a user may have no rights
	}
	return counts, NoAnswer(err)
}

// GoBack writes a content into the template, if the template has not changed since it was read. The settings of the
// rollout stay. With dryRun, the API server only checks it.
func (c *Client) GoBack(ctx context.Context, h *History, content []byte, dryRun bool) error {
	spec, err := h.withRollout(content)
	if err != nil {
		return err
	}
	patch, err := json.Marshal([]map[string]any{
		// The resource version also changes with the status, which the controller writes often.
		{"op": "test", "path": "/metadata/uid", "value": h.object.GetUID()},
		{"op": "test", "path": "/metadata/generation", "value": h.object.GetGeneration()},
		{"op": "replace", "path": "/spec", "value": spec},
	})
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: rollout.Manager}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	resource := templateResource(h.name.Namespace)
	_, err = c.Resource(resource).Namespace(h.name.Namespace).Patch(ctx, h.name.Name, types.JSONPatchType, patch, options)
	status, isStatus := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), isStatus && apierrors.IsInvalid(err) && (status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0):
		return fmt.Errorf("somebody has changed %s meanwhile: run the same command again", h.ID) // a test of a JSON Patch has failed
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "):
		return explainForbidden(err, "patch", resource.Resource, h.name.Namespace, "ask an administrator")
	}
	return fmt.Errorf("the API server denies this content: %w", NoAnswer(err))
}

// compileContent compiles an earlier content of the template, with its present settings of the rollout.
func (h *History) compileContent(content []byte) (*templates.Template, error) {
	spec, err := h.withRollout(content)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetKind(h.object.GetKind())
	object.SetNamespace(h.name.Namespace)
	object.SetName(h.name.Name)
	text, err := kube.TemplateText(object)
	if err != nil {
		return nil, err
	}
	return kube.CompileTemplateText(h.ID, text)
}

// withRollout returns the spec of a template with an earlier content, and its present settings of the rollout.
func (h *History) withRollout(content []byte) (map[string]any, error) {
	var spec map[string]any
	if err := utiljson.Unmarshal(content, &spec); err != nil { // integers keep their digits
		return nil, err
	}
	if settings, ok, _ := unstructured.NestedFieldNoCopy(h.object.Object, "spec", "rollout"); ok {
		spec["rollout"] = settings
	}
	return spec, nil
}
