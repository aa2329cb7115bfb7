// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// maxMisplaced is the maximum length of a sentence about misplaced keys, in runes, if it can be
// that short. The API server recommends at most 120 for a warning, which starts with the code.
const maxMisplaced = 105

// Misplaced returns findings about Pillion's labels and annotations in a workload's own metadata. They have no
// effect there: only those of the pod template count. This is the most common mistake, and the pods do
// not show it. Keys that the pod template has as well are no mistake, nor are records of
// injections, which Pillion writes.
func (i *Injector) Misplaced(apiVersion, kind string, object *jsontree.Node) (all []Finding) {
	i = i.For(object.At("metadata", "namespace").Text())
	for _, t := range workloads.PodTemplates(apiVersion, kind, object) {
		for _, f := range i.misplacedFor(t, kind, object) {
			if !slices.Contains(all, f) { // several pod templates
				all = append(all, f)
			}
		}
	}
	return all
}

// misplacedFor is Misplaced for one pod template.
func (i *Injector) misplacedFor(t workloads.PodTemplate, kind string, object *jsontree.Node) (all []Finding) {
	reads := t.Where() + ".metadata"
	title := kind + "/" + problem.Cut(nameOf(object), maxValue)
	pod, holder := t.Node.Get("metadata"), object
	for depth, name := range t.At {
		if depth == 0 || strings.HasSuffix(strings.ToLower(t.At[depth-1]), "template") { // a CronJob's jobTemplate has metadata too
			at := workloads.PodTemplate{At: append(slices.Clone(t.At[:depth]), "metadata")}.Where()
			all = append(all, i.misplacedAt(at, reads, title, holder, pod)...)
		}
		holder = childNode(holder, name)
	}
	return all
}

// misplacedAt is misplacedFor for the metadata of one object that contains the pod template. At is where the metadata is, reads is
// where Pillion reads the keys instead, and title names the workload, all in words.
func (i *Injector) misplacedAt(at, reads, title string, holder, pod *jsontree.Node) (all []Finding) {
	own, others := i.misplacedIn(holder.Get("metadata"), pod)
	if len(own) > 0 {
		all = append(all, misplacedFinding(title, at, reads, own))
	}
	for _, reader := range []string{ofNamespace, ofAccount} {
		if len(others[reader]) > 0 {
			all = append(all, misplacedFinding(title, at, reader, others[reader]))
		}
	}
	return all
}

// childNode returns a member of an object or an item of a list, or nil.
func childNode(n *jsontree.Node, name string) *jsontree.Node {
	items := n.Items()
	if i, err := strconv.Atoi(name); err == nil && i < len(items) {
		return &items[i]
	}
	return n.Get(name)
}

func nameOf(object *jsontree.Node) string {
	if name := object.At("metadata", "name").Text(); name != "" {
		return name
	}
	return object.At("metadata", "generateName").Text()
}

// Where Pillion reads a parameter that pods may not set, in words.
const (
	ofNamespace = "the namespace's annotations"
	ofAccount   = "the ServiceAccount's annotations"
)

// misplacedIn returns the keys of some metadata that have an effect only on a pod (own), and those that
// have an effect only on a namespace or a ServiceAccount (others, by the words for that object). Pod is the metadata of the pod
// template. Keys that it has with the same value are omitted.
func (i *Injector) misplacedIn(metadata, pod *jsontree.Node) (own []string, others map[string][]string) {
	others = map[string][]string{}
	var first []string // keys that concern all templates
	for _, field := range []string{"labels", "annotations"} {
		members := metadata.Get(field).Members()
		for k := range members {
			key := members[k].Name()
			template, name, ofTemplate := templates.SplitAnnotation(key)
			switch there := pod.At(field, key); {
			case members[k].Kind() == jsontree.Null, there.SameText(&members[k]), there != nil && there.String() == members[k].String():
			case strings.HasPrefix(key, templates.Domain+"/"):
				first = append(first, key)
			case i.meantKey(key) != "":
				own = append(own, key+" (misspelled)")
			case field == "labels" && i.setsParameter(key) && pod.At("annotations", key) == nil:
				own = append(own, key+" (a label, and must be an annotation)")
			case field == "annotations" && i.products.readsKey(key):
				if reader := i.productReadElsewhere(key); reader != "" {
					others[reader] = append(others[reader], key)
				} else {
					own = append(own, key)
				}
			case field == "labels" || !ofTemplate || templates.IsRecord(name): // labels are the template's own
			default:
				if reader := i.readElsewhere(template, name); reader != "" {
					others[reader] = append(others[reader], key)
				} else {
					own = append(own, key)
				}
			}
		}
	}
	for reader, keys := range others {
		slices.Sort(keys)
		others[reader] = slices.Compact(keys)
	}
	slices.Sort(first)
	slices.Sort(own)
	return slices.Concat(slices.Compact(first), slices.Compact(own)), others
}

// readElsewhere returns where Pillion reads a parameter that pods may not set, in words, or "" if pods may set it.
func (i *Injector) readElsewhere(template, param string) string {
	t := i.byName[template]
	if t == nil {
		return ""
	}
	k := slices.IndexFunc(t.Spec.Params, func(p v1alpha1.Param) bool { return p.Name == param })
	if k < 0 {
		return ""
	}
	return paramReadElsewhere(&t.Spec.Params[k])
}

// paramReadElsewhere is readElsewhere for a parameter.
func paramReadElsewhere(p *v1alpha1.Param) string {
	switch {
	case p.Overridable(v1alpha1.ByPod):
		return ""
	case p.Overridable(v1alpha1.ByServiceAccount) && !p.Overridable(v1alpha1.ByNamespace):
		return ofAccount
	}
	return ofNamespace
}

// productReadElsewhere is readElsewhere for an annotation of another product.
func (i *Injector) productReadElsewhere(key string) (reader string) {
	for _, t := range i.templates {
		for k := range t.Spec.Params {
			if p := &t.Spec.Params[k]; p.Reads(key) {
				if reader = paramReadElsewhere(p); reader == "" {
					return ""
				}
			}
		}
	}
	return reader
}

// misplacedFinding returns the finding about some keys. It names as many as fit.
func misplacedFinding(title, at, reads string, keys []string) Finding {
	const most = 16
	message := ""
	for n := min(len(keys), most); n > 0; n-- {
		message = title + " has " + someOf(keys, n) + " in " + at + "; Pillion reads " + reads
		if utf8.RuneCountInString(message) <= maxMisplaced {
			break
		}
	}
	return Finding{Code: CodeMisplaced, Message: cleanMessage(message), Mode: v1alpha1.Warn}
}

// someOf returns the first n names, and how many more there are.
func someOf(names []string, n int) string {
	var some []string
	for _, name := range names[:n] {
		some = append(some, problem.Cut(name, maxValue))
	}
	last := some[n-1]
	switch more := len(names) - n; {
	case more > 0:
		return strings.Join(some, ", ") + fmt.Sprintf(" and %d more", more)
	case n == 1:
		return last
	default:
		return strings.Join(some[:n-1], ", ") + " and " + last
	}
}
