// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// asked is what a [Request] says besides the pod.
type asked struct {
	operation, username string
	dryRun              bool
	optedIn             bool
	namespace           templates.Namespace
	claims              []string
	done                <-chan struct{}
	detail, alone, file bool
}

// gone reports whether nobody waits for the result. The caller then stops, whatever its
// result is by now: Inject finds out too. It is called before each template, app
// container and expression, each of which is a few milliseconds of work at most.
func (a *asked) gone() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// subject is the pod in one look at it: what it and the request say, and what was found out about
// it once for all templates.
type subject struct {
	asked     asked
	schema    *schema.Schema
	templates []*loaded
	brings    map[string]int // the containers that any template brings, numbered from 1
	excluded  []string       // namespaces
	nodes     *tree.Arena    // memory for what is made to be added

	pod         *tree.Node
	grown       bool // by earlier looks
	labels      *tree.Node
	annotations *tree.Node
	requested   requested
	os          string
	onHost      bool           // its network is the node's
	at, beside  schema.Pointer // both of the pod, with room to go further

	// What was found out.
	tokens  [2]*tree.Node // see tokenMount
	keys    map[*tree.Node]*keys
	here    []bool           // see has
	marks   map[*loaded]bool // see marked
	ports   nodePorts        // see portsTaken
	volumes map[string]bool  // see isTokenVolume
	// ours is what ofTemplates returns, if it is known.
	ours      []templates.Runs
	oursKnown bool
	claims    map[string]bool // of the request
}

// look begins another look at the pod.
func (s *subject) look(pod *tree.Node, grown bool) {
	*s = subject{
		asked: s.asked, schema: s.schema, templates: s.templates, brings: s.brings, excluded: s.excluded, nodes: s.nodes,
		at: slices.Grow(s.at[:0], 8), beside: slices.Grow(s.beside[:0], 8), here: s.here[:0], ours: s.ours[:0],
		pod:         pod,
		grown:       grown,
		labels:      pod.At("metadata", "labels"),
		annotations: pod.At("metadata", "annotations"),
		os:          podOS(pod),
		onHost:      pod.At("spec", "hostNetwork").Kind() == tree.True,
	}
	for _, claim := range s.asked.claims {
		if s.claims == nil {
			s.claims = make(map[string]bool, len(s.asked.claims))
		}
		s.claims[claim] = true
	}
	s.requested = parseRequested(s.annotation(AnnotationTemplates))
}

// replace is for a pod that lacks something that the one before had.
func (s *subject) replace(pod *tree.Node) {
	s.pod, s.tokens, s.keys, s.here, s.marks = pod, [2]*tree.Node{}, nil, nil, nil
	s.forget()
}

// forget is for when something was added to the pod.
func (s *subject) forget() { s.ports, s.volumes, s.oursKnown = nil, nil, false }

func (s *subject) optIn() *tree.Node                { return s.labels.Get(LabelInject) }
func (s *subject) annotation(key string) *tree.Node { return s.annotations.Get(key) }

func (s *subject) annotationText(key string) (string, bool) {
	n := s.annotation(key)
	return n.Text(), n != nil
}

// marked says whether the pod says that a container of the name that a template
// brings is the template's: because it was injected, or is to be filled in. The
// annotation proves nothing, and need not: all that it lets happen is that what
// the container lacks is added.
func (s *subject) marked(t *loaded) bool {
	if len(s.annotations.Members()) < longList {
		return s.says(t)
	}
	marked, known := s.marks[t]
	if !known {
		if s.marks == nil {
			s.marks = map[*loaded]bool{}
		}
		marked = s.says(t)
		s.marks[t] = marked
	}
	return marked
}

func (s *subject) says(t *loaded) bool {
	return s.annotation(t.injected) != nil ||
		s.annotation(t.customize).IsText("true")
}

// isTokenVolume says whether the volume of that name projects the pod's API token:
// its name alone anyone can give to a volume.
func (s *subject) isTokenVolume(name string) bool {
	if s.volumes == nil {
		s.volumes = map[string]bool{}
		volumes := s.pod.At("spec", "volumes").Items()
		for i := range volumes {
			name := volumes[i].Get("name").Text()
			if _, twice := s.volumes[name]; !twice && strings.HasPrefix(name, templates.TokenVolumePrefix) {
				sources := volumes[i].At("projected", "sources").Items()
				s.volumes[name] = slices.ContainsFunc(sources, func(source tree.Node) bool { return source.Get("serviceAccountToken") != nil })
			}
		}
	}
	return s.volumes[name]
}

// podResources says whether the pod asks for resources as a whole (KEP-2837).
func (s *subject) podResources() bool {
	resources := s.pod.At("spec", "resources")
	return len(resources.Get("requests").Members())+len(resources.Get("limits").Members()) > 0
}

// withItem is a copy of an object with one item more in a list.
func (s *subject) withItem(n *tree.Node, list string, item tree.Node) tree.Node {
	old := n.Get(list).Items()
	items := append(s.nodes.Nodes(len(old)+1), old...)
	return s.nodes.With(n, list, tree.Items(append(items, item)...))
}

// tooMany says which of the pod's lists is too long for any template, or "". What
// templates bring does not count, or a pod would have too many by being injected.
func (s *subject) tooMany() string {
	for _, list := range containerLists() {
		items := s.pod.At("spec", list).Items()
		own := len(items)
		if own <= maxContainers {
			continue
		}
		if own <= maxContainers+len(s.brings) {
			for i := range items {
				if s.brings[items[i].Get("name").Text()] > 0 {
					own--
				}
			}
		}
		if own > maxContainers {
			return fmt.Sprintf("the pod has more than %d %s", maxContainers, list)
		}
	}
	return ""
}

// maxContainers bounds what a pod can cost: no node runs as many, and the API
// server asks before it has looked at the pod.
const maxContainers = 500

// keys are the items of a long list by their keys, of those that came with the
// pod: what is added may be taken back.
type keys struct {
	first map[string]int
	came  int
}

// longList is how many items a list has that is gone through once for all that
// are looked for in it, and not once for each.
const longList = 32
