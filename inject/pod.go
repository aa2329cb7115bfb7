// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/drift"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/validation"
)

// tier selects templates of a set.
type tier uint8

const (
	bothTiers   tier = iota
	clusterTier      // those of the cluster, with an Injector for only these
	ownTier          // those of the namespace, with an Injector for all
)

// requestFacts is what the engine knows besides the pod: the rest of a [Request], and what the work on the tiers adds to it.
type requestFacts struct {
	operation, username string
	dryRun              bool
	optedIn             bool
	namespace           request.Namespace
	account             *request.ServiceAccount // nil if no template reads it
	owner               workloads.Owner         // of a pod template
	claims              []string
	done                <-chan struct{}
	detail, alone, file bool
	written             bool
	copiesLabels        bool
	tier                tier
	// tenantContainers are the containers that templates of the namespace added: by name, the template. Only the templates of the
	// cluster know them, for which they count as the user's.
	tenantContainers map[string]string
	denied           map[string]string // templates of the namespace that are left out, with the reasons
	// copied reports whether the pod is a copy of a pod to which templates have added.
	copied bool
}

// sizeBefore returns the size of what was added before the pod was copied, in bytes. Additions to a pod that is no copy count as a
// part of it. Such a pod comes from a caller that judges what Inject has just returned.
func (f *requestFacts) sizeBefore(pod *jsontree.Node) int {
	if !f.copied {
		return 0
	}
	return pod.AddedSize()
}

// isGone reports whether the result is no longer needed. A function that finds this out returns at once, with any result: Inject
// calls isGone, too, and returns [ErrGone]. It is called before each template, app container and expression, which take a few
// milliseconds each at most.
func (f *requestFacts) isGone() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// subject is the pod during one round, and what the engine knows about it. Its parts differ in who writes them and in how long they
// are valid.
type subject struct {
	// The same for all rounds of a pod, see [round.startPod].
	*loadedSet
	request requestFacts
	nodes   *jsontree.Arena // memory for new nodes

	podView
	visibility
	chosenCanaries
	sharedResults

	// at and beside are empty pointers with memory for longer paths. Merging continues at, and whatever has to name another place
	// at the same time continues beside.
	at, beside schema.Pointer
}

// podView is the pod, with the parts of it that are needed often, read when the round begins.
type podView struct {
	pod         *jsontree.Node
	grown       bool // whether earlier rounds added something
	labels      *jsontree.Node
	annotations *jsontree.Node
	requested   requested
	os          string
	onHost      bool            // whether the pod uses the node's network
	appArmor    bool            // whether an annotation is for AppArmor
	compared    drift.Pod       // what comparisons need to know
	claims      map[string]bool // claims of the request
}

// visibility is what decides about which containers expressions see, see visibility.go. [round.exposeUnproven] writes exposed and
// proven, and [round.renderTemplate] writes unseen.
type visibility struct {
	exposed map[string]bool  // names of containers
	unseen  map[*loaded]bool // templates that see no container with one of their own names
	// proven are names of containers that templates rendered before anything was added. It is kept for all rounds of a pod.
	proven map[string]bool
}

// chosenCanaries is what [canaryChoice.chooseForPod] has chosen. Both are by the template that a canary replaces: the canary that takes
// its place, and the first canary that should have, but cannot be injected.
type chosenCanaries struct {
	canaryOf, failedCanaryOf map[*loaded]*loaded
}

// sharedResults are results that all templates share. Each is computed when it is needed first.
type sharedResults struct {
	tokens       [2]*jsontree.Node            // see tokenMount
	keys         map[*jsontree.Node]*keyIndex // by list, see findByKey
	presentNames []bool                       // by the numbers in brings, see hasContainer
	marks        map[*loaded]bool             // see isMarked
	ports        nodePorts                    // see portsTaken
	// tokenVolumes are sorted names, see IsTokenVolume. They are known if tokenVolumesKnown is true.
	tokenVolumes      []string
	tokenVolumesKnown bool
	// runsOfMarked is the result of markedRuns if runsKnown is true.
	runsOfMarked []fragment.Runs
	runsKnown    bool
}

// reuseMemory returns results without values, with the memory of the old ones.
func (r *sharedResults) reuseMemory() sharedResults {
	return sharedResults{presentNames: r.presentNames[:0], runsOfMarked: r.runsOfMarked[:0], tokenVolumes: r.tokenVolumes[:0]}
}

// beginRound begins another round.
func (s *subject) beginRound(pod *jsontree.Node, grown bool) {
	*s = subject{
		loadedSet: s.loadedSet, request: s.request, nodes: s.nodes, visibility: visibility{proven: s.proven}, sharedResults: s.reuseMemory(),
		at: slices.Grow(s.at[:0], 8), beside: slices.Grow(s.beside[:0], 8),
		podView: podView{
			pod:         pod,
			grown:       grown,
			labels:      pod.At("metadata", "labels"),
			annotations: pod.At("metadata", "annotations"),
			os:          schema.OS(pod),
			onHost:      pod.At("spec", "hostNetwork").Kind() == jsontree.True,
		},
	}
	for _, claim := range s.request.claims {
		if s.claims == nil {
			s.claims = make(map[string]bool, len(s.request.claims))
		}
		s.claims[claim] = true
	}
	s.appArmor = hasAppArmor(s.annotations)
	s.compared = drift.Pod{OnHost: s.onHost, Nodes: s.nodes, Volumes: s}
	s.requested = parseRequested(s.annotation(AnnotationTemplates))
}

// replacePod continues the round with another pod, from which something was removed.
func (s *subject) replacePod(pod *jsontree.Node) {
	s.pod, s.tokens, s.keys, s.presentNames, s.marks = pod, [2]*jsontree.Node{}, nil, nil, nil
	s.dropCached()
}

