// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

func container() reflect.Type            { return reflect.TypeFor[corev1.Container]() }
func volume() reflect.Type               { return reflect.TypeFor[corev1.Volume]() }
func volumeMount() reflect.Type          { return reflect.TypeFor[corev1.VolumeMount]() }
func resourceRequirements() reflect.Type { return reflect.TypeFor[corev1.ResourceRequirements]() }

// container merges a container of the fragment into a list of the pod.
func (p *planner) container(pod, fragment *tree.Node, s *schema, at string) {
	name := fragment.Get("name").Text()
	for _, list := range containerLists() {
		items := p.pod.At("spec", list).Items()
		if found := s.find(items, fragment); found >= 0 {
			if !strings.HasSuffix(at, "/"+list) {
				p.conflict("the pod has a container named %s in %s, where the template does not put it", name, list)
				return
			}
			p.knownContainer(&items[found], fragment, s, at+"/"+strconv.Itoa(found))
			return
		}
	}
	p.checkContainer(nil, fragment)
	p.insert(pod, p.place(pod, fragment, at), *fragment)
}

func (p *planner) knownContainer(existing, fragment *tree.Node, s *schema, at string) {
	if s.elem.contains(existing, fragment) {
		return
	}
	if other := p.bringer(existing); other != "" {
		p.conflict("the template %s brings another container named %s", other, fragment.Get("name").Text())
		return
	}
	if !p.marked(p.t) {
		p.conflict("the pod has a container of its own named %s; to have the template fill in what it leaves out, set the annotation %s: \"true\"",
			fragment.Get("name").Text(), p.t.Annotation(templates.AnnotationCustomize))
		return
	}
	p.checkContainer(existing, fragment)
	p.object(existing, fragment, s.elem, at)
}

// bringer is the other template that a container of the pod came from, or "".
func (p *planner) bringer(existing *tree.Node) string {
	for _, t := range p.set.Templates {
		if t != p.t && slices.Contains(t.Containers, existing.Get("name").Text()) && (existing.Added() || p.marked(t)) && !p.marked(p.t) {
			return t.Name
		}
	}
	return ""
}

// place is the index for a new container: by default, native sidecars stand
// before all init containers, so that they serve those too, and everything else last.
// What templates put first stands in the order of the templates.
func (p *planner) place(pod, fragment *tree.Node, at string) int {
	place := p.t.Spec.Placement.Containers
	if strings.HasSuffix(at, "/initContainers") {
		place = p.t.Spec.Placement.InitContainers
		if place == "" && fragment.Get("restartPolicy").IsText(string(corev1.ContainerRestartPolicyAlways)) {
			place = templates.First
		}
	}
	items := pod.Items()
	if place != templates.First {
		return len(items)
	}
	i := 0
	for i < len(items) && p.standsBefore(&items[i], fragment) {
		i++
	}
	return i
}

// standsBefore says whether a container at the front of a list was put there by
// an earlier template, or by this one from earlier in its own list.
func (p *planner) standsBefore(existing, fragment *tree.Node) bool {
	name := existing.Get("name").Text()
	for _, c := range p.candidates {
		own := c.t.Containers
		if c == p.candidate {
			own = own[:slices.Index(own, fragment.Get("name").Text())]
		}
		if slices.Contains(own, name) {
			return existing.Added() || c.marked(c.t) || c.same(existing)
		}
		if c == p.candidate {
			return false
		}
	}
	return false
}

// checkContainer finds what the API server would refuse, or silently break, if
// fragment were added to existing; nil stands for a new container.
func (p *planner) checkContainer(existing, fragment *tree.Node) {
	if !p.dry {
		return
	}
	p.checkMounts(existing, fragment)
	p.checkPorts(existing, fragment)
	p.checkResources(fragment)
}

// checkResources finds a parameter that makes a request larger than its limit.
func (p *planner) checkResources(fragment *tree.Node) {
	requests := fragment.At("resources", "requests").Members()
	for i := range requests {
		limit := fragment.At("resources", "limits", requests[i].Name())
		if limit == nil {
			continue
		}
		asked, errA := resource.ParseQuantity(scalarText(&requests[i].Node))
		most, errB := resource.ParseQuantity(scalarText(limit))
		if errA == nil && errB == nil && asked.Cmp(most) > 0 {
			p.failed = fmt.Errorf("the request of %s (%s) is more than its limit (%s)", requests[i].Name(), asked.String(), most.String())
		}
	}
}

func (p *planner) checkMounts(existing, fragment *tree.Node) {
	seen := map[string]bool{}
	mounts := fragment.Get("volumeMounts").Items()
	for i := range mounts {
		at := path.Clean(mounts[i].Get("mountPath").Text())
		if seen[at] {
			p.conflict("the template mounts two volumes at %s", at)
		}
		seen[at] = true
	}
	devices := existing.Get("volumeDevices").Items()
	for i := range devices {
		if at := devices[i].Get("devicePath").Text(); seen[path.Clean(at)] {
			p.conflict("the pod has a block device at %s", at)
		}
	}
}

func (p *planner) checkPorts(existing, fragment *tree.Node) {
	name := fragment.Get("name").Text()
	if existing != nil {
		name = existing.Get("name").Text()
	}
	ports := fragment.Get("ports").Items()
	for i := range ports {
		own := existing.Get("ports").Items()
		for j := range own {
			if n := ports[i].Get("name"); n != nil && own[j].Get("name") != nil && n.IsText(own[j].Get("name").Text()) &&
				!sameNumber(ports[i].Get("containerPort"), own[j].Get("containerPort")) {
				p.conflict("the container %s has another port named %s", name, n.Text())
			}
		}
		if hostPort := ports[i].Get("hostPort"); hostPort != nil && !isZero(hostPort) {
			p.checkHostPort(name, &ports[i])
		}
	}
}

// checkHostPort: two containers with the same port of the node never start, and
// the API server's validation does not find it between the two lists.
func (p *planner) checkHostPort(name string, port *tree.Node) {
	for _, list := range containerLists() {
		containers := p.pod.At("spec", list).Items()
		for i := range containers {
			if containers[i].Get("name").IsText(name) {
				continue
			}
			theirs := containers[i].Get("ports").Items()
			for j := range theirs {
				taken := theirs[j].Get("hostPort")
				if taken != nil && sameNumber(taken, port.Get("hostPort")) && protocol(&theirs[j]) == protocol(port) && sameHost(&theirs[j], port) {
					p.conflict("the host port %s is taken by the container %s", taken, containers[i].Get("name").Text())
				}
			}
		}
	}
}

// sameHost says whether two ports share an address of the node; no address is all of them.
func sameHost(a, b *tree.Node) bool {
	ipA, ipB := a.Get("hostIP").Text(), b.Get("hostIP").Text()
	return ipA == ipB || ipA == "" || ipB == "" || ipA == "0.0.0.0" || ipB == "0.0.0.0"
}
