// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
)

// formerTime is how long an object's former labels and annotations still count when pods are checked.
// By then, every replica has seen the change.
const formerTime = time.Minute

// maxFormer is how many former states of an object count at the same time.
const maxFormer = 3

// maxFormers limits the labels and annotations of all former states, in bytes. Beyond, only the present ones count.
const maxFormers = 8 << 20

// followed knows the metadata of all objects of one resource while its controller runs. It requests
// no types: the clients of all API groups would double the program's size.
type followed struct {
	store      cache.Store
	controller cache.Controller
	failed     atomic.Value // a string: why the objects cannot be watched

	former  sync.Map                    // *[]*metav1.PartialObjectMetadata by key, newest first, of objects that changed a moment ago
	formers atomic.Int64                // bytes of these
	later   func(time.Duration, func()) // time.AfterFunc
}

// initInformer keeps the labels and annotations of objects that have at most so many bytes of them, as far as there is room.
func (f *followed) initInformer(client metadata.Interface, resource string, most int, room *room) {
	options := cache.InformerOptions{
		ObjectType: &metav1.PartialObjectMetadata{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { f.countStored(object, room) },
			UpdateFunc: func(was, is any) { f.keepFormer(was, f.countStored(is, room)) },
			DeleteFunc: room.dropDeleted,
		},
		Transform: func(object any) (any, error) {
			object = compactObject(object, most)
			if m, ok := object.(*metav1.PartialObjectMetadata); ok { // a list that is being read has no more than what fits
				object = room.keepIfRoom(m)
			}
			return object, nil
		},
	}
	f.store, f.controller = kube.Inform(client, client.Resource(corev1.SchemeGroupVersion.WithResource(resource)), "", f.recordOutcome, options)
}

// countStored counts an object of the store, and returns what the store has of it then. It was counted when it was read, but one
// of the same name may have been deleted since.
func (f *followed) countStored(object any, room *room) any {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object
	}
	kept := room.keepIfRoom(m)
	if kept != m {
		_ = f.store.Update(kept) // fails only without a name
	}
	return kept
}

// compactObject drops what Pillion does not read, and of objects with too many labels and annotations also these: users may
// create many such objects.
func compactObject(object any, most int) any {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object
	}
	c := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, ResourceVersion: m.ResourceVersion, Labels: m.Labels, Annotations: m.Annotations,
	}}
	if contentSize(c) > most {
		return withoutContent(c)
	}
	return c
}

// recordOutcome records why the objects cannot be watched; client-go logs it. Known objects stay in use.
func (f *followed) recordOutcome(err error) {
	why := ""
	if err != nil {
		why = ": " + err.Error()
	}
	f.failed.Store(why)
}

// objectByKey returns nil if the object is not known.
func (f *followed) objectByKey(key string) *metav1.PartialObjectMetadata {
	object, _, _ := f.store.GetByKey(key)
	m, _ := object.(*metav1.PartialObjectMetadata)
	return m
}

// keepFormer keeps what an object was before it changed.
func (f *followed) keepFormer(was, is any) {
	old, ok1 := was.(*metav1.PartialObjectMetadata)
	now, ok2 := is.(*metav1.PartialObjectMetadata)
	if !ok1 || !ok2 || maps.Equal(old.Labels, now.Labels) && maps.Equal(old.Annotations, now.Annotations) {
		return
	}
	key, former := cache.MetaObjectToName(old).String(), []*metav1.PartialObjectMetadata{old}
	former = append(former, f.formerVersions(key)...)
	former = former[:min(len(former), maxFormer)]
	if isTooLarge(old) || f.formers.Load()+totalSize(former) > maxFormers {
		return
	}
	if replaced, ok := f.former.Swap(key, &former); ok {
		f.formers.Add(-totalSize(*replaced.(*[]*metav1.PartialObjectMetadata)))
	}
	f.formers.Add(totalSize(former))
	f.later(formerTime, func() {
		if f.former.CompareAndDelete(key, &former) {
			f.formers.Add(-totalSize(former))
		}
	})
}

func totalSize(all []*metav1.PartialObjectMetadata) (n int64) {
	for _, m := range all {
		n += int64(contentSize(m))
	}
	return n
}

// formerVersions returns what an object was a moment ago, newest first.
func (f *followed) formerVersions(key string) []*metav1.PartialObjectMetadata {
	if former, ok := f.former.Load(key); ok {
		return *former.(*[]*metav1.PartialObjectMetadata)
	}
	return nil
}

// checkLoaded reports how many objects are known. It returns an error if they are not loaded yet.
func (f *followed) checkLoaded(what string) (string, error) {
	why, _ := f.failed.Load().(string)
	if !f.controller.HasSynced() {
		return "", errors.New("the " + what + " are not loaded yet" + why)
	}
	if why != "" {
		why = ", and changes cannot be read" + why
	}
	return strconv.Itoa(len(f.store.ListKeys())) + " known" + why, nil
}
