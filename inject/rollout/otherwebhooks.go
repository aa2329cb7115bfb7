// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Other webhooks add variables, mounts and settings to all containers of a pod, also to those of templates. What they
// have added is theirs and stays: a new pod would have it, too.
//
// A running pod does not record who has added something. If a template's container has something that the template does
// not set, it is of another webhook or of an older revision of the template. The other containers of the pod show
// which: a webhook that adds to all containers has added the same to them.

// extras are the values that containers of a running pod have and that their owner's pod template and the current
// templates do not explain. The key is the path in the container and the value. The value is the template whose
// container it is, or else the container, or severalContainers.
type extras map[string]string

const severalContainers = "*"

func (e extras) addLeaves(in string, c *Change) error {
	leaves, err := leavesOf(c)
	for _, leaf := range leaves {
		if has, ok := e[leaf]; ok && has != in {
			e[leaf] = severalContainers
		} else {
			e[leaf] = in
		}
	}
	return err
}

// hasAll reports whether each value that a change would remove is in a container that is not of the same template.
func (e extras) hasAll(c *Change) (bool, error) {
	leaves, err := leavesOf(c)
	for _, leaf := range leaves {
		if in, ok := e[leaf]; !ok || in == holderOf(c) {
			return false, nil
		}
	}
	return err == nil, err
}

// holderOf returns whose container a change is about.
func holderOf(c *Change) string {
	list, name, _ := c.container()
	return cmp.Or(c.Template, "/"+list+"/"+name)
}

// leavesOf returns the path and the text of each value that a change removes from a container, without the parts of
// objects.
func leavesOf(c *Change) (leaves []string, err error) {
	n, err := jsontree.Parse(c.From)
	if err != nil {
		return nil, err
	}
	var descend func(at string, n *jsontree.Node)
	descend = func(at string, n *jsontree.Node) {
		members := n.Members()
		if len(members) == 0 {
			leaves = append(leaves, at+" "+sortedText(n))
		}
		for i := range members {
			descend(at+"/"+jsontree.Escape(members[i].Name()), &members[i])
		}
	}
	_, _, field := c.container()
	descend(field, n)
	return leaves, nil
}

// findExtras finds the extras among the differences between a running pod and its target. If the pod has no known
// owner, the containers that no template has brought may be as another webhook has changed them, so all their values
// count.
func (t *target) findExtras(all []Change) (extras, error) {
	found := extras{}
	for i := range all {
		c := &all[i]
		list, _, field := c.container()
		if list == "" || c.To != nil || field == "" && c.Template != "" {
			continue
		}
		if err := found.addParts(c); err != nil {
			return nil, err
		}
	}
	if !t.stripped {
		return found, nil
	}
	base, err := decodeObject(t.base)
	if err != nil {
		return nil, err
	}
	for _, list := range containerLists() {
		for _, item := range listItems(ensureObject(base, "spec"), list) {
			name, _ := item["name"].(string)
			from, err := json.Marshal(item)
			if err != nil {
				return nil, err
			}
			if err := found.addParts(&Change{Path: "/spec/" + list + "/" + jsontree.Escape(name), From: from}); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// addParts adds what a change removes from a container. If it removes the container, these are its fields, and the
// items of its lists.
func (e extras) addParts(c *Change) error {
	list, name, field := c.container()
	if field != "" {
		return e.addLeaves(holderOf(c), c)
	}
	pod := func(container any) ([]byte, error) {
		return json.Marshal(object{"spec": object{list: []any{container}}})
	}
	with, err := pod(c.From)
	if err != nil {
		return err
	}
	without, err := pod(object{"name": name})
	if err != nil {
		return err
	}
	parts, err := Changes(with, without)
	if err != nil {
		return err
	}
	for i := range parts {
		if err := e.addLeaves(holderOf(c), &parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// findOthers finds the additions of other webhooks to the templates' containers, by their paths: the template does not set
// them, and the pod has them in a container that is not of the template, too, or records that the current revision of the
// template was injected. The order of init containers is theirs if it differs only by their own ones.
func (p *Planner) findOthers(all []Change, pod object, t *target, written managers) (map[string]bool, error) {
	others := map[string]bool{}
	if !p.Mutated {
		return others, nil
	}
	extras, err := t.findExtras(all)
	if err != nil {
		return nil, err
	}
	now, err := decodeObject(t.pod)
	if err != nil {
		return nil, err
	}
	for i := range all {
		c := &all[i]
		if c.Path == initContainersPath {
			if others[c.Path], err = p.isOrderOfOthers(c, t, written); err != nil {
				return nil, err
			}
			continue
		}
		if _, _, field := c.container(); field == "" || c.Template == "" || c.To != nil {
			continue
		}
		if others[c.Path], err = extras.hasAll(c); err != nil {
			return nil, err
		}
		others[c.Path] = others[c.Path] || recordsSame(pod, now, c.Template)
	}
	return others, nil
}

// initContainersPath is the path of a change of the order of init containers.
const initContainersPath = "/spec/initContainers"

// isOrderOfOthers reports whether two orders of init containers, as lists of names, are the same without those that another
// webhook has added: neither the pod's creator nor a template brings them.
func (p *Planner) isOrderOfOthers(c *Change, t *target, written managers) (bool, error) {
	apps, err := appContainers(t, written)
	if err != nil {
		return false, err
	}
	known := func(text json.RawMessage) (names []string, err error) {
		err = json.Unmarshal(text, &names)
		return slices.DeleteFunc(names, func(name string) bool {
			return !apps["initContainers/"+name] && !slices.ContainsFunc(p.templatesInUse(), func(t *templates.Template) bool { return t.Brings(name) })
		}), err
	}
	was, err := known(c.From)
	if err != nil {
		return false, err
	}
	is, err := known(c.To)
	return slices.Equal(was, is), err
}

// recordsSame reports whether two pods record the same revision of a template.
func recordsSame(a, b object, template string) bool {
	record := template + "." + templates.Domain + "/" + templates.AnnotationInjected
	was, ok := ensureObject(ensureObject(a, "metadata"), "annotations")[record]
	return ok && was == ensureObject(ensureObject(b, "metadata"), "annotations")[record]
}
