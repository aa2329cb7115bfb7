// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// Mistake is a reason why a pod lacks what it should have, or a mistake in its annotations.
type Mistake struct {
	Template string // "" if no template has the name that the pod names
	Code     inject.Code
	Message  string // has no value of the pod's environment, commands or arguments
}

// The label with which namespaces and pods opt in or out, and its values.
const (
	LabelInject = inject.LabelInject
	Enabled     = inject.Enabled
	Disabled    = inject.Disabled
)

// Explains reports whether pillion explain takes objects of a kind.
func Explains(apiVersion, kind string) bool {
	_, ok := workloads.PodIn(apiVersion, kind)
	return ok
}

// Reason returns the code as the reason of an Event, for example InvalidParameter.
func (m Mistake) Reason() (reason string) {
	for word := range strings.SplitSeq(string(m.Code), "_") {
		reason += strings.ToUpper(word[:1]) + word[1:]
	}
	return reason
}

// InjectsAnyway reports whether the pod may have the template despite the mistake.
func (m Mistake) InjectsAnyway() bool { return m.Code == inject.CodeUnknownParameter }

// The times within which all replicas use a template of the API server, and a template of a ConfigMap, which each kubelet reads
// again within about 90 s.
const (
	objectSettles = 5 * time.Second
	fileSettles   = 2 * time.Minute
)

// Examiner finds the mistakes of running pods, with the templates of the Pillion in the cluster. It keeps the templates of
// few namespaces for a short time, and no pods.
type Examiner struct {
	client *Client
	// since returns since when the present content of a template in the API server is known. It returns false if the
	// template is not known.
	since  func(template types.NamespacedName) (time.Time, bool)
	now    func() time.Time
	built  *cache.LRUExpireCache // by namespace and version of the templates
	began  time.Time             // when this Examiner was made
	loaded map[string]time.Time  // since when the templates of files are known, by revision
}

// NewExaminer returns an Examiner. Since returns since when the present content of a template object is known, or false if the template
// is not known.
func (c *Client) NewExaminer(since func(types.NamespacedName) (time.Time, bool), now func() time.Time) *Examiner {
	return &Examiner{client: c, since: since, now: now, built: cache.NewLRUExpireCache(builtInjectors), began: now()}
}

// How many injectors are kept, and for how long: the pods of a rollout use the same one.
const (
	builtInjectors = 4
	builtFor       = 30 * time.Second
)

// built is an injector, and whether it has all templates of its namespace.
type built struct {
	injector *inject.Injector
	complete bool
}

// OptedIn reports whether the pods of a namespace may get sidecars, by its name and labels.
func (e *Examiner) OptedIn(name string, labels map[string]string) bool {
	return e.client.Injects(name, labels)
}

