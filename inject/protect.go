// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/tree"
)

// absent says whether nothing of a template that brings containers is in the
// pod: neither one of them nor the record of an injection.
func (c *candidate) absent() bool {
	if len(c.t.Containers) == 0 || c.marked(c.t) {
		return false
	}
	for _, list := range containerLists() {
		existing := c.pod.At("spec", list).Items()
		for i := range existing {
			for _, name := range c.t.Containers {
				if existing[i].Get("name") != nil && existing[i].Get("name").IsText(name) {
					return false
				}
			}
		}
	}
	return true
}

// altered are the protected fields of the template's containers that differ
// from the template, the first place of each.
func (c *candidate) altered() []Place {
	var all []Place
	for _, path := range c.t.Spec.Validate.Protect {
		for _, list := range containerLists() {
			own, existing := c.fragment.At("spec", list).Items(), c.pod.At("spec", list).Items()
			for i := range own {
				found := c.schema.at("spec").at(list).find(existing, &own[i])
				if found < 0 {
					continue // missing, which says it all
				}
				d := &difference{candidate: c, at: item("/spec/"+list, existing, found), f: c.schema.at("spec").at(list).elem.asField()}
				if d = d.within(&existing[found], &own[i], strings.Split(path, ".")); d != nil {
					all = append(all, newPlace(d.at, d.pod, d.fragment))
				}
			}
		}
	}
	return all
}

func (s *schema) asField() *field { return &field{schema: s} }

// difference is a place where the pod and a fragment may differ.
type difference struct {
	*candidate
	at            string
	f             *field
	name          string // of the place in the object that it is a field of
	pod, fragment *tree.Node
	in            *tree.Node // the pod's object that it is a field of
}

// within goes down a protected path and gives the first difference there, or nil.
func (d *difference) within(pod, fragment *tree.Node, path []string) *difference {
	if len(path) == 0 {
		d.pod, d.fragment = pod, fragment
		return d.find()
	}
	return d.member(path[0]).within(pod.Get(path[0]), fragment.Get(path[0]), path[1:])
}

func (d *difference) member(name string) *difference {
	return &difference{candidate: d.candidate, at: d.at + "/" + tree.Escape(name), f: d.f.at(name), name: name}
}

// find is the first place at or below d where the pod is not what the fragment
// says, or says more. What Kubernetes itself fills in does not count.
func (d *difference) find() *difference {
	switch {
	case d.fragment == nil || d.fragment.Kind() == tree.Null:
		if d.pod == nil || d.f.absentIsZero && isZero(d.pod) || d.fills() {
			return nil
		}
		return d
	case d.pod == nil:
		if d.f.absentIsZero && isZero(d.fragment) {
			return nil
		}
		return d
	case d.pod.Kind() != d.fragment.Kind():
		if d.f.quantity && d.f.equalScalars(d.pod, d.fragment) {
			return nil
		}
		return d
	case d.fragment.Kind() == tree.Object:
		return d.findMember()
	case d.fragment.Kind() == tree.Array:
		return d.findItem()
	case d.f.equalScalars(d.pod, d.fragment) || d.name == "imagePullPolicy" && d.pod.IsText(string(corev1.PullAlways)):
		return nil // AlwaysPullImages
	}
	return d
}

func (d *difference) findMember() *difference {
	members := d.fragment.Members()
	for i := range members {
		name := members[i].Name()
		if found := d.member(name).within(d.pod.Get(name), &members[i].Node, nil); found != nil {
			return found
		}
	}
	members = d.pod.Members()
	for i := range members {
		name := members[i].Name()
		if d.fragment.Get(name) != nil {
			continue
		}
		extra := d.member(name)
		extra.in = d.pod
		if found := extra.within(&members[i].Node, nil, nil); found != nil {
			return found
		}
	}
	return nil
}

// findItem compares lists: those without a key item by item, the others by their
// keys, each of which may stand there once.
func (d *difference) findItem() *difference {
	theirs, own := d.pod.Items(), d.fragment.Items()
	elem := d.f.elem
	if elem == nil {
		elem = &schema{}
	}
	if d.f.shape != keyedList {
		if len(theirs) != len(own) {
			return d
		}
		for i := range own {
			if found := d.item(elem, theirs, i).within(&theirs[i], &own[i], nil); found != nil {
				return found
			}
		}
		return nil
	}
	next, used := 0, make([]bool, len(own))
	for i := range theirs {
		at := d.f.find(own, &theirs[i])
		switch {
		case at < 0 && d.isTokenMount(&theirs[i]):
			continue
		case at < 0 || used[at]: // one more, which would win
			extra := d.item(elem, theirs, i)
			extra.pod, extra.fragment = &theirs[i], nil
			return extra
		case d.name == "env" && at < next:
			return d // a variable may refer to those before it
		}
		next, used[at] = at, true
		if found := d.item(elem, theirs, i).within(&theirs[i], &own[at], nil); found != nil {
			return found
		}
	}
	for i := range own {
		if !used[i] {
			return &difference{candidate: d.candidate, at: d.at + "/-", f: elem.asField(), fragment: &own[i]}
		}
	}
	return nil
}

