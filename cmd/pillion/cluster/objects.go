// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// unsure lists reasons why the templates found may not be the ones in use: problems, and
// doubts about what could not be read.
type unsure struct {
	problems, doubts []string
	denied           []string // those of the problems that are missing rights
	notes            []string // templates of namespaces that Pillion does not use, and rollouts that have stopped
	unread           bool     // no template could be read
	others           bool     // the templates of files are used, and differ from those of the cluster
	// invalid has the reason for each template of a namespace whose content is unknown, by namespace and name.
	invalid map[string]map[string]string
}

// The parts of sentences that advise to use template files. [withoutFiles] removes them for commands
// that read no files.
const (
	orFiles = ", or use --templates PATH"
	filesOr = "--templates PATH, or "
	ofFiles = "; use --templates PATH"
	ofOwn   = " to use your own templates"
)

// withoutFiles returns a sentence for a command without the flag --templates.
func withoutFiles(sentence string) string {
	return strings.NewReplacer(orFiles, "", filesOr, "", ofFiles+ofOwn, "", ofFiles, "").Replace(sentence)
}

// may reports a missing right as a problem. It returns any other error.
func (u *unsure) may(err error, verb, resource, namespace, unknown string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	there := ""
	if namespace != "" {
		there = " there"
	}
	missing := fmt.Sprintf("You are not allowed to %s %s%s, so %s: ask for the verb %s on the resource %s%s%s.",
		verb, resource, InNamespace(namespace), unknown, verb, resource, there, orFiles)
	u.problems, u.denied = append(u.problems, missing), append(u.denied, missing)
	return nil
}

// objects returns the templates in the API server: those of the cluster, and those of the namespaces that
// the command is about.
func (c *Client) objects(ctx context.Context, wrong *unsure) (all []*templates.Template, err error) {
	of := kube.TemplateResources()
	taken := map[string]bool{} // names of templates of the cluster
	if all, err = c.objectsIn(ctx, wrong, of[0], "", taken); err != nil {
		return nil, err
	}
	namespaces := c.about
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		more, err := c.objectsIn(ctx, wrong, of[1], namespace, taken)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

func (c *Client) objectsIn(ctx context.Context, wrong *unsure, resource schema.GroupVersionResource, namespace string, taken map[string]bool) (all []*templates.Template, err error) {
	list, err := c.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil // this kind is not installed
	case apierrors.IsForbidden(err):
		return nil, wrong.may(err, "list", resource.Resource, namespace, "these templates are unknown")
	case err != nil:
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return kube.CompareAge(&a, &b) })
	sizes := map[string][]int{} // of the templates of each namespace
	for i := range list.Items {
		o := &list.Items[i]
		in := o.GetNamespace()
		text, err := kube.TemplateText(o)
		if err != nil {
			return nil, err
		}
		why := statusOf(o)
		if sizes[in] = append(sizes[in], len(text)); in == "" {
			taken[o.GetName()] = true
		} else if kube.Fitting(sizes[in]) < len(sizes[in]) {
			why = kube.TooMany()
		} else if taken[o.GetName()] {
			why = kube.Taken(o.GetName())
		}
		if why != "" {
			wrong.doesNotUse(kube.TemplateID(o), why)
			continue
		}
		if why := stopped(o); why != "" {
			wrong.notes = append(wrong.notes, fmt.Sprintf("The automatic rollout of %s has stopped: %s", kube.TemplateID(o), templates.OneLine(why)))
		}
		t, err := kube.CompileTemplateText(kube.TemplateID(o), text)
		switch {
		case err == nil:
			all = append(all, t)
		case in != "" && len(c.about) == 0: // the command is for users who did not write it
			wrong.notes = append(wrong.notes, invalid(err))
			wrong.unknown(o, kube.TemplateID(o)+" is invalid, and Pillion may still use its last valid content: "+cli.OneLine(err))
		default:
			wrong.problems = append(wrong.problems, invalid(err))
		}
	}
	return all, nil
}

func invalid(err error) string {
	return fmt.Sprintf("A template is invalid, so this report ignores it. Pillion may still use its last valid content: %s.", cli.OneLine(err))
}

// unknown records that the content of a template of a namespace is unknown.
func (u *unsure) unknown(o *unstructured.Unstructured, why string) {
	if u.invalid == nil {
		u.invalid = map[string]map[string]string{}
	}
	of := u.invalid[o.GetNamespace()]
	if of == nil {
		of = map[string]string{}
		u.invalid[o.GetNamespace()] = of
	}
	of[o.GetName()] = why
}

// doesNotUse notes why Pillion does not use a template of a namespace.
func (u *unsure) doesNotUse(id, why string) {
	u.notes = append(u.notes, fmt.Sprintf("Pillion does not use %s: %s.", id, why))
}

// statusOf returns why Pillion does not use a valid template, by its status, or "" if it does or the status is
// old. A user who may not read the templates of the cluster cannot find out otherwise.
func statusOf(o *unstructured.Unstructured) string {
	if conditionOf(o, v1alpha1.ConditionReady).Reason != v1alpha1.ReasonNameTaken {
		return ""
	}
	return kube.Taken(o.GetName())
}

// stopped returns why the automatic rollout of a template has stopped, or "".
func stopped(o *unstructured.Unstructured) string {
	if c := conditionOf(o, v1alpha1.ConditionDegraded); c.Status == metav1.ConditionTrue {
		return c.Message
	}
	return ""
}

// conditionOf returns a condition of the present content of a template, or an empty one.
func conditionOf(o *unstructured.Unstructured, kind string) metav1.Condition {
	fields, _, _ := unstructured.NestedMap(o.Object, "status")
	var status v1alpha1.Status
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &status) != nil {
		return metav1.Condition{}
	}
	c := meta.FindStatusCondition(status.Conditions, kind)
	if c == nil || c.ObservedGeneration != o.GetGeneration() {
		return metav1.Condition{}
	}
	return *c
}

// notTaken returns the templates without those of namespaces that have the name of a mounted one.
func notTaken(mounted, objects []*templates.Template, wrong *unsure) (all []*templates.Template) {
	ofCluster := map[string]*templates.Template{}
	for _, t := range mounted {
		ofCluster[t.Name] = t
	}
	for _, t := range objects {
		if other := ofCluster[t.Name]; t.Namespace != "" && other != nil {
			wrong.doesNotUse(t.File, fmt.Sprintf("the %s of this name takes precedence (%s); use another name", v1alpha1.ClusterKind, other.Place()))
			continue
		}
		all = append(all, t)
	}
	return all
}
