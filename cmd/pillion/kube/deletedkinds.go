// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// keeper finds out whether users deleted templates, or whether somebody deleted their kind: the API server deletes the objects of a
// CustomResourceDefinition that is being deleted, and the users of these did not mean that. It marks the definition first
// (apiextensions.k8s.io/v1, finalizer customresourcecleanup), so the definition shows the reason after an object was deleted.
type keeper struct {
	client     rest.Interface
	definition string // the name of the CustomResourceDefinition
	kept       func() // called when the kind is gone
	wake       chan struct{}

	mu      sync.Mutex
	deleted []deletedTemplate // for unknown reasons
}

// deletedTemplate identifies a template that the API server deleted.
type deletedTemplate struct {
	name types.NamespacedName
	uid  types.UID
}

// definitionAgain is how long to wait if the definition could not be read.
const definitionAgain = time.Second

// definitionTimeout limits the time of one request for the definition.
const definitionTimeout = 10 * time.Second

func newKeeper(client rest.Interface, definition string, kept func()) *keeper {
	return &keeper{client: client, definition: definition, kept: kept, wake: make(chan struct{}, 1)}
}

// isGone reports whether the kind is being deleted, or is deleted. Without the right to know, it is not.
func (k *keeper) isGone(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, definitionTimeout)
	defer cancel()
	text, err := k.client.Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", k.definition).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json").DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, err
	}
	var definition metav1.PartialObjectMetadata
	err = json.Unmarshal(text, &definition)
	return definition.DeletionTimestamp != nil, err
}

// noteDeletion remembers a deletion until its reason is known.
func (k *keeper) noteDeletion(e *Entry) {
	k.mu.Lock()
	k.deleted = append(k.deleted, deletedTemplate{e.Key(), e.UID})
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run drops templates that users deleted, until ctx is done. One request for the definition is enough for all that were deleted before it.
func (k *keeper) run(ctx context.Context, drop func(deletedTemplate)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		}
		k.mu.Lock()
		all := k.deleted
		k.deleted = nil
		k.mu.Unlock()
		gone, err := k.isGone(ctx)
		for err != nil && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(definitionAgain):
				gone, err = k.isGone(ctx)
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case gone:
			k.kept()
		default:
			for _, d := range all {
				drop(d)
			}
		}
	}
}