func (d *difference) item(elem *schema, items []tree.Node, i int) *difference {
	return &difference{candidate: d.candidate, at: item(d.at, items, i), f: elem.asField()}
}

// isTokenMount says whether an item of a list is what the ServiceAccount plugin
// adds, or what Pillion put in its place.
func (d *difference) isTokenMount(mount *tree.Node) bool {
	volume := mount.Get("name")
	return d.name == "volumeMounts" && volume != nil && len(mount.Members()) == 3 &&
		mount.Get("readOnly").Kind() == tree.True && mount.Get("mountPath") != nil && mount.Get("mountPath").IsText(tokenMountPath) &&
		(volume.IsText(noTokenVolume) || d.isTokenVolume(volume))
}

// isTokenVolume says whether the volume of that name projects the pod's API token:
// its name alone anyone can give to a volume.
func (c *candidate) isTokenVolume(name *tree.Node) bool {
	volumes := c.pod.At("spec", "volumes").Items()
	for i := range volumes {
		if !name.SameText(volumes[i].Get("name")) || !strings.HasPrefix(name.Text(), tokenVolumePrefix) {
			continue
		}
		sources := volumes[i].At("projected", "sources").Items()
		return slices.ContainsFunc(sources, func(s tree.Node) bool { return s.Get("serviceAccountToken") != nil })
	}
	return false
}

// sameVolume says whether the pod's volume is the template's: nothing less, and
// nothing more than Kubernetes' defaults.
func (c *candidate) sameVolume(pod, fragment *tree.Node, s *schema) bool {
	return (&difference{candidate: c, f: s.asField()}).within(pod, fragment, nil) == nil
}

// fills says whether Kubernetes itself may have put something into a container
// where the template says nothing: a default, the ServiceAccount plugin's mount,
// or a LimitRange's resources.
func (d *difference) fills() bool {
	if d.f.parent == nil {
		return d.f.quantity // of a resource
	}
	switch place := d.f.parent.Name() + "." + d.name; place {
	case "Container.resources", "ResourceRequirements.limits", "ResourceRequirements.requests":
		return true
	case "Container.imagePullPolicy", "ImageVolumeSource.pullPolicy":
		return d.pod.IsText(string(corev1.PullAlways)) || d.pod.IsText(string(corev1.PullIfNotPresent))
	case "Container.volumeMounts":
		mounts := d.pod.Items()
		return len(mounts) == 1 && d.isTokenMount(&mounts[0])
	case "ContainerPort.hostPort":
		return d.candidate.pod.At("spec", "hostNetwork").Kind() == tree.True && d.in != nil && sameNumber(d.pod, orElse(d.in.Get("containerPort"), d.pod))
	default:
		return d.pod.String() == defaulted(place)
	}
}

// defaulted is what the API server writes into a field of a container or a volume
// that is not there (SetObjectDefaults_Pod in k8s.io/kubernetes/pkg/apis/core/v1), as JSON;
// "" for the others.
func defaulted(place string) string {
	switch place {
	case "Container.terminationMessagePath":
		return `"` + corev1.TerminationMessagePathDefault + `"`
	case "Container.terminationMessagePolicy":
		return `"` + string(corev1.TerminationMessageReadFile) + `"`
	case "Probe.timeoutSeconds", "Probe.successThreshold":
		return "1"
	case "Probe.periodSeconds":
		return "10"
	case "Probe.failureThreshold":
		return "3"
	case "HTTPGetAction.path":
		return `"/"`
	case "HTTPGetAction.scheme":
		return `"` + string(corev1.URISchemeHTTP) + `"`
	case "GRPCAction.service":
		return `""`
	case "ContainerPort.protocol":
		return `"` + string(corev1.ProtocolTCP) + `"`
	case "ObjectFieldSelector.apiVersion":
		return `"v1"`
	case "ResourceFieldSelector.divisor":
		return `"0"`
	case "FileKeySelector.optional":
		return "false"
	case "ConfigMapVolumeSource.defaultMode", "SecretVolumeSource.defaultMode", "DownwardAPIVolumeSource.defaultMode", "ProjectedVolumeSource.defaultMode":
		return "420" // 0644
	case "ServiceAccountTokenProjection.expirationSeconds":
		return "3600"
	case "HostPathVolumeSource.type":
		return `""`
	case "VolumeSource.emptyDir":
		return "{}"
	case "PersistentVolumeClaimSpec.volumeMode":
		return `"` + string(corev1.PersistentVolumeFilesystem) + `"`
	}
	return ""
}
