// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"fmt"

	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// Request describes a pod that is about to be created.
type Request struct {
	Operation string // CREATE
	Username  string
	DryRun    bool
	// OptedIn reports whether the selectors of a webhook configuration matched. The labels of
	// Namespace may be older than those that the selectors matched.
	OptedIn bool
	// Namespace is the request's namespace. The pod's own metadata may lack it.
	Namespace request.Namespace
	// Object is the pod's JSON, as received.
	Object []byte
	// Pod is Object parsed, if the caller has parsed it already. Inject adds to it.
	Pod *jsontree.Node
	// Owner is the workload if Object is its pod template, see [workloads.OwnerOf]. A pod names its own.
	Owner workloads.Owner
	// Claims are the names of volumes that the pod will get later, see [workloads.Claims].
	Claims []string
	// File reports whether the pod lacks defaults because it does not come from an API server.
	// Expressions see the defaults.
	File bool
	// Written reports whether the result is written to a file that is applied later. Additions that would change what the API
	// server's own plugins do are then left to the webhook, before which these plugins run.
	Written bool
	// CopiesLabels reports whether the API server makes labels of the pod template labels or the selector of the workload.
	CopiesLabels bool
	// Scratch is memory to reuse, or nil. The Result is only valid until the next use of Scratch.
	Scratch *Scratch
	// Done is closed if the result is no longer needed. It may be nil.
	Done <-chan struct{}
	// Detail requests [Decision.Added] and [Decision.Passed], which the mutating webhook does not
	// need.
	Detail bool

	// alone is set for a final pod. Every template is then compared with the pod as received, without
	// the additions of earlier templates.
	alone bool
	// tier selects the templates that add to the pod, or judge it, if the namespace has templates of its own.
	tier tier
	// account replaces what Namespace knows about the pod's ServiceAccount, if it is not nil.
	account *request.ServiceAccount
}

// factsFor returns what the request says besides the pod, with the pod's ServiceAccount if a template of the Injector reads it.
func (r *Request) factsFor(i *Injector, pod *jsontree.Node) requestFacts {
	account := r.account
	if account == nil {
		account = i.accountOf(&r.Namespace, pod)
	}
	return requestFacts{
		account: account, operation: r.Operation, username: r.Username, dryRun: r.DryRun, optedIn: r.OptedIn, namespace: r.Namespace,
		owner: r.Owner, claims: r.Claims, done: r.Done, detail: r.Detail, alone: r.alone, file: r.File, written: r.Written, copiesLabels: r.CopiesLabels, tier: r.tier,
	}
}

// parsePod returns the pod as a tree.
func (r *Request) parsePod() (pod *jsontree.Node, err error) {
	if pod = r.Pod; pod == nil {
		if pod, err = jsontree.Parse(r.Object); err != nil {
			return nil, fmt.Errorf("the pod is not JSON: %w", err)
		}
	}
	if pod.Kind() != jsontree.Object {
		return nil, errors.New("the pod is not a JSON object")
	}
	for _, n := range []*jsontree.Node{pod, pod.Get("metadata"), pod.Get("spec")} {
		if fields := len(n.Members()); fields > maxFields {
			return nil, fmt.Errorf("an object in it has %d fields, but Pillion reads at most %d", fields, maxFields)
		}
	}
	return pod, nil
}

// Scratch is memory to process one pod after another. Its zero value is ready to use. A Result that
// uses it is valid until the next pod.
type Scratch struct {
	jsontree.Parser // for the pod, or for the document that contains it

	fixedPointSearch fixedPointSearch
	tenant           tenant
}

// Kept returns the number of bytes that stay allocated for the next pod.
func (s *Scratch) Kept() int {
	return s.Parser.Kept() + s.fixedPointSearch.keptBytes() + s.tenant.cluster.keptBytes() + s.tenant.own.keptBytes()
}

// maxFields is the maximum size of objects in which members are searched one by one. The API has
// about 50 fields in a spec.
const maxFields = 500

// Inject decides about every template and plans what to add. It returns an error if Object is
// invalid, or [ErrGone]. Every other problem is a decision.
func (i *Injector) Inject(req Request) (*Result, error) {
	i = i.For(req.Namespace.Name)
	pod, err := req.parsePod()
	if err != nil {
		return nil, err
	}
	if req.Scratch == nil {
		req.Scratch = &Scratch{}
	}
	req.Scratch.Env = i.addsEnv // for the next pod: this one is parsed already
	s := &req.Scratch.fixedPointSearch
	result := &s.result
	if i.cluster != nil && i.countClusterTemplates() > 0 && req.tier == bothTiers {
		result, err = req.Scratch.tenant.injectTiers(i, req.factsFor(i, pod), &req.Scratch.Arena, pod)
	} else {
		err = s.reachFixedPoint(i, req.factsFor(i, pod), &req.Scratch.Arena, pod, parseOriginal(pod))
	}
	if err == nil && req.Written {
		err = result.withoutLeft()
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

// PodMistakes returns the findings about labels and annotations of a pod, as if it had opted in. The engine ignores pods that have not, but
// a misspelled label may be why they have not.
func (i *Injector) PodMistakes(req Request) ([]Finding, error) {
	req.OptedIn = true
	result, err := i.Inject(req)
	if err != nil {
		return nil, err
	}
	return result.Findings, nil
}

// accountOf returns the pod's ServiceAccount, or nil if no template reads it. It is read once for each
// pod, because it may change in the meantime and all rounds must see the same.
func (i *Injector) accountOf(ns *request.Namespace, pod *jsontree.Node) *request.ServiceAccount {
	if !i.readsAccount {
		return nil
	}
	account := ns.ServiceAccount(pod)
	return &account
}
