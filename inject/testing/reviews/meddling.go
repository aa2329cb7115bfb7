// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Meddle returns a pod as another mutating webhook might leave it between two calls of Pillion. It makes up to three
// changes. Damaged reports whether one of them may be a finding: it changes a container that may be a template's, or
// removes or replaces something. It panics if the pod is no JSON.
func (g *Sets) Meddle(pod []byte) (changed []byte, damaged bool) {
	var root map[string]any
	d := json.NewDecoder(bytes.NewReader(pod))
	d.UseNumber()
	if err := d.Decode(&root); err != nil {
		panic(err)
	}
	p := &meddled{g, root, memberObject(root, "metadata"), memberObject(root, "spec")}
	for range 1 + g.IntN(3) {
		if g.oneIn(2) {
			harmless := p.harmlessChanges()
			harmless[g.IntN(len(harmless))]()
			continue
		}
		damages := p.harmfulChanges()
		damages[g.IntN(len(damages))]()
		damaged = true
	}
	text, err := json.Marshal(root)
	if err != nil {
		panic(err)
	}
	return text, damaged
}

// meddled is a pod that another webhook changes.
type meddled struct {
	*Sets

	root, metadata, spec map[string]any
}

func memberObject(o map[string]any, name string) map[string]any {
	m, ok := o[name].(map[string]any)
	if !ok {
		m = map[string]any{}
		o[name] = m
	}
	return m
}

// harmlessChanges are what injectors, policies and Kubernetes' own plugins add.
func (p *meddled) harmlessChanges() []func() {
	return []func(){
		func() { p.insertInSpec("containers", map[string]any{"name": "mesh", "image": "mesh:1"}) },
		func() {
			p.insertInSpec("initContainers", map[string]any{"name": "mesh-init", "image": "mesh:1", "restartPolicy": "Always"})
		},
		func() { p.insertInSpec("initContainers", map[string]any{"name": "mesh-once", "image": "mesh:1"}) },
		func() { p.insertInSpec("volumes", map[string]any{"name": "mesh", "emptyDir": map[string]any{}}) },
		func() {
			p.insertInSpec("tolerations", map[string]any{"key": "mesh", "operator": "Exists", "effect": "NoExecute"})
		},
		func() { p.insertInSpec("imagePullSecrets", map[string]any{"name": "mesh"}) },
		func() { memberObject(p.metadata, "annotations")["mesh.example/status"] = "injected" },
		func() { memberObject(p.metadata, "labels")["mesh.example/on"] = "true" },
		func() { p.reverseList(p.spec, "volumes") },
		func() { p.reverseList(p.spec, "tolerations") },
		func() { p.changeEachContainer(func(c map[string]any) { p.reverseList(c, "volumeMounts") }) },
	}
}

// harmfulChanges are what such webhooks do to containers of templates, and to what pods had.
func (p *meddled) harmfulChanges() []func() {
	return []func(){
		func() {
			p.changeEachContainer(func(c map[string]any) {
				p.insertInto(c, "env", map[string]any{"name": p.pickString("MESH", "E0"), "value": "mesh"})
			})
		},
		func() {
			p.insertInSpec("volumes", map[string]any{"name": "mesh", "emptyDir": map[string]any{}})
			p.changeEachContainer(func(c map[string]any) {
				p.insertInto(c, "volumeMounts", map[string]any{"name": "mesh", "mountPath": "/mesh"})
			})
		},
		func() { p.changeEachContainer(func(c map[string]any) { p.sortList(c, "env") }) },
		func() { p.reverseList(p.spec, p.pickString("containers", "initContainers")) },
		func() { p.sortList(p.spec, p.pickString("containers", "initContainers")) },
		func() { p.changeOneContainer(func(c map[string]any) { delete(c, "restartPolicy") }) },
		func() {
			p.changeEachContainer(func(c map[string]any) {
				if _, ok := c["securityContext"]; !ok {
					c["securityContext"] = map[string]any{"runAsNonRoot": true, "allowPrivilegeEscalation": false}
				}
			})
		},
		func() {
			p.changeOneContainer(func(c map[string]any) {
				if _, ok := c["resources"]; !ok {
					c["resources"] = map[string]any{"limits": map[string]any{"cpu": "1"}}
				}
			})
		},
		func() {
			p.changeOneContainer(func(c map[string]any) { c["image"] = fmt.Sprint("mirror.example/", c["image"]) })
		},
		func() {
			p.changeOneContainer(func(c map[string]any) {
				delete(c, p.pickString("env", "volumeMounts", "ports", "securityContext", "args"))
			})
		},
		func() { p.removeItem(p.pickString("containers", "initContainers", "volumes")) },
		func() {
			for _, key := range p.recordKeys() {
				delete(memberObject(p.metadata, "annotations"), key)
			}
		},
		func() {
			if key := p.pickRecordKey(); key != "" {
				delete(memberObject(p.metadata, "annotations"), key)
			}
		},
		func() {
			if key := p.pickRecordKey(); key != "" {
				memberObject(p.metadata, "annotations")[key] = p.pickString("", "true", "0123456789ab")
			}
		},
		func() {
			delete(p.spec, p.pickString("tolerations", "securityContext", "terminationGracePeriodSeconds"))
		},
		func() { p.spec["terminationGracePeriodSeconds"] = 1 },
		func() { p.spec["hostUsers"] = false },
		func() { p.spec["hostNetwork"] = true },
		func() { p.spec["os"] = map[string]any{"name": "linux"} },
		func() { p.spec["shareProcessNamespace"] = true },
	}
}

