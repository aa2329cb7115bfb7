// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/inject"
)

// Severity is how much is wrong with an object.
type Severity int

// The severities. Denied: the API server would deny or reject the pod, or the object cannot create its pods or loses them.
// Faulty: the pod lacks a template that it should have, something that it asks for is wrong, or it is denied without Pillion too.
// Pods that are only outdated are Fine, because they work.
const (
	Fine Severity = iota
	Faulty
	Denied
)

// Severity returns how much is wrong with the objects of the report.
func (r *Report) Severity() Severity {
	switch {
	case r.Failing != "" || r.Rejected || r.Final.Verdict == "denied" || len(r.Misfits) > 0 && r.Patch != nil: // a shadow namespace has no patch
		return Denied
	case r.Final.Verdict == "warned" || len(r.Mistakes)+len(r.Misplaced)+len(r.Original) > 0 || isFalse(r.Answered) && !isFalse(r.Called):
		return Faulty
	case r.Running != nil && slices.ContainsFunc(r.Running.Behind, func(b Reason) bool { return b.State != Outdated }):
		return Faulty
	case slices.ContainsFunc(r.Templates, func(t Template) bool {
		return t.State == Missing || t.State == Altered || t.State != NotWanted && (t.Code == inject.CodeNotInjected || t.Code.Failed())
	}):
		return Faulty
	}
	return Fine
}

// SortBySeverity moves the reports with problems to the front, the worst first.
func SortBySeverity(reports []*Report) {
	slices.SortStableFunc(reports, func(a, b *Report) int { return cmp.Compare(b.Severity(), a.Severity()) })
}

// Overview returns one sentence about reports of many objects. Where is what they have in common, for example " in the namespace
// shop".
func Overview(reports []*Report, where string) string {
	all, pods, by, outside := 0, 0, map[Severity]int{}, 0
	for _, r := range reports {
		n := 1 + len(r.Same)
		all += n
		by[r.Severity()] += n
		for _, o := range append([]Object{r.Object}, r.Same...) {
			if o.Kind == "Pod" {
				pods++
			}
		}
		if r.OptedIn != "" {
			outside += n
		}
	}
	noun := "workload"
	switch pods {
	case 0:
	case all:
		noun = "pod"
	default:
		noun = "workload or pod"
		if all > 1 {
			noun = "workloads and pod"
		}
	}
	text := fmt.Sprintf("No problems: %s%s", Plural(all, noun), where)
	if wrong := by[Denied] + by[Faulty]; wrong > 0 {
		text = fmt.Sprintf("Problems: %d of %s%s", wrong, Plural(all, noun), where)
	}
	switch {
	case by[Denied] == 1:
		text += ", of which 1 is denied or fails"
	case by[Denied] > 0:
		text += fmt.Sprintf(", of which %d are denied or fail", by[Denied])
	}
	switch {
	case outside == all:
		text += "; none of them has opted in"
	case outside == 1:
		text += "; 1 of them has not opted in"
	case outside > 0:
		text += fmt.Sprintf("; %d of them have not opted in", outside)
	}
	return text + "."
}
