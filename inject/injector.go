// SPDX-License-Identifier: Apache-2.0

// Package inject is the engine: which templates a pod gets, what they add to
// it, and the patch that says so.
//
// [Injector.Inject] is the only way in, for the webhook and the command line
// alike, and its [Result] is all that either of them knows. The package is pure:
// no I/O, no clock, no state; an Injector is immutable and may be shared.
//
// Two things always hold. Every operation is an add that leaves whatever the
// pod says in place; and injecting the result again adds nothing.
package inject

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// The labels and annotations that people write. A template's own annotations
// are [templates.Template.Annotation].
const (
	// LabelInject on a namespace or pod is Enabled or Disabled; on a namespace Shadow
	// too: nothing is injected there, and what would be is told.
	LabelInject = templates.Domain + "/inject"
	Enabled     = "enabled"
	Disabled    = "disabled"
	Shadow      = "shadow"
	// AnnotationTemplates on a pod names the templates: "a,b" for exactly these,
	// "+a,-b" for these beside or without the defaults.
	AnnotationTemplates = templates.Domain + "/templates"
	// AnnotationUninject on a pod is written by the command line's inject, and read by
	// uninject; see [Before]. It means nothing to the webhooks.
	AnnotationUninject = templates.Domain + "/uninject"
)

// SystemNamespaces are never looked at: a broken Pillion must not hold up the
// cluster's own recovery, or its own.
func SystemNamespaces() []string {
	return []string{"kube-system", "kube-public", "kube-node-lease", "pillion-system"}
}

// maxFields bounds the objects in which a field is looked for again and again. The
// API knows about 50 in a spec.
const maxFields = 500

// maxPatch bounds what may be added, in bytes of JSON; the API server takes no
// object over 3 MiB.
const maxPatch = 3 << 20

// Injector decides and plans for one set of templates.
type Injector struct {
	set       *templates.Set
	templates []*loaded
	byName    map[string]*loaded
	names     []string       // of the templates, sorted
	brings    map[string]int // the containers that any of them brings, numbered from 1
	reads     []read         // the parts of the pod that templates depend on
	// readsContainers: an expression reads the pod's lists of containers.
	readsContainers bool
	addsEnv         bool // to the pod's own containers
	rules           []rule
	couplings       []coupling
	excluded        []string
	schema          *schema.Schema
}

// loaded is a template with what need not be written anew for each pod: the keys
// of its annotations, and the sentences for pods that it does not match.
type loaded struct {
	*templates.Template
	prefix                 string // of its annotations' keys
	runs                   []templates.Runs
	injected, customize    string
	settable               []string   // what pods may set by the other ones
	protect                [][]string // the names in each protected path
	forNamespaces, forPods string
	audit                  string     // for a pod that has it
	revision               tree.Node  // of the record of the injection
	recorded               *tree.Node // its fragment with the record of the injection, or nil where it is not always the same
}

// Excludes reports whether nothing is ever injected in a namespace.
func (i *Injector) Excludes(namespace string) bool { return slices.Contains(i.excluded, namespace) }

// New makes an Injector. System namespaces are excluded always, others on request.
func New(set *templates.Set, excludedNamespaces ...string) *Injector {
	i := &Injector{
		set:       set,
		byName:    map[string]*loaded{},
		brings:    map[string]int{},
		rules:     rules(),
		couplings: couplings(),
		excluded:  append(SystemNamespaces(), excludedNamespaces...),
		schema:    schema.Pod(),
	}
	reads := map[string]bool{}
	for _, t := range set.Templates {
		l := &loaded{Template: t, injected: t.Annotation(templates.AnnotationInjected), customize: t.Annotation(templates.AnnotationCustomize), prefix: t.Annotation("")}
		l.runs = t.Runs()
		l.settable = append(t.ParamNames(), templates.AnnotationCustomize)
		l.revision, l.audit = tree.Text(t.Revision), "injected: revision "+t.Revision
		l.forNamespaces = fmt.Sprintf("the template is for namespaces with %v", t.NamespaceSelector)
		l.forPods = fmt.Sprintf("the template is for pods with %v", t.PodSelector)
		for _, path := range t.Spec.Validate.Protect {
			l.protect = append(l.protect, strings.Split(path, "."))
		}
		if fragment := t.PodFragment().Static(); fragment != nil {
			l.recorded = new(l.record(nil, fragment))
		}
		i.templates, i.byName[t.Name] = append(i.templates, l), l
		for _, name := range t.Containers {
			if i.brings[name] == 0 {
				i.brings[name] = len(i.brings) + 1
			}
		}
		for _, each := range t.EachFragments() {
			i.addsEnv = i.addsEnv || each.Add.Has("env")
		}
		for _, part := range t.Reads() {
			reads[part] = true
		}
	}
	for part := range reads {
		if r := newRead(part); !reads[strings.Join(r.path, ".")] || !r.items && r.key == "" {
			i.reads = append(i.reads, r)
			i.readsContainers = i.readsContainers || r.ofContainers()
		}
	}
	i.names = slices.Sorted(maps.Keys(i.byName))
	return i
}

