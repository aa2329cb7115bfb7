// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject/schema"
)

// Manager is the field manager of everything that a rollout writes.
const Manager = "pillion-rollout"

// managers are the managed fields of a pod: who wrote which field, and when.
type managers struct {
	created time.Time
	entries []manager
}

// manager is one entry. Fields is a tree of its fields, in the format FieldsV1.
type manager struct {
	metav1.ManagedFieldsEntry
	fields fieldTree
}

type fieldTree map[string]json.RawMessage

func (f fieldTree) subtree(name string) fieldTree {
	var sub fieldTree
	if json.Unmarshal(f[name], &sub) != nil {
		return nil
	}
	return sub
}

func managersOf(created time.Time, entries []metav1.ManagedFieldsEntry) managers {
	m := managers{created: created}
	for _, e := range entries {
		one := manager{ManagedFieldsEntry: e}
		if e.FieldsV1 != nil && json.Unmarshal(e.FieldsV1.GetRawBytes(), &one.fields) == nil {
			m.entries = append(m.entries, one)
		}
	}
	return m
}

// changedBy returns who has changed a field of a container since the pod was created, or "" if its
// creator or an earlier rollout wrote it. If that cannot be told, sure is false.
//
// A manager loses a field when another one changes it. The entry of a manager has the time of its
// last change of any field.
func (m managers) changedBy(c *Change) (by string, sure bool) {
	list, name, field := c.container()
	by, sure = "", len(m.entries) > 0 // another API server may not keep managed fields
	for i := range m.entries {
		e := &m.entries[i]
		container := e.fields.subtree("f:spec").subtree("f:" + list).subtree(itemKey(name))
		if !ownsField(container, field) {
			continue
		}
		_, creates := container["."]
		switch {
		case e.Manager == Manager, creates && e.Subresource == "" && (!e.changedAfter(m.created) || neverChangesContainers(e.Manager)):
			return "", true
		case creates && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == "":
			by, sure = e.Manager, false // its change may have been of another field
		default:
			by = e.Manager
		}
	}
	return by, sure
}

// createdContainers returns the containers, as list/name, that the pod had when a webhook was first called for it.
func (m managers) createdContainers() map[string]bool {
	all := map[string]bool{}
	for i := range m.entries {
		spec := m.entries[i].fields.subtree("f:spec")
		for _, list := range containerLists() {
			containers := spec.subtree("f:" + list)
			for key := range containers {
				var of struct{ Name string }
				_, creates := containers.subtree(key)["."]
				if text, ok := strings.CutPrefix(key, "k:"); ok && creates && json.Unmarshal([]byte(text), &of) == nil {
					all[list+"/"+of.Name] = true
				}
			}
		}
	}
	return all
}

// neverChangesContainers reports whether a manager creates pods and later changes only their
// metadata.
func neverChangesContainers(name string) bool { return name == "kube-controller-manager" }

// changedAfter reports whether the entry changed after the pod was created. Times have seconds.
func (m *manager) changedAfter(created time.Time) bool {
	return m.Time != nil && m.Time.After(created.Add(time.Second))
}

// wroteContainer reports whether an earlier rollout has changed a container of the pod.
func (m managers) wroteContainer() bool {
	for i := range m.entries {
		if e := &m.entries[i]; e.Manager == Manager && e.fields["f:spec"] != nil {
			return true
		}
	}
	return false
}

// wroteField reports whether an earlier rollout has changed a field of a container, and others have not since.
func (m managers) wroteField(c *Change) bool {
	list, name, field := c.container()
	return slices.ContainsFunc(m.entries, func(e manager) bool {
		return e.Manager == Manager && ownsField(e.fields.subtree("f:spec").subtree("f:"+list).subtree(itemKey(name)), field)
	})
}

// wroteAt returns when a rollout last changed containers of the pod, or the zero time.
func (m managers) wroteAt() (at time.Time) {
	for i := range m.entries {
		if e := &m.entries[i]; e.Manager == Manager && e.fields["f:spec"] != nil && e.Time != nil && e.Time.After(at) {
			at = e.Time.Time
		}
	}
	return at
}

// itemKey returns the key of a list's item in FieldsV1.
func itemKey(name string) string {
	key, err := json.Marshal(map[string]string{"name": name})
	if err != nil {
		return ""
	}
	return "k:" + string(key)
}

// ownsField reports whether a tree has a field. An entry for a parent without further fields owns all of
// it.
func ownsField(f fieldTree, field string) bool {
	if f == nil {
		return false
	}
	for _, name := range splitPointer(field) {
		value, ok := f["f:"+schema.Unescape(name)]
		if !ok {
			return false
		}
		if string(value) == "{}" {
			return true
		}
		if json.Unmarshal(value, &f) != nil {
			return false
		}
	}
	return true
}

// Changed returns when an earlier rollout last changed the containers of a pod, or the zero time.
func Changed(pod *metav1.ObjectMeta) time.Time {
	return managersOf(pod.CreationTimestamp.Time, pod.ManagedFields).wroteAt()
}

// Restarted returns when an earlier rollout restarted a workload, or the zero time if its pod template was
// changed by others since.
func Restarted(workload *metav1.ObjectMeta) (at time.Time) {
	ours := false
	m := managersOf(workload.CreationTimestamp.Time, workload.ManagedFields)
	for i := range m.entries {
		e := &m.entries[i]
		if e.fields.subtree("f:spec").subtree("f:template") == nil || e.Time == nil || e.Time.Time.Before(at) {
			continue
		}
		ours = e.Manager == Manager && (ours || e.Time.After(at)) // if both are in the same second, others win
		at = e.Time.Time
	}
	if !ours {
		return time.Time{}
	}
	return at
}
