// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
)

// ownChanges returns the differences between a running pod and its target, in what Pillion put there.
func (p *Planner) ownChanges(pod []byte, t *target, written managers) ([]Change, error) {
	set := p.templatesInUse()
	all, err := Changes(pod, t.pod, set...)
	if err != nil {
		return nil, err
	}
	added, err := Changes(t.base, t.pod, set...)
	if err != nil {
		return nil, err
	}
	doc, err := decodeObject(pod)
	if err != nil {
		return nil, err
	}
	paths := make([]string, 0, len(added))
	for i := range added {
		paths = append(paths, added[i].Path)
	}
	f := &filter{planner: p, added: pathsOf(paths), running: doc, target: t, claims: map[string]bool{}}
	for _, volume := range listItems(ensureObject(doc, "spec"), "volumes") {
		name, _ := volume["name"].(string)
		f.claims[name] = volume["persistentVolumeClaim"] != nil
	}
	if f.others, err = p.findOthers(all, doc, t, written); err != nil {
		return nil, err
	}
	var own []Change
	for i := range all {
		c := &all[i]
		f.requireNewPod(c)
		if f.isOwn(c) {
			own = append(own, *c)
		}
	}
	return own, nil
}

// filter finds the differences that are Pillion's.
type filter struct {
	planner *Planner
	added   paths // what injection adds to the base
	running object
	target  *target
	claims  map[string]bool // the names of volumes, and whether each is of a claim
	others  map[string]bool // the paths of other webhooks' additions, see findOthers
}

func (f *filter) isOwn(c *Change) bool {
	annotations := ensureObject(ensureObject(f.running, "metadata"), "annotations")
	limits, _ := annotations["kubernetes.io/limit-ranger"].(string)
	list, _, field := c.container()
	switch {
	case c.recordKey() != "":
		return c.recordKey() != inject.AnnotationUninject
	case list != "" && c.Template != "" && field == "imagePullPolicy" && string(c.From) == `"Always"`:
		return false // the AlwaysPullImages plugin sets it
	case list != "" && c.Template != "" && c.To == nil && limitRanged(limits, c):
		return false
	case f.others[c.Path]:
		return false
	case list != "" && c.Template != "" && f.added.hasPath(c.Path):
		return true
	case list != "" && c.Template != "" && field == "" && c.To == nil:
		return f.hasRecord(c.Template) // otherwise it is the user's container of that name
	case c.To != nil:
		return f.added.hasPath(c.Path)
	}
	return f.isLeftOver(c)
}

// hasRecord reports whether the running pod records an injection of a template.
func (f *filter) hasRecord(template string) bool {
	_, ok := ensureObject(ensureObject(f.running, "metadata"), "annotations")[template+"."+templates.Domain+"/"+templates.AnnotationInjected]
	return ok
}

// isLeftOver reports whether the running pod has something that neither its base nor its target has, and
// that an older revision of a template may have added. If others change new pods, it may be theirs,
// and is ignored. Labels and annotations are ignored, because any user may add them at any time.
func (f *filter) isLeftOver(c *Change) bool {
	if f.planner.Mutated || f.target.stripped || c.From == nil {
		return false
	}
	list, _, field := c.container()
	switch part, _, _ := strings.Cut(field, "/"); {
	case list != "":
		return part == "" || part == "env" || part == "envFrom" || part == "volumeMounts"
	case strings.HasPrefix(c.Path, "/spec/volumes/"):
		return !f.isClaim(strings.TrimPrefix(c.Path, "/spec/volumes/"))
	}
	return false
}

// isClaim reports whether a volume may be of a StatefulSet's claim. Its controller adds these.
func (f *filter) isClaim(path string) bool {
	name, _, _ := strings.Cut(path, "/")
	return f.claims[schema.Unescape(name)]
}

// requireNewPod makes a new pod necessary if another webhook may have changed the repository of an image, or pinned it to a
// digest, when the pod was created, because only a new pod passes that webhook. Without a controller, a container with
// another repository may be the app's: a newer revision of a template may use its name.
func (f *filter) requireNewPod(c *Change) {
	from, to := string(c.From), string(c.To)
	repositories := (f.planner.Mutated || f.target.stripped) && repositoryOf(from) != repositoryOf(to)
	if pinned := f.planner.Mutated && strings.Contains(from, "@") && !strings.Contains(to, "@"); c.How == InPlace && (repositories || pinned) {
		c.How = NewPod
	}
}

// repositoryOf returns an image's name without its tag and digest.
func repositoryOf(image string) string {
	image, _, _ = strings.Cut(strings.Trim(image, `"`), "@")
	if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
		image = image[:at]
	}
	return image
}