// dropCached drops the results that change if something is added to the pod.
func (s *subject) dropCached() { s.ports, s.tokenVolumesKnown, s.runsKnown = nil, false, false }

// readMarksAgain reads the pod's annotations again after records of injections were added to them.
func (s *subject) readMarksAgain() {
	s.annotations, s.marks, s.runsKnown = s.pod.At("metadata", "annotations"), nil, false
}

// isOfOtherTier reports whether a template adds nothing in this tier. The templates of the cluster are in the set of the
// namespace's tier only because ownership and conflicts depend on them.
func (s *subject) isOfOtherTier(t *loaded) bool {
	return s.request.tier == ownTier && t.Namespace == ""
}

func (s *subject) optIn() *jsontree.Node                { return s.labels.Get(LabelInject) }
func (s *subject) annotation(key string) *jsontree.Node { return s.annotations.Get(key) }

// isMarked reports whether an annotation of the pod says that containers with the template's names
// belong to the template. The annotation records an injection, or requests that Pillion completes
// the containers. Every user can write it, so it proves nothing. This is safe, because its only effect is that
// Pillion adds what the container lacks.
func (s *subject) isMarked(t *loaded) bool {
	if len(s.annotations.Members()) < longList {
		return s.readMark(t)
	}
	marked, known := s.marks[t]
	if !known {
		if s.marks == nil {
			s.marks = map[*loaded]bool{}
		}
		marked = s.readMark(t)
		s.marks[t] = marked
	}
	return marked
}

func (s *subject) readMark(t *loaded) bool {
	return s.annotation(t.injected) != nil && !s.isCanarys(t) || s.annotation(t.customize).IsText("true")
}

// isCanarys reports whether the pod's record of the template was written for a canary that took its place.
func (s *subject) isCanarys(t *loaded) bool {
	return slices.ContainsFunc(t.canaries, s.hasRecords)
}

// hasRecords reports whether the pod has both records of a canary. One alone may come from a copied manifest.
func (s *subject) hasRecords(t *loaded) bool {
	own, base := s.annotation(t.injected), s.annotation(t.base.injected)
	return own != nil && base != nil && own.SameText(base)
}

// IsTokenVolume reports whether a volume with that name projects the pod's API token. The name
// alone is no proof, because any volume may have it.
func (s *subject) IsTokenVolume(name string) bool {
	if !s.tokenVolumesKnown {
		s.tokenVolumes, s.tokenVolumesKnown = s.tokenVolumes[:0], true
		volumes := s.pod.At("spec", "volumes").Items()
		for i := range volumes {
			if name := volumes[i].Get("name").Text(); strings.HasPrefix(name, validation.TokenVolumePrefix) && projectsToken(&volumes[i]) {
				s.tokenVolumes = append(s.tokenVolumes, name)
			}
		}
		slices.Sort(s.tokenVolumes)
	}
	_, is := slices.BinarySearch(s.tokenVolumes, name)
	return is
}

func projectsToken(volume *jsontree.Node) bool {
	sources := volume.At("projected", "sources").Items()
	for i := range sources {
		if sources[i].Get("serviceAccountToken") != nil {
			return true
		}
	}
	return false
}

// podResources reports whether the pod has pod-level resources (KEP-2837).
func (s *subject) podResources() bool {
	resources := s.pod.At("spec", "resources")
	return len(resources.Get("requests").Members())+len(resources.Get("limits").Members()) > 0
}

// withItem returns a copy of an object with another item in a list.
func (s *subject) withItem(n *jsontree.Node, list string, item jsontree.Node) jsontree.Node {
	old := n.Get(list).Items()
	items := append(s.nodes.Nodes(len(old)+1), old...)
	return s.nodes.With(n, list, jsontree.Items(append(items, item)...))
}

// isBrought reports whether a template brings containers with that name, and the container is not one that a template of the
// namespace added.
func (s *subject) isBrought(name string) bool {
	return s.request.tenantContainers[name] == "" && (s.brings[name] > 0 || slices.ContainsFunc(s.patterns, func(own string) bool { return fragment.IsNamed(own, name) }))
}

// tooMany returns an error message if one of the pod's lists of containers is too long for any template, or "".
// It does not count templates' containers, because otherwise a second run could find a pod too long that the first run made.
func (s *subject) tooMany() string {
	for _, list := range schema.ContainerLists() {
		items := s.pod.At("spec", list).Items()
		own := len(items)
		if own <= maxContainers {
			continue
		}
		if own <= maxContainers+len(s.brings)+maxContainers*len(s.patterns) {
			for i := range items {
				if s.isBrought(items[i].Get("name").Text()) {
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

// maxContainers limits the cost of a pod. No node runs as many containers, but the API server calls
// the webhook before it validates the pod.
const maxContainers = 500

// keyIndex indexes the items of a long list by key. It contains only the items before the first added one, because additions may be
// undone.
type keyIndex struct {
	first map[string]int // the index of the first item with a key
	came  int            // the number of items in the index
}

// longList is the number of items from which a list is indexed, instead of searched for each
// lookup.
const longList = 32

// containerSchema returns the schema of a container.
func (s *subject) containerSchema() *schema.Schema { return s.schema.At("spec").At("containers").Elem }

// storeNode copies a node into the arena and returns its address.
func (s *subject) storeNode(n jsontree.Node) *jsontree.Node { return &append(s.nodes.Nodes(1), n)[0] }

// hasAppArmor reports whether a pod has an annotation for AppArmor.
func hasAppArmor(annotations *jsontree.Node) bool {
	members := annotations.Members()
	for i := range members {
		if strings.HasPrefix(members[i].Name(), corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			return true
		}
	}
	return false
}
