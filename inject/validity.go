// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/validation"
)

// checkMerged reports a conflict if a container became invalid when fragment was added to it. For a new
// container, merged and fragment are the same.
func (p *planner) checkMerged(merged, fragment *jsontree.Node, at schema.Pointer) {
	if len(p.conflicts) > 0 {
		return // they may be the cause
	}
	for field, why := range schema.BrokenCouplings(p.subject.pod, merged, fragment) {
		p.reportConflict(at.Member(field), merged.Get(field), fragment.Get(field), "%s", why)
	}
	if merged == fragment {
		if why := schema.HostProcess(p.subject.pod, merged); why != "" {
			p.reportConflict(at, nil, fragment, "%s", why)
		}
		return
	}
	p.checkObject(merged, fragment, schema.ContainerType(), at)
	if own := fragment.Get("securityContext"); own != nil {
		p.checkObject(merged.Get("securityContext"), own, reflect.TypeFor[corev1.SecurityContext](), at.Member("securityContext"))
	}
	if own := fragment.Get("resources"); own != nil {
		p.checkObject(merged.Get("resources"), own, schema.ResourcesType(), at.Member("resources"))
	}
}

// checkObject reports a conflict if an object breaks a rule of its type now that fragment was merged into it.
func (p *planner) checkObject(object, fragment *jsontree.Node, t reflect.Type, at schema.Pointer) {
	if err := validation.Broken(t, object, fragment); err != nil && len(p.conflicts) < maxConflicts {
		have, where := p.owners.describeOwners(p.t)
		p.reportConflict(at, nil, fragment, "together with what %s, %v; change that %s, or leave this template out", have, err, where)
	}
}

// checkAnnotations reports a conflict if the pod's annotations become too large.
func (p *planner) checkAnnotations() {
	annotations := p.subject.pod.At("metadata", "annotations")
	if annotations == nil || annotations.Size()+annotations.AddedSize() < validation.MaxAnnotations/2 { // these sizes are estimates
		return
	}
	size, members := 0, p.subject.withoutDropped(annotations).Members()
	for i := range members {
		size += len(members[i].Name()) + len(members[i].Text())
	}
	if size > validation.MaxAnnotations {
		p.reportConflict(schema.Pointer{}.Member("metadata").Member("annotations"), nil, p.fragment.At("metadata", "annotations"),
			"with the template, the pod's annotations have %d bytes, but the limit is %d; shorten the pod's annotations", size, validation.MaxAnnotations)
	}
}

// checkClaims finds conflicts between names of claims. The name of an ephemeral volume's claim
// consists of the names of the pod and the volume.
func (p *planner) checkClaims() {
	volumes := p.fragment.At("spec", "volumes").Items()
	for i := range volumes {
		if volumes[i].Get("ephemeral") == nil && volumes[i].Get("persistentVolumeClaim") == nil {
			continue
		}
		p.checkClaim(&volumes[i])
	}
}

func (p *planner) checkClaim(volume *jsontree.Node) {
	pod := p.subject.pod.At("metadata", "name").Text()
	if pod == "" {
		return // the API server will generate a unique name
	}
	name := pod + "-" + volume.Get("name").Text()
	const longest = 253 // maximum length of a claim's name
	if volume.Get("ephemeral") != nil && len(name) > longest {
		p.reportConflict(schema.Pointer{}.Member("metadata").Member("name"), nil, volume, "the claim of the volume %s would have a name of more than %d bytes, because it contains the pod's name; give the pod a shorter name", volume.Get("name").Text(), longest)
	}
	others := p.subject.pod.At("spec", "volumes").Items()
	for i := range others {
		mine, theirs := volume, &others[i]
		if mine.Get("ephemeral") == nil {
			mine, theirs = theirs, mine
		}
		if mine.Get("ephemeral") != nil && theirs.At("persistentVolumeClaim", "claimName").IsText(pod+"-"+mine.Get("name").Text()) && strings.TrimSpace(pod) != "" {
			p.reportConflict(schema.Pointer{}.Member("spec").Member("volumes"), theirs, volume, "Kubernetes creates the claim %s-%s for the volume %s, but another volume uses this claim; rename one of them",
				pod, mine.Get("name").Text(), mine.Get("name").Text())
		}
	}
}
