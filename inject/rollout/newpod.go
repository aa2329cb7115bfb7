// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/validation"
)

// A pod "as it would be if it were created now" starts from one of two bases: what its controller
// would create, or, without a controller that is known, the pod without the containers of templates.

// object is decoded JSON.
type object = map[string]any

func decodeObject(text []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var doc object
	err := d.Decode(&doc)
	return doc, err
}

func splitPointer(path string) []string {
	if path = strings.TrimPrefix(path, "/"); path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// ensureObject returns a member that is an object, and creates it.
func ensureObject(in object, name string) object {
	sub, ok := in[name].(object)
	if !ok {
		sub = object{}
		in[name] = sub
	}
	return sub
}

func listItems(in object, list string) (all []object) {
	values, _ := in[list].([]any)
	for _, value := range values {
		if item, ok := value.(object); ok {
			all = append(all, item)
		}
	}
	return all
}

func findNamed(list []object, name any) object {
	for _, item := range list {
		if item["name"] == name {
			return item
		}
	}
	return nil
}

// containerLists returns the names of the lists of containers in a pod's spec.
func containerLists() []string { return []string{"initContainers", "containers"} }

// fromOwner returns the pod that the owner would create in the place of a running one.
func fromOwner(owner, running []byte) (base []byte, claims []string, err error) {
	o, err := jsontree.Parse(owner)
	if err != nil {
		return nil, nil, err
	}
	path, ok := workloads.PodIn(o.Get("apiVersion").Text(), o.Get("kind").Text())
	template := o.At(path...)
	if !ok || template.Kind() != jsontree.Object {
		return nil, nil, nil
	}
	doc, err := decodeObject(template.AppendTo(nil))
	if err != nil {
		return nil, nil, err
	}
	pod, err := decodeObject(running)
	if err != nil {
		return nil, nil, err
	}
	copyIdentity(doc, pod)
	giveToken(ensureObject(doc, "spec"), ensureObject(pod, "spec"))
	if o.Get("kind").IsText("Job") {
		giveIndex(ensureObject(doc, "spec"), ensureObject(pod, "spec"))
	}
	doc["apiVersion"], doc["kind"] = "v1", "Pod"
	base, err = json.Marshal(doc)
	return base, workloads.Claims(o), err
}

// copyIdentity copies what controllers and the API server write into each pod, and what templates may
// read.
func copyIdentity(doc, pod object) {
	to, from := ensureObject(doc, "metadata"), ensureObject(pod, "metadata")
	for _, name := range []string{"name", "generateName", "namespace", "ownerReferences"} {
		if value, ok := from[name]; ok {
			to[name] = value
		}
	}
	for _, name := range []string{"labels", "annotations"} {
		own := ensureObject(to, name)
		for key, value := range ensureObject(from, name) {
			if _, ok := own[key]; !ok && writtenByControllers(key) {
				own[key] = value
			}
		}
		if len(own) == 0 {
			delete(to, name)
		}
	}
	to, from = ensureObject(doc, "spec"), ensureObject(pod, "spec")
	for _, name := range []string{"hostname", "subdomain", "serviceAccountName", "serviceAccount"} {
		if value, ok := from[name]; ok && to[name] == nil {
			to[name] = value
		}
	}
}

// writtenByControllers reports whether controllers of Kubernetes write a label or an annotation into
// pods when they create them.
func writtenByControllers(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return slices.Contains([]string{"pod-template-hash", "controller-revision-hash", "pod-template-generation", "job-name", "controller-uid"}, key) ||
		slices.Contains([]string{"apps.kubernetes.io", "batch.kubernetes.io", "statefulset.kubernetes.io"}, domain)
}

// giveToken adds the API token that the ServiceAccount plugin has added to the running pod.
func giveToken(to, from object) {
	has, tokens := itemNames(to, "volumes"), map[string]bool{}
	volumes, _ := to["volumes"].([]any)
	for _, volume := range listItems(from, "volumes") {
		if name, _ := volume["name"].(string); strings.HasPrefix(name, validation.TokenVolumePrefix) && !has[name] && !tokens[name] {
			volumes, tokens[name] = append(volumes, volume), true
		}
	}
	if len(tokens) == 0 {
		return
	}
	to["volumes"] = volumes
	eachCommonContainer(to, from, func(container, running object) {
		has := itemNames(container, "volumeMounts")
		mounts, _ := container["volumeMounts"].([]any)
		for _, mount := range listItems(running, "volumeMounts") {
			if name, _ := mount["name"].(string); tokens[name] && !has[name] {
				mounts, has[name] = append(mounts, mount), true
			}
		}
		if len(mounts) > 0 {
			container["volumeMounts"] = mounts
		}
	})
}

// giveIndex adds the variable that the controller of an Indexed Job has added to the containers of the running pod.
func giveIndex(to, from object) {
	const index = "JOB_COMPLETION_INDEX"
	eachCommonContainer(to, from, func(container, running object) {
		variable := findNamed(listItems(running, "env"), index)
		if env, _ := container["env"].([]any); variable != nil && findNamed(listItems(container, "env"), index) == nil {
			container["env"] = append(env, variable)
		}
	})
}

// itemNames returns the names of a list's items.
func itemNames(in object, list string) map[string]bool {
	all := map[string]bool{}
	for _, item := range listItems(in, list) {
		name, _ := item["name"].(string)
		all[name] = true
	}
	return all
}

// eachCommonContainer calls do for each container of a pod that another pod has, too.
func eachCommonContainer(to, from object, do func(container, running object)) {
	for _, list := range containerLists() {
		running := map[string]object{}
		for _, container := range listItems(from, list) {
			name, _ := container["name"].(string)
			running[name] = container
		}
		for _, container := range listItems(to, list) {
			name, _ := container["name"].(string)
			if of := running[name]; of != nil {
				do(container, of)
			}
		}
	}
}

// stripTemplates returns a running pod without the containers of the templates and without their records, or nil if that
// leaves no container.
func stripTemplates(running []byte, set []*templates.Template) ([]byte, error) {
	doc, err := decodeObject(running)
	if err != nil {
		return nil, err
	}
	annotations := ensureObject(ensureObject(doc, "metadata"), "annotations")
	spec := ensureObject(doc, "spec")
	annotation := func(key string) string {
		value, _ := annotations[key].(string)
		return value
	}
	for _, list := range containerLists() {
		containers, _ := spec[list].([]any)
		containers = slices.DeleteFunc(containers, func(value any) bool {
			item, _ := value.(object)
			name, _ := item["name"].(string)
			return broughtByTemplate(set, annotation, name)
		})
		if spec[list] = containers; len(containers) == 0 {
			delete(spec, list)
		}
	}
	if spec["containers"] == nil {
		return nil, nil
	}
	maps.DeleteFunc(annotations, func(key string, _ any) bool { return isRecord(key) || isBefore(key) })
	delete(doc, "status")
	return json.Marshal(doc)
}

// limitRanged reports whether a LimitRange has set the resource of a container that a change would
// remove, as the pod's annotation says.
func limitRanged(annotation string, c *Change) bool {
	list, name, field := c.container()
	kind := map[string]string{"containers": "container", "initContainers": "init container"}[list]
	parts := strings.Split(field, "/") // resources, limits, memory
	if len(parts) != 3 || parts[0] != "resources" {
		return false
	}
	set, _ := strings.CutPrefix(annotation, "LimitRanger plugin set: ")
	for sentence := range strings.SplitSeq(set, "; ") {
		resources, ok := strings.CutSuffix(sentence, " "+strings.TrimSuffix(parts[1], "s")+" for "+kind+" "+name)
		if ok && slices.Contains(strings.Split(resources, ", "), schema.Unescape(parts[2])) {
			return true
		}
	}
	return false
}
