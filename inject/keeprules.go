// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// A template is added completely or not at all. If there is already another value at a place of a template, the rules in this file
// decide what happens.

// Outcome is what happens to a template if there is another value at one of its places.
type Outcome string

// The outcomes.
const (
	// Stays: the value stays, and the template works with it.
	Stays Outcome = "stays"
	// Conflicts: the template would not work, so all of it is left out.
	Conflicts Outcome = "conflict"
	// Joins: both values can be there.
	Joins Outcome = "both"
)

// KeepRule is what happens at one kind of place.
type KeepRule struct {
	Place string // in the words of the documentation
	// OfPod is the outcome if the pod has another value, and OfTemplate if another template set it.
	OfPod, OfTemplate Outcome
	Why               string // one phrase

	at []string // path of a field in the pod, with a name for each step
	// in reports whether the rule is for an item of a list in a container, given the container's item with the same key.
	in func(list string, there, fragment *jsontree.Node) bool
}

// KeepRules returns the rules. The last one is for all other places. Items of lists have a rule only if they have the key of an item
// of the pod: other items are added beside the pod's.
func KeepRules() []KeepRule { return keepRules }

var keepRules = []KeepRule{
	{
		Place: "`shareProcessNamespace`", OfPod: Conflicts, OfTemplate: Conflicts,
		Why: "a container that needs to see the other processes, or must not be seen, does not work",
		at:  []string{"spec", "shareProcessNamespace"},
	},
	{
		Place: "`securityContext.fsGroup` of the pod", OfPod: Stays, OfTemplate: Stays,
		Why: "all containers get the group that the volumes have",
		at:  []string{"spec", "securityContext", "fsGroup"},
	},
	{
		Place: "the annotation `kubectl.kubernetes.io/default-container`", OfPod: Stays, OfTemplate: Stays,
		Why: "it is only what `kubectl logs` and `kubectl exec` suggest",
		at:  []string{"metadata", "annotations", "kubectl.kubernetes.io/default-container"},
	},
	{
		Place: "the annotation `" + SafeToEvictLocalVolumes + "`", OfPod: Stays, OfTemplate: Joins,
		Why: "it is a list; a pod that lists volumes itself decides which are in it. A template of a namespace may not list a volume that a template of the cluster brings",
		at:  []string{"metadata", "annotations", SafeToEvictLocalVolumes},
	},
	{
		Place: "the path of a volume or a device in a container", OfPod: Conflicts, OfTemplate: Conflicts,
		Why: "the container would see other files, or could not write to them; only a mount with `readOnly: true` in the template may be writable",
		in: func(list string, there, fragment *jsontree.Node) bool {
			return list == "volumeDevices" || list == "volumeMounts" && seesOtherFiles(there, fragment)
		},
	},
	besideRule,
	{
		Place: "all other places: labels, other annotations, variables, and the fields of containers", OfPod: Stays, OfTemplate: Conflicts,
		Why: "the pod's author decides; of two templates, the later one would be incomplete",
	},
}

// besideRule is for a field that the API server rejects because of the value of another field, see [schema.Excludes].
var besideRule = KeepRule{
	Place: "a field of a container that is not possible beside what another field has: `runAsNonRoot: true` beside `runAsUser: 0`, " +
		"`allowPrivilegeEscalation: false` beside `privileged: true` or `SYS_ADMIN`, and a request beside a limit of the same resource, or the reverse",
	OfPod: Stays, OfTemplate: Conflicts,
	Why: "as at all other places; the template's field is left out",
}

// SafeToEvictLocalVolumes is the annotation of a pod with the names of the volumes, separated by commas, whose loss does
// not matter to the pod. The cluster autoscaler removes a node only if it has no other local volumes.
const SafeToEvictLocalVolumes = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"

// keepRule returns the rule for a place at which the pod has the value there.
func keepRule(at schema.Pointer, there, fragment *jsontree.Node) *KeepRule {
	for i := range keepRules {
		if r := &keepRules[i]; r.at != nil && at.Is(r.at) || r.in != nil && len(at) > inContainer && r.in(at.Name(1), there, fragment) {
			return r
		}
	}
	return &keepRules[len(keepRules)-1]
}

// inContainer is the length of a pointer to a container: spec, the list, and the item.
const inContainer = 3

// seesOtherFiles reports whether a container sees other files of a volume through its own mount than through the template's mount, or
// cannot write to them.
func seesOtherFiles(pod, fragment *jsontree.Node) bool {
	for _, field := range []string{"subPath", "subPathExpr"} {
		if pod.Get(field).Text() != fragment.Get(field).Text() { // absent means all of the volume
			return true
		}
	}
	if ours := fragment.Get("mountPropagation"); ours != nil && !ours.SameText(pod.Get("mountPropagation")) {
		return true
	}
	return fragment.Get("readOnly").Kind() != jsontree.True && pod.Get("readOnly").Kind() == jsontree.True
}

// SplitNames returns the names in a list that commas separate, for example in [SafeToEvictLocalVolumes], without repetitions.
func SplitNames(list string) (names []string) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
