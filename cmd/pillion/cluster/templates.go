// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// unsure lists, in sentences, why the templates that were read may not be the templates in use: problems, and
// doubts about what could not be read.
type unsure struct {
	problems, doubts []string
	denied           []string // the problems that are missing rights
	unserved         string   // the problem that is about deleted kinds of templates, or ""
	notes            []string // about templates of namespaces that Pillion does not use, and about automatic rollouts
	stopped          []string // the notes about automatic rollouts that have stopped or are undone
	running          int      // the number of other automatic rollouts
	unread           bool     // whether no template could be read
	blind            bool     // whether the user may read neither the templates of the cluster nor Pillion's settings
	others           bool     // whether templates of files are used that differ from those of the cluster
	// invalid has the reason for each template of a namespace whose content is unknown, by namespace and name.
	invalid map[string]map[string]string
	taken   map[string]bool // names of templates of the cluster
	kinds   []string        // of templates, which the API server does not serve
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

// reportForbidden reports a missing right as a problem. It returns any other error.
func (u *unsure) reportForbidden(err error, verb, resource, namespace, unknown string) error {
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

// readTemplates returns the templates in the API server: those of the cluster, and those of the namespaces that
// the command is about.
func (c *Client) readTemplates(ctx context.Context, limits kube.Limits, wrong *unsure) (all []*templates.Template, err error) {
	of := kube.TemplateResources()
	wrong.taken = map[string]bool{}
	if all, err = c.readTemplatesIn(ctx, limits, wrong, of[0], ""); err != nil {
		return nil, err
	}
	namespaces := c.about
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		more, err := c.readTemplatesIn(ctx, limits, wrong, of[1], namespace)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, c.reportUnserved(ctx, wrong)
}

// reportUnserved reports kinds of templates that the API server does not serve although they were installed: the controller is,
// which the component no-custom-resources leaves out, too.
func (c *Client) reportUnserved(ctx context.Context, wrong *unsure) error {
	if len(wrong.kinds) == 0 {
		return nil
	}
	d, err := c.readDeployment(ctx, manifests.ControllerName)
	if err != nil || !d.Found {
		return err
	}
	wrong.unserved = fmt.Sprintf("The API server does not serve %s, so these templates are unknown: their CustomResourceDefinitions were deleted. "+
		"A running Pillion uses the templates that it knows until it ends. Apply the manifests of Pillion and the templates again, and restart nothing before.", strings.Join(wrong.kinds, " and "))
	wrong.problems = append(wrong.problems, wrong.unserved)
	return nil
}

func (c *Client) readTemplatesIn(ctx context.Context, limits kube.Limits, wrong *unsure, resource schema.GroupVersionResource, namespace string) (all []*templates.Template, err error) {
	client, err := kube.NewRESTClient(c.config)
	if err != nil {
		return nil, err
	}
	// The limit for all namespaces together depends on templates that are not read here, too. The status knows it, see statusOf.
	catalog := kube.NewCatalog(limits, client, true, func([]types.NamespacedName) {})
	switch err := catalog.List(ctx, resource, namespace); {
	case apierrors.IsNotFound(err):
		if kind := resource.GroupResource().String(); !slices.Contains(wrong.kinds, kind) {
			wrong.kinds = append(wrong.kinds, kind)
		}
		return nil, nil
	case apierrors.IsForbidden(err):
		wrong.blind = wrong.blind || wrong.unread && resource == kube.TemplateResources()[0]
		return nil, wrong.reportForbidden(err, "list", resource.Resource, namespace, "these templates are unknown")
	case err != nil:
		return nil, err
	}
	for _, e := range catalog.Entries() {
		why := cmp.Or(catalog.Excess(e.Key()), statusOf(e))
		if e.Namespace == "" {
			wrong.taken[e.Name] = true
		} else if wrong.taken[e.Name] {
			why = cmp.Or(why, kube.Taken(e.Name))
		}
		if why != "" {
			wrong.doesNotUse(e.ID(), why)
			continue
		}
		wrong.noteRollout(e)
		text, err := catalog.Content(ctx, e)
		if err != nil {
			return nil, err
		}
		t, err := kube.CompileContent(e, text)
		switch {
		case err == nil:
			all = append(all, t)
		case e.Namespace != "" && len(c.about) == 0: // the command is about all namespaces, so its user probably did not write the template
			wrong.notes = append(wrong.notes, invalidMessage(err))
			wrong.noteUnknown(e, e.ID()+" is invalid, and Pillion may still use its last valid content: "+cli.OneLine(err))
		default:
			wrong.problems = append(wrong.problems, invalidMessage(err))
		}
	}
	return all, nil
}

func invalidMessage(err error) string {
	return fmt.Sprintf("A template is invalid, so this report ignores it. Pillion may still use its last valid content: %s.", cli.OneLine(err))
}

// noteRollout notes the automatic rollout of a template, unless all is done.
func (u *unsure) noteRollout(e *kube.Entry) {
	state, message := e.Rolling()
	text := map[kube.RolloutState]string{kube.RolloutRunning: "is running", kube.RolloutUndoing: "is being undone", kube.RolloutStopped: "has stopped", kube.RolloutUndone: "was undone"}[state]
	if text == "" {
		return
	}
	text = fmt.Sprintf("The automatic rollout of %s %s: %s", e.ID(), text, problem.OneLine(message))
	if u.notes = append(u.notes, text); state == kube.RolloutRunning {
		u.running++
	} else {
		u.stopped = append(u.stopped, text)
	}
}

// noteUnknown records that the content of a template of a namespace is unknown.
func (u *unsure) noteUnknown(e *kube.Entry, why string) {
	if u.invalid == nil {
		u.invalid = map[string]map[string]string{}
	}
	of := u.invalid[e.Namespace]
	if of == nil {
		of = map[string]string{}
		u.invalid[e.Namespace] = of
	}
	of[e.Name] = why
}

// doesNotUse notes why Pillion does not use a template of a namespace.
func (u *unsure) doesNotUse(id, why string) {
	u.notes = append(u.notes, fmt.Sprintf("Pillion does not use %s: %s.", id, why))
}

// statusOf returns why Pillion does not use a valid template, by the template's status, or "" if Pillion uses it or the status is
// old. A user who may not read the templates of the cluster or of other namespaces has no other way to find that out.
func statusOf(e *kube.Entry) string {
	switch c := e.Condition(v1alpha1.ConditionReady); c.Reason {
	case v1alpha1.ReasonNameTaken:
		return kube.Taken(e.Name)
	case v1alpha1.ReasonTooMany:
		return strings.TrimSuffix(problem.OneLine(c.Message), ".")
	}
	return ""
}

// notTaken returns the template objects without those of namespaces that have the name of a template in a mounted file. It notes the
// others.
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