// Examine reads pods of a namespace by their names, and returns the mistakes of each pod that exists. Version is any string that changes
// when a template in the API server changes.
func (e *Examiner) Examine(ctx context.Context, ns *corev1.Namespace, version string, pods ...string) (map[string][]Mistake, error) {
	b, err := e.injectorFor(ctx, ns.Name, version)
	if err != nil {
		return nil, err
	}
	found := map[string][]Mistake{}
	for _, name := range pods {
		pod, err := e.client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(ns.Name).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil {
			found[name], err = e.findMistakes(ctx, b, ns, pod)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// CountMissing counts the pods of a namespace that should have a template and lack it, by template, as pillion status does. It
// reads the pods in pages. It returns nil if it does not know all templates. For a template that reads ServiceAccounts, if it may not
// read these, it returns the number unknown. Version is that of [Examiner.Examine].
func (e *Examiner) CountMissing(ctx context.Context, ns *corev1.Namespace, version string, unknown int64) (map[types.NamespacedName]int64, error) {
	b, err := e.injectorFor(ctx, ns.Name, version)
	if err != nil || !b.complete {
		return nil, err
	}
	unread := false
	scope := status.Scope{Unknown: true, Namespace: request.Namespace{
		Name: ns.Name, Labels: ns.Labels, Annotations: ns.Annotations, Known: true, ServiceAccounts: e.client.serviceAccounts(ctx, func(string) { unread = true }),
	}}
	found := map[types.NamespacedName]int64{}
	count := status.NewCount(b.injector, scope)
	flush := func() { // now and then, because a Count keeps something about each owner, and users can create many owners
		for _, t := range b.injector.For(ns.Name).Set().Templates {
			found[types.NamespacedName{Namespace: t.Namespace, Name: t.Name}] += int64(count.Missing(t.ID()))
		}
		count = status.NewCount(b.injector, scope)
	}
	add := func(pod []byte) error {
		if count.Pods() == mostCounted {
			flush()
		}
		return count.Add(pod)
	}
	restart := func() { clear(found); count = status.NewCount(b.injector, scope) }
	each := func(pod *listedPod) error { return add(pod.text) }
	if err := e.client.eachPod(ctx, ns.Name, "", each, restart); err != nil {
		return nil, err
	}
	flush()
	for _, t := range b.injector.For(ns.Name).Set().Templates {
		if unread && templates.NewSet([]*templates.Template{t}).ReadsServiceAccount() {
			found[types.NamespacedName{Namespace: t.Namespace, Name: t.Name}] = unknown
		}
	}
	return found, nil
}

// mostCounted is the number of pods after which CountMissing begins a new Count.
const mostCounted = 1000

// injectorFor returns the injector for a namespace.
func (e *Examiner) injectorFor(ctx context.Context, namespace, version string) (*built, error) {
	key := namespace + "/" + version
	if b, ok := e.built.Get(key); ok {
		return b.(*built), nil
	}
	c := *e.client
	c.About(namespace)
	var wrong unsure
	i, err := c.newInjector(ctx, nil, func(string) {}, &wrong)
	if err != nil {
		return nil, err
	}
	b := &built{injector: i, complete: len(wrong.problems)+len(wrong.doubts)+len(wrong.denied) == 0 && !wrong.unread && !wrong.blind}
	e.rememberTemplates(i.For(namespace).Set())
	e.built.Add(key, b, builtFor)
	return b, nil
}

// rememberTemplates remembers since when the templates of files are known.
func (e *Examiner) rememberTemplates(set *templates.Set) {
	first, now := e.loaded == nil, map[string]time.Time{}
	for _, t := range set.Templates {
		if _, ok := e.since(types.NamespacedName{Namespace: t.Namespace, Name: t.Name}); ok {
			continue
		}
		since, known := e.loaded[t.Revision]
		switch {
		case first:
			since = e.began
		case !known:
			since = e.now()
		}
		now[t.Revision] = since
	}
	e.loaded = now
}

// settledSince returns since when all replicas use a template.
func (e *Examiner) settledSince(t *templates.Template) time.Time {
	if since, ok := e.since(types.NamespacedName{Namespace: t.Namespace, Name: t.Name}); ok {
		return since.Add(objectSettles)
	}
	if since, ok := e.loaded[t.Revision]; ok {
		return since.Add(fileSettles)
	}
	return e.now() // the template is not known, so it counts as new
}

// findMistakes returns the mistakes of a pod.
func (e *Examiner) findMistakes(ctx context.Context, b *built, ns *corev1.Namespace, pod *unstructured.Unstructured) ([]Mistake, error) {
	text, err := pod.MarshalJSON()
	if err != nil {
		return nil, err
	}
	namespace := request.Namespace{
		Name: ns.Name, Labels: ns.Labels, Annotations: ns.Annotations, Known: true, ServiceAccounts: e.client.serviceAccounts(ctx, func(string) {}),
	}
	r, err := explain.New(b.injector, explain.Subject{
		Object:  explain.Object{Kind: pod.GetKind(), Name: pod.GetName(), Namespace: ns.Name, Live: true},
		Request: inject.Request{Operation: "CREATE", Namespace: namespace, Object: text},
	})
	if err != nil {
		return nil, err
	}
	var all []Mistake
	optedIn := status.OptedIn(ns.ManagedFields)
	created := pod.GetCreationTimestamp().Time
	for i, t := range b.injector.For(ns.Name).Set().Templates {
		switch d := &r.Templates[i]; {
		case d.State != explain.Missing || d.InjectedBy != "":
		case slices.Contains([]inject.Code{inject.CodeConflict, inject.CodeInvalidParameter, inject.CodeRenderFailed}, d.Code):
			all = append(all, Mistake{d.Template, d.Code, d.Message})
		case d.Code == inject.CodeNotInjected && b.complete && created.After(optedIn) && created.After(e.settledSince(t)):
			all = append(all, Mistake{d.Template, d.Code, "Pillion was not called, or did not answer, when the pod was created; create the pod again"})
		}
	}
	for _, f := range r.Mistakes {
		if b.complete && (f.Code == inject.CodeUnknownTemplate || f.Code == inject.CodeUnknownParameter) {
			all = append(all, Mistake{f.Template, f.Code, f.Message})
		}
	}
	secrets := secretsIn(text)
	for i := range all {
		all[i].Message = secrets.redactMessage(all[i].Message)
	}
	return all, nil
}

// secrets are values of a pod that may be secret. A message may quote such a value, or only its beginning.
type secrets []string

// quotedLength is how many bytes of the beginning of a value a message must contain to count as a quotation of it.
const quotedLength = 8

// secretsIn returns the values of environment variables, commands, arguments and HTTP headers.
func secretsIn(pod []byte) (all secrets) {
	var p struct {
		Spec struct{ InitContainers, Containers, EphemeralContainers []any }
	}
	if json.Unmarshal(pod, &p) != nil {
		return nil
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers, p.Spec.EphemeralContainers) {
		all.collectStrings(c, false)
	}
	return all
}

// collectStrings adds the strings below the fields whose values may be secret.
func (s *secrets) collectStrings(value any, secret bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, of := range v {
			s.collectStrings(of, secret || slices.Contains([]string{"value", "command", "args"}, key))
		}
	case []any:
		for _, of := range v {
			s.collectStrings(of, secret)
		}
	case string:
		if secret && v != "" {
			*s = append(*s, v)
		}
	}
}

// redactMessage returns a message, or a fixed sentence in place of one that quotes a secret.
func (s secrets) redactMessage(message string) string {
	for _, value := range s {
		quoted, err := json.Marshal(value)
		if err != nil {
			return hidden
		}
		inner := string(quoted[1 : len(quoted)-1])
		switch {
		case strings.Contains(message, string(quoted)), strings.Contains(message, fmt.Sprintf("%q", value)):
			return hidden
		case len(value) >= quotedLength && (strings.Contains(message, value[:quotedLength]) || strings.Contains(message, inner[:quotedLength])):
			return hidden
		}
	}
	return message
}

const hidden = "a value of the pod is the reason"

// CompareMistakes orders mistakes: first unknown names, which may be the cause of the other mistakes.
func CompareMistakes(a, b Mistake) int {
	rank := func(m Mistake) int {
		if m.Code == inject.CodeUnknownParameter || m.Code == inject.CodeUnknownTemplate {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Template, b.Template), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
}