// recordKeys returns the keys of the annotations in which Pillion records what it injected, sorted.
func (p *meddled) recordKeys() (keys []string) {
	for key := range memberObject(p.metadata, "annotations") {
		if strings.HasSuffix(key, ".pillion.dev/injected") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// pickRecordKey returns one of the records, or "" if there is none.
func (p *meddled) pickRecordKey() string {
	if keys := p.recordKeys(); len(keys) > 0 {
		return keys[p.IntN(len(keys))]
	}
	return ""
}

// containers returns the containers of both lists.
func (p *meddled) containers() (all []map[string]any) {
	for _, list := range []string{"initContainers", "containers"} {
		items, _ := p.spec[list].([]any)
		for i := range items {
			if c, ok := items[i].(map[string]any); ok {
				all = append(all, c)
			}
		}
	}
	return all
}

func (p *meddled) changeEachContainer(change func(container map[string]any)) {
	for _, c := range p.containers() {
		change(c)
	}
}

// changeOneContainer changes one container.
func (p *meddled) changeOneContainer(change func(container map[string]any)) {
	if all := p.containers(); len(all) > 0 {
		change(all[p.IntN(len(all))])
	}
}

func (p *meddled) insertInSpec(list string, item map[string]any) { p.insertInto(p.spec, list, item) }

// insertInto adds an item at a random place of a list that has none with its name.
func (p *meddled) insertInto(o map[string]any, list string, item map[string]any) {
	items, _ := o[list].([]any)
	if slices.ContainsFunc(items, func(other any) bool { o, _ := other.(map[string]any); return o["name"] == item["name"] }) {
		return
	}
	o[list] = slices.Insert(items, p.IntN(len(items)+1), any(item))
}

func (p *meddled) reverseList(o map[string]any, list string) {
	items, _ := o[list].([]any)
	slices.Reverse(items)
}

func (p *meddled) sortList(o map[string]any, list string) {
	items, _ := o[list].([]any)
	slices.SortStableFunc(items, func(a, b any) int {
		one, _ := a.(map[string]any)
		other, _ := b.(map[string]any)
		return strings.Compare(fmt.Sprint(one["name"]), fmt.Sprint(other["name"]))
	})
}

// removeItem removes an item of a list, and the mounts of a volume.
func (p *meddled) removeItem(list string) {
	items, _ := p.spec[list].([]any)
	if len(items) == 0 || list == "containers" && len(items) == 1 {
		return
	}
	i := p.IntN(len(items))
	item, _ := items[i].(map[string]any)
	p.spec[list] = slices.Delete(items, i, i+1)
	if list != "volumes" {
		return
	}
	p.changeEachContainer(func(c map[string]any) {
		for _, of := range []string{"volumeMounts", "volumeDevices"} {
			if mounts, ok := c[of].([]any); ok {
				c[of] = slices.DeleteFunc(mounts, func(m any) bool { o, _ := m.(map[string]any); return o["name"] == item["name"] })
			}
		}
	})
}
