// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// A change in place is up to four writes, each atomic: the claim, images, resources, and last the record, which removes the
// claim. A rollout that was interrupted between them finds fewer differences the next time.
// Each patch tests that the pod is still as it was planned for.

// operation is a JSON Patch operation.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"` // nil to remove
}

// Images returns the JSON Patch of the images, or nil if none changes.
func (o *Pod) Images() ([]byte, error) { return o.buildPatch(InPlace) }

// Resources returns the JSON Patch for the resize subresource, or nil if no resources change.
func (o *Pod) Resources() ([]byte, error) { return o.buildPatch(Resize) }

func (o *Pod) buildPatch(how How) ([]byte, error) {
	var ops []operation
	made := map[string]bool{}
	for i := range o.Changes {
		if c := &o.Changes[i]; c.How == how {
			ops = append(ops, o.fieldOperations(c, made)...)
		}
	}
	if len(ops) == 0 {
		return nil, nil
	}
	return json.Marshal(append(o.testSamePod(), ops...))
}

// testSamePod tests that it is the same pod.
func (o *Pod) testSamePod() []operation { return []operation{{"test", "/metadata/uid", o.UID}} }

// fieldOperations change one field of a container. Others must not have changed it in the meantime. Made
// has the paths of objects that earlier operations have added.
func (o *Pod) fieldOperations(c *Change, made map[string]bool) []operation {
	list, name, field := c.container()
	containers := listItems(ensureObject(o.doc, "spec"), list)
	at := slices.IndexFunc(containers, func(item object) bool { return item["name"] == name })
	path := "/spec/" + list + "/" + strconv.Itoa(at)
	ops := []operation{{"test", path + "/name", name}}
	parent := findNamed(containers, name)
	steps := splitPointer(field)
	for i, step := range steps {
		path += "/" + step
		value, ok := parent[schema.Unescape(step)]
		switch last := i == len(steps)-1; {
		case last && ok:
			ops = append(ops, operation{"test", path, value})
		case !last && !ok && !made[path]:
			ops, made[path] = append(ops, operation{"add", path, object{}}), true
		}
		parent, _ = value.(object)
	}
	return append(ops, operation{"add", path, c.To})
}

// Record returns the JSON Patch of the annotations that record the injection, or nil. It also removes the claim of the rollout.
func (o *Pod) Record() ([]byte, error) {
	if len(o.Records) == 0 {
		return nil, nil
	}
	ops := o.testSamePod()
	if version, ok := ensureObject(o.doc, "metadata")["resourceVersion"]; ok { // the plan may be of a moment ago
		ops = append(ops, operation{"test", "/metadata/resourceVersion", version})
	}
	annotations, _ := ensureObject(o.doc, "metadata")["annotations"].(object)
	if annotations == nil {
		ops = append(ops, operation{"add", "/metadata/annotations", object{}})
	}
	if claim, ok := annotations[AnnotationUnproved]; ok {
		ops = append(ops, operation{"test", claimPath(), claim}, operation{"remove", claimPath(), nil})
	}
	for _, key := range slices.Sorted(maps.Keys(o.Records)) {
		if path := "/metadata/annotations/" + jsontree.Escape(key); o.Records[key] == "" {
			ops = append(ops, operation{"remove", path, nil})
		} else {
			ops = append(ops, operation{"add", path, o.Records[key]})
		}
	}
	return json.Marshal(ops)
}

// Unclaim returns the JSON Patch that puts back what was in place of a claim: the claim of another rollout, or "".
func Unclaim(uid string, c Claim, before string) ([]byte, error) {
	ops := []operation{{"test", "/metadata/uid", uid}, {"test", claimPath(), c.String()}}
	if before == "" {
		ops = append(ops, operation{"remove", claimPath(), nil})
	} else {
		ops = append(ops, operation{"add", claimPath(), before})
	}
	return json.Marshal(ops)
}

// afterChanges returns the pod after all its changes.
func (o *Pod) afterChanges() ([]byte, error) {
	text, err := json.Marshal(o.doc)
	if err != nil {
		return nil, err
	}
	doc, err := decodeObject(text)
	if err != nil {
		return nil, err
	}
	for i := range o.Changes {
		list, name, field := o.Changes[i].container()
		if list == "" {
			continue
		}
		at := findNamed(listItems(ensureObject(doc, "spec"), list), name)
		steps := splitPointer(field)
		for _, step := range steps[:len(steps)-1] {
			at = ensureObject(at, schema.Unescape(step))
		}
		at[schema.Unescape(steps[len(steps)-1])] = o.Changes[i].To
	}
	annotations := ensureObject(ensureObject(doc, "metadata"), "annotations")
	for key, revision := range o.Records {
		if annotations[key] = revision; revision == "" {
			delete(annotations, key)
		}
	}
	return json.Marshal(doc)
}

// Restarts reports whether a change restarts a container.
func (o *Pod) Restarts() bool {
	if o.doc == nil {
		return o.restarts
	}
	return slices.ContainsFunc(o.Changes, func(c Change) bool { return c.How == InPlace || c.How == Resize && o.restartsFor(&c) })
}

// Forget frees the memory of what only the patches need.
func (o *Pod) Forget() { o.restarts, o.doc = o.Restarts(), nil }

// restartsFor reports whether the kubelet restarts a container to change one of its resources, by its resizePolicy.
func (o *Pod) restartsFor(c *Change) bool {
	list, name, field := c.container()
	return slices.ContainsFunc(listItems(findNamed(listItems(ensureObject(o.doc, "spec"), list), name), "resizePolicy"), func(policy object) bool {
		resource, _ := policy["resourceName"].(string)
		return strings.HasSuffix(field, "/"+resource) && policy["restartPolicy"] == string(corev1.RestartContainer)
	})
}

// Unrecorded reports whether all that is left is the record of a change in place.
func (o *Pod) Unrecorded() bool {
	return o.Action == Patch && !slices.ContainsFunc(o.Changes, func(c Change) bool { return c.How != Record })
}

// ResizeSummary returns what a resize changes. Pods of a workload with the same change have the same string.
func (o *Pod) ResizeSummary() string {
	var all []string
	for i := range o.Changes {
		if c := &o.Changes[i]; c.How == Resize {
			all = append(all, fmt.Sprintf("%s %s %s", c.Path, c.From, c.To))
		}
	}
	return strings.Join(all, "\n")
}

// Summary returns what changes, for users.
func (o *Pod) Summary() string {
	var all []string
	for i := range o.Changes {
		if c := &o.Changes[i]; c.How != Record {
			all = append(all, c.String())
		}
	}
	if len(all) == 0 {
		return "its record"
	}
	return strings.Join(all, ", ")
}
