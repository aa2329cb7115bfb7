// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/inject"
)

// Running compares the running pods of a workload with the templates. The rest of a report
// about a workload is about its next pod.
type Running struct {
	// Pods is the number of running pods of the object and of those in the same situation.
	Pods   int      `json:"pods"`
	Behind []Reason `json:"behind,omitempty"`
	// Restart has one command for each workload that a restart would fix. Hold is the reason if
	// there is no such command.
	Restart []string `json:"restart,omitempty"`
	Hold    string   `json:"hold,omitempty"`
	// InPlace is the number of workloads whose pods pillion rollout would change in place.
	InPlace int `json:"inPlace,omitempty"`

	restartAll []string // the lines of one command that restarts all workloads that need it
	plan       string   // the command that prints how to update the pods without a restart, or ""
}

// Reason is why running pods differ from new ones, for one template.
type Reason struct {
	Template string      `json:"template"`
	State    State       `json:"state"`
	Code     inject.Code `json:"code,omitempty"` // why a new pod would not get the template; "" if it would
	Why      string      `json:"why"`            // one sentence
	Pods     int         `json:"pods"`
	Example  string      `json:"example"` // the name of one pod
}

// Suggest sets two commands: plan prints how to update the pods without a restart, or is "", and restartAll has the lines of a command
// that restarts many workloads.
func (r *Running) Suggest(plan string, restartAll ...string) { r.plan, r.restartAll = plan, restartAll }

// mergeRunning adds the pods of another workload in the same situation.
func (r *Running) mergeRunning(o *Running) {
	if r == nil || o == nil {
		return
	}
	r.Pods += o.Pods
	for i := range o.Behind {
		r.Behind[i].Pods += o.Behind[i].Pods
	}
	r.Restart = append(r.Restart, o.Restart...)
	r.InPlace += o.InPlace
}

// situationKey returns strings that are equal for workloads in the same situation, whatever their numbers of pods are.
func (r *Running) situationKey() (same []string) {
	if r == nil {
		return nil
	}
	for _, b := range r.Behind {
		same = append(same, b.Template+" "+string(b.State)+" "+b.Why)
	}
	if len(same) > 0 {
		same = append(same, fmt.Sprint(len(r.Restart) > 0, r.InPlace > 0), r.Hold)
	}
	return same
}

// keepTemplates removes the reasons that are about other templates.
func (r *Running) keepTemplates(names []string) {
	if r == nil {
		return
	}
	r.keepReasons(func(b Reason) bool { return slices.Contains(names, b.Template) })
}

// keepReasons removes the other reasons. If none is left, there is nothing to suggest either.
func (r *Running) keepReasons(which func(Reason) bool) {
	r.Behind = slices.DeleteFunc(r.Behind, func(b Reason) bool { return !which(b) })
	if len(r.Behind) == 0 {
		r.Restart, r.Hold, r.InPlace = nil, "", 0
	}
}
