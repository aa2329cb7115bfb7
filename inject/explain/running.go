// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
)

// Running compares the running pods of a workload with the templates: a report about a workload is
// about its next pod.
type Running struct {
	// Pods is how many pods run, of the object and of those for which the same holds.
	Pods   int      `json:"pods"`
	Behind []Behind `json:"behind,omitempty"`
	// Restart are the commands that help, one for each workload. Hold is why none does.
	Restart []string `json:"restart,omitempty"`
	Hold    string   `json:"hold,omitempty"`

	all []string // the lines of a command for many workloads
}

// Behind is why running pods are not as new ones would be, by a template.
type Behind struct {
	Template string `json:"template"`
	State    State  `json:"state"`
	Why      string `json:"why"` // one sentence
	Pods     int    `json:"pods"`
	Example  string `json:"example"` // the name of one of them
}

// ForAll sets the lines of a command that restarts many workloads.
func (r *Running) ForAll(lines ...string) { r.all = lines }

// merge adds the pods of another workload that are in the same situation.
func (r *Running) merge(o *Running) {
	if r == nil || o == nil {
		return
	}
	r.Pods += o.Pods
	for i := range o.Behind {
		r.Behind[i].Pods += o.Behind[i].Pods
	}
	r.Restart = append(r.Restart, o.Restart...)
}

// situation is what is the same of workloads with different numbers of pods.
func (r *Running) situation() (same []string) {
	if r == nil {
		return nil
	}
	for _, b := range r.Behind {
		same = append(same, b.Template+" "+string(b.State)+" "+b.Why)
	}
	if len(same) > 0 {
		same = append(same, fmt.Sprint(len(r.Restart) > 0), r.Hold)
	}
	return same
}

// only leaves out what is about other templates.
func (r *Running) only(names []string) {
	if r == nil {
		return
	}
	r.keep(func(b Behind) bool { return slices.Contains(names, b.Template) })
}

func (r *Running) keep(which func(Behind) bool) {
	r.Behind = slices.DeleteFunc(r.Behind, func(b Behind) bool { return !which(b) })
	if len(r.Behind) == 0 {
		r.Restart, r.Hold = nil, ""
	}
}
