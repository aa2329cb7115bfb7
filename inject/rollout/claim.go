// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"time"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Several rollouts may change pods of one workload at the same time: those of other templates, and of the command and the
// controller. So that they share its limits, a rollout writes a claim into a pod before it changes the pod, and removes it
// when the pod is proved. All rollouts count pods with a claim. After it has written its claims, a rollout reads all pods of
// the workload again, and changes only as many as are within the limits then. Of two rollouts that do this at the same time,
// the one that reads last sees the claims of both.
//
// The claims are in the pods, and not in a Lease: they also show which pods a rollout has left that was killed, they are
// counted for budgets that select pods of several workloads, and they need no other right than the change.

// AnnotationUnproved is the annotation of a pod with the claim of a rollout.
const AnnotationUnproved = inject.AnnotationUnproved

// AllTemplates is the template of the claim of a rollout that is not limited to one.
const AllTemplates = "*"

// clockSkew is how much the clocks of a cluster may differ. It matters only for pods that a rollout has not
// watched since their change.
const clockSkew = 5 * time.Minute

// Claim is what a rollout writes into a pod that it is about to change, or has changed and not proved.
type Claim struct {
	Template string        // its name, or AllTemplates
	Holder   string        // identifies the rollout
	Proof    time.Duration // how long the pod has to be ready, see [Rules]
	At       string        // when it was written, by the clock of the rollout; it distinguishes claims of one rollout
}

// NewClaim returns the claim of a rollout of a template, or of all if it is "".
func NewClaim(template, holder string, proof time.Duration, at time.Time) Claim {
	if template == "" {
		template = AllTemplates
	}
	return Claim{template, holder, proof, at.UTC().Format(time.RFC3339)}
}

// String returns the value of the annotation, for example "log-agent x7k2p9 1m30s 2026-11-27T14:03:11Z".
func (c Claim) String() string {
	return strings.Join([]string{c.Template, c.Holder, c.Proof.String(), c.At}, " ")
}

// ClaimOf returns the claim in the annotations of a pod. If there is none, the holder is "".
func ClaimOf(annotations map[string]string) Claim {
	fields := strings.Fields(annotations[AnnotationUnproved])
	if len(fields) != 4 {
		return Claim{}
	}
	proof, err := time.ParseDuration(fields[2])
	if err != nil || proof < 0 {
		return Claim{}
	}
	return Claim{fields[0], fields[1], proof, fields[3]}
}

// IsRecent reports whether the rollout of a claim may still be running, if a pod may take so long to become ready. A rollout
// that was killed leaves claims.
func (c Claim) IsRecent(timeout time.Duration, now time.Time) bool {
	at, err := time.Parse(time.RFC3339, c.At)
	return c.Holder != "" && err == nil && now.Sub(at) < timeout+c.Proof+clockSkew
}

// overlaps reports whether a claim is of a rollout that may make the same changes.
func (c Claim) overlaps(other Claim) bool {
	return c.Template == other.Template || c.Template == AllTemplates || other.Template == AllTemplates
}

// ClaimName returns the name of a template as a claim has it: without the namespace that the user may have given.
func ClaimName(template string) string { return template[strings.LastIndexByte(template, '/')+1:] }

// claimPath is the JSON Pointer of the claim.
func claimPath() string { return "/metadata/annotations/" + jsontree.Escape(AnnotationUnproved) }