// Set is the set of templates.
func (i *Injector) Set() *templates.Set { return i.set }

// Request is a pod about to be created.
type Request struct {
	Operation string // CREATE
	Username  string
	DryRun    bool
	// OptedIn: the selectors of a webhook configuration matched, or so its caller
	// says. What is known of the namespace may be a moment older.
	OptedIn bool
	// Namespace is the request's namespace; the pod's own metadata may not name one.
	Namespace templates.Namespace
	// Object is the pod's JSON as it came.
	Object []byte
	// Pod is the same where the caller has parsed it already. The engine adds to it.
	Pod *tree.Node
	// Claims are names of volumes that the pod will have and does not say yet, see [Claims].
	Claims []string
	// Scratch is memory to work in, which the Result lies in then, or nil.
	Scratch *Scratch
	// Done is closed when nobody waits for the result any more; nil is never.
	Done <-chan struct{}
	// Detail asks for [Decision.Added] and [Decision.Passed], which the mutating
	// webhook does not need.
	Detail bool

	// alone, for a final pod: every template is compared with the pod as it came,
	// not with what those before it would add.
	alone bool
}

// ErrGone says that [Request.Done] was closed before the work was done.
var ErrGone = errors.New("nobody waits for the result")

// gone says whether nobody waits for the result. Who finds out stops, whatever its
// result is by then: Inject finds out too. It is asked before each template, app
// container and expression, each of which is a few milliseconds of work at most.
func (r *Request) gone() bool {
	select {
	case <-r.Done:
		return true
	default:
		return false
	}
}

// Inject decides about every template and plans what to add. The error says
// what is wrong with Object, or is [ErrGone]; everything else that can go wrong is
// a decision.
func (i *Injector) Inject(req Request) (*Result, error) {
	pod, err := req.parse()
	if err != nil {
		return nil, err
	}
	if req.Scratch == nil {
		req.Scratch = &Scratch{}
	}
	req.Scratch.makeRoom(len(i.templates))
	req.Scratch.Env = i.addsEnv // when it parses the next pod
	r := &req.Scratch.result
	*r = Result{Pod: identify(pod), pod: pod}
	s := &req.Scratch.settling
	*s = settling{Injector: i, req: &req, r: r}
	if err := s.settle(); err != nil {
		return nil, err
	}
	return r, nil
}

// parse gives the pod as a tree.
func (r *Request) parse() (pod *tree.Node, err error) {
	if pod = r.Pod; pod == nil {
		if pod, err = tree.Parse(r.Object); err != nil {
			return nil, notJSON(err)
		}
	}
	if pod.Kind() != tree.Object {
		return nil, errors.New("the pod is not a JSON object")
	}
	for _, n := range []*tree.Node{pod, pod.Get("metadata"), pod.Get("spec")} {
		if fields := len(n.Members()); fields > maxFields {
			return nil, fmt.Errorf("an object of it has %d fields, and at most %d are read", fields, maxFields)
		}
	}
	return pod, nil
}

func notJSON(err error) error { return fmt.Errorf("the pod is not JSON: %w", err) }

// Identity is how people know a pod.
type Identity struct {
	Name         string // "" where the API server is yet to make one of GenerateName
	GenerateName string
	Owner        string // Kind/name of the controller, or ""
}

func identify(pod *tree.Node) Identity {
	id := Identity{
		Name:         pod.At("metadata", "name").Text(),
		GenerateName: pod.At("metadata", "generateName").Text(),
	}
	owners := pod.At("metadata", "ownerReferences").Items()
	for i := range owners {
		if owners[i].Get("controller").Kind() == tree.True {
			id.Owner = owners[i].Get("kind").Text() + "/" + owners[i].Get("name").Text()
		}
	}
	return id
}
