// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Paths are the paths of pod templates in kinds that Pillion does not know, as a user named them.
type Paths []path

// path is where objects of a kind have pod templates.
type path struct {
	kind, group string // the group is "" for any
	names       []string
}

// every is the name in a path that stands for all items of a list.
const every = "[*]"

// segment matches one name of a path, and the sign for the items of the list there.
var segment = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_-]*)(\[\*\])?$`)

// ParsePaths parses the values of a flag: KIND=PATH or KIND.GROUP=PATH, for example Rollout=spec.template or
// JobSet.jobset.x-k8s.io=spec.replicatedJobs[*].template.spec.template.
func ParsePaths(values []string) (all Paths, err error) {
	for _, value := range values {
		of, at, ok := strings.Cut(value, "=")
		kind, group, _ := strings.Cut(of, ".")
		p := path{kind: kind, group: group}
		for name := range strings.SplitSeq(at, ".") {
			parts := segment.FindStringSubmatch(name)
			if !ok || kind == "" || parts == nil {
				return nil, fmt.Errorf("%q must be KIND=PATH, for example Rollout=spec.template or JobSet=spec.replicatedJobs[*].template.spec.template", value)
			}
			if p.names = append(p.names, parts[1]); parts[2] != "" {
				p.names = append(p.names, every)
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// hasKind reports whether there is a path for a kind.
func (p Paths) hasKind(apiVersion, kind string) bool {
	return slices.ContainsFunc(p, func(of path) bool { return of.matchesKind(apiVersion, kind) })
}

func (p path) matchesKind(apiVersion, kind string) bool {
	group, _, _ := strings.Cut(apiVersion, "/")
	return p.kind == kind && (p.group == "" || p.group == group)
}

// findPodTemplates returns the pod templates of an object, by the paths for its kind.
func (p Paths) findPodTemplates(apiVersion, kind string, object *jsontree.Node) (all []workloads.PodTemplate) {
	for _, of := range p {
		if of.matchesKind(apiVersion, kind) {
			all = append(all, templatesAt(object, of.names, nil)...)
		}
	}
	return all
}

// templatesAt returns the objects to which a path leads from a value.
func templatesAt(n *jsontree.Node, names, at []string) (all []workloads.PodTemplate) {
	if len(names) == 0 {
		if n.Kind() != jsontree.Object {
			return nil
		}
		return []workloads.PodTemplate{{At: at, Node: n}}
	}
	if names[0] != every {
		return templatesAt(n.Get(names[0]), names[1:], append(slices.Clip(at), names[0]))
	}
	items := n.Items()
	for i := range items {
		all = append(all, templatesAt(&items[i], names[1:], append(slices.Clip(at), strconv.Itoa(i)))...)
	}
	return all
}
