// SPDX-License-Identifier: Apache-2.0

package server

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// room limits the labels and annotations that are kept of all objects of a namespace together: users may create very many
// objects in one. An object that does not fit is kept as one that is too large. It may fit when it changes, or when it is read
// again. A nil room has no limit.
type room struct {
	most int // in bytes, for each namespace

	mu    sync.Mutex
	used  map[string]int // by namespace
	sizes map[cache.ObjectName]int
}

// perObject is what an object with labels or annotations counts for in addition to these, in bytes.
const perObject = 64

func newRoom(most int) *room {
	return &room{most: most, used: map[string]int{}, sizes: map[cache.ObjectName]int{}}
}

// keepIfRoom counts an object. It returns the object, or what is kept of it if there is no room.
func (r *room) keepIfRoom(m *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	if r == nil {
		return m
	}
	name := cache.MetaObjectToName(m)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetSize(name)
	now := contentSize(m)
	switch {
	case now == 0 || isTooLarge(m):
		return m
	case r.used[name.Namespace]+now+perObject > r.most:
		return withoutContent(m)
	}
	r.sizes[name] = now + perObject
	r.used[name.Namespace] += now + perObject
	return m
}

// dropDeleted no longer counts an object that was deleted.
func (r *room) dropDeleted(object any) {
	name, err := cache.DeletionHandlingObjectToName(object)
	if r == nil || err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetSize(name)
}

func (r *room) forgetSize(name cache.ObjectName) {
	was, ok := r.sizes[name]
	if !ok {
		return
	}
	delete(r.sizes, name)
	if r.used[name.Namespace] -= was; r.used[name.Namespace] == 0 {
		delete(r.used, name.Namespace)
	}
}

// withoutContent returns what is kept of an object that is too large.
func withoutContent(m *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, ResourceVersion: m.ResourceVersion, Annotations: map[string]string{tooLarge: ""},
	}}
}

// tooLarge is the annotation of objects that were compacted because they are too large. No user can write it.
const tooLarge = ""

func isTooLarge(m *metav1.PartialObjectMetadata) bool {
	_, ok := m.Annotations[tooLarge]
	return ok
}

// contentSize returns the bytes of the labels and annotations of an object.
func contentSize(m *metav1.PartialObjectMetadata) (n int) {
	for _, all := range []map[string]string{m.Labels, m.Annotations} {
		for key, value := range all {
			n += len(key) + len(value)
		}
	}
	return n
}
