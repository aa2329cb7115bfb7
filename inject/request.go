// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"fmt"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

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
	// File is true if no API server has filled in the pod's defaults. Expressions see them.
	File bool
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

func (r *Request) asked() asked {
	return asked{
		operation: r.Operation, username: r.Username, dryRun: r.DryRun, optedIn: r.OptedIn, namespace: r.Namespace,
		claims: r.Claims, done: r.Done, detail: r.Detail, alone: r.alone, file: r.File,
	}
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

// Scratch is memory for looking at one pod after another. Its zero value may be
// used; what was told of a pod holds until the next one.
type Scratch struct {
	tree.Parser // of the pod, or of what it is in

	settling settling
}

// Kept is how many bytes are kept for the next pod.
func (s *Scratch) Kept() int { return s.Parser.Kept() + s.settling.kept() }

// newRun begins the only look at a pod.
func (i *Injector) newRun(req *Request, pod *tree.Node) *run {
	r := &run{}
	r.start(i, req.asked(), &tree.Arena{})
	r.look(pod, false)
	return r
}

// maxFields bounds the objects in which a field is looked for again and again. The
// API knows about 50 in a spec.
const maxFields = 500

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
	req.Scratch.Env = i.addsEnv // when it parses the next pod
	s := &req.Scratch.settling
	if err := s.settle(i, req.asked(), &req.Scratch.Arena, pod); err != nil {
		return nil, err
	}
	return &s.result, nil
}
