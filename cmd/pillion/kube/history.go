// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// The labels and annotations of a ControllerRevision that has a content of a template. A policy lets the controller write
// no others.
const (
	// LabelTemplate has the name of the template, and LabelTemplateKind its kind.
	LabelTemplate     = "pillion.dev/template"
	LabelTemplateKind = "pillion.dev/template-kind"
	// annotationRevision has the revision that pods record, and annotationChanged when the template last got the content.
	annotationRevision = "pillion.dev/revision"
	annotationChanged  = "pillion.dev/changed"
)

// Revision is a content that a template has or had.
type Revision struct {
	metav1.TypeMeta   // empty
	metav1.ObjectMeta // empty

	// Name is that of the ControllerRevision.
	Name string
	// Number is higher than that of each content that the template had before.
	Number int64
	// Hash is the revision of the template that pods record, 12 hex digits.
	Hash string
	// Changed is when the template last got this content.
	Changed time.Time
	// Images are those of the containers, in the order of the content, as the template's author wrote them.
	Images []string

	digest  string // see digestOf
	version string // the resource version
}

// DeepCopyObject implements [runtime.Object]. Revisions do not change.
func (r *Revision) DeepCopyObject() runtime.Object { return r }

// History reads and writes the contents that templates have had. It keeps none of them in memory.
type History struct {
	client rest.Interface
	system string // Pillion's namespace, which has the history of templates of the cluster
}

// NewHistory returns the history of templates. The client is one of [NewRESTClient].
func NewHistory(client rest.Interface, system string) *History { return &History{client, system} }

// mostRevisions limits the ControllerRevisions of a template that are read. There are more only if other clients than the
// controller create some.
const mostRevisions = 500

// List returns the contents of a template. The newest one is the first. UID is that of the template.
func (h *History) List(ctx context.Context, name types.NamespacedName, uid types.UID) (all []*Revision, err error) {
	s := NewStream(h.client, h.pathOf(name))
	s.Read = func(text []byte) (runtime.Object, error) {
		if r := readRevision(text, uid); r != nil {
			all = append(all, r)
		}
		return &Revision{}, nil
	}
	selector := LabelTemplate + "=" + name.Name + "," + LabelTemplateKind + "=" + kindOf(name.Namespace)
	_, err = s.listObjects(ctx, metav1.ListOptions{LabelSelector: selector, Limit: mostRevisions})
	slices.SortFunc(all, func(a, b *Revision) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), b.Changed.Compare(a.Changed), strings.Compare(a.Name, b.Name))
	})
	return all, err
}

func (h *History) pathOf(name types.NamespacedName) string {
	return "/apis/apps/v1/namespaces/" + cmp.Or(name.Namespace, h.system) + "/controllerrevisions"
}

// contentOf is the data of a ControllerRevision.
type contentOf struct {
	Spec json.RawMessage `json:"spec"`
}

// readRevision reads a ControllerRevision. It returns nil if that is not of the template with this UID, or has other data:
// users may write any.
func readRevision(text []byte, uid types.UID) *Revision {
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Revision int64             `json:"revision"`
		Data     contentOf         `json:"data"`
	}
	if err := utiljson.Unmarshal(text, &o); err != nil {
		return nil
	}
	owner := metav1.GetControllerOfNoCopy(&o.Metadata)
	if owner == nil || owner.UID != uid {
		return nil
	}
	r := &Revision{Name: o.Metadata.Name, Number: o.Revision, Hash: strings.Clone(o.Metadata.Annotations[annotationRevision]), version: o.Metadata.ResourceVersion}
	r.Changed = o.Metadata.CreationTimestamp.Time
	if at, err := time.Parse(time.RFC3339, o.Metadata.Annotations[annotationChanged]); err == nil {
		r.Changed = at
	}
	content, err := Content(o.Data.Spec)
	if err != nil {
		return nil
	}
	r.digest, r.Images = digestOf(content), imagesOf(content)
	return r
}

// Content returns the part of a template's spec that its revision depends on, as canonical JSON: all but spec.rollout. So the
// history has it once, whatever happens to the rollout, and a way back keeps the settings of the rollout.
func Content(spec []byte) ([]byte, error) {
	var of map[string]any
	if err := utiljson.Unmarshal(spec, &of); err != nil {
		return nil, err
	}
	delete(of, "rollout")
	return json.Marshal(of)
}

// digestOf identifies a content.
func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// imagesOf returns the images of a content's containers, and not more than fit in a table.
func imagesOf(content []byte) (images []string) {
	type container struct {
		Image string `json:"image"`
	}
	var of struct {
		Pod struct {
			Spec struct {
				InitContainers []container `json:"initContainers"`
				Containers     []container `json:"containers"`
			} `json:"spec"`
		} `json:"pod"`
	}
	if utiljson.Unmarshal(content, &of) != nil {
		return nil
	}
	const most = 10
	for _, c := range slices.Concat(of.Pod.Spec.InitContainers, of.Pod.Spec.Containers) {
		if c.Image != "" && len(images) < most {
			images = append(images, strings.Clone(c.Image[:min(len(c.Image), mostImage)]))
		}
	}
	return images
}

// mostImage is the length of the longest image that is kept, in bytes.
const mostImage = 512

// Has reports whether the content is this one, of [Content].
func (r *Revision) Has(content []byte) bool { return r.digest == digestOf(content) }

// ErrNoEarlier is returned if there is no content to go back to.
var ErrNoEarlier = errors.New("the history has no earlier content")

// Earlier returns the content to go back to: the newest one that is not the present one, or with a number other than 0, that
// one. The newest one is the first of all. The error is [ErrNoEarlier] if there is none, or names the numbers that there are.
func Earlier(all []*Revision, present []byte, number int64) (*Revision, error) {
	var numbers []string
	for _, r := range all {
		if number == 0 && !r.Has(present) || number != 0 && r.Number == number {
			return r, nil
		}
		numbers = append(numbers, strconv.FormatInt(r.Number, 10))
	}
	if number == 0 || len(all) == 0 {
		return nil, ErrNoEarlier
	}
	slices.Reverse(numbers)
	return nil, fmt.Errorf("the history has no revision %d; it has %s", number, strings.Join(numbers, ", "))
}

// Fetch reads the content of a revision, as canonical JSON. It returns an error if that is not what was listed.
func (h *History) Fetch(ctx context.Context, name types.NamespacedName, r *Revision) ([]byte, error) {
	text, err := h.client.Get().AbsPath(h.pathOf(name), r.Name).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var o struct {
		Data contentOf `json:"data"`
	}
	if err := utiljson.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	content, err := Content(o.Data.Spec)
	if err == nil && !r.Has(content) {
		err = fmt.Errorf("the ControllerRevision %s has changed", r.Name)
	}
	return content, err
}

// Present is what a template has now.
type Present struct {
	Spec []byte    // as JSON
	Hash string    // the revision that pods record
	At   time.Time // now
}

// Keep makes what a template has now the newest content of its history, and deletes all but the most newest ones. If the
// history has the same content already, that gets the highest number, as ControllerRevisions of a StatefulSet do. Only one
// process may do this at a time.
func (h *History) Keep(ctx context.Context, e *Entry, now Present, most int) error {
	content, err := Content(now.Spec)
	if err != nil {
		return err
	}
	now.Spec = content
	all, err := h.List(ctx, e.Key(), e.UID)
	if err != nil {
		return err
	}
	number := int64(1)
	if len(all) > 0 {
		number = all[0].Number + 1
	}
	i := slices.IndexFunc(all, func(r *Revision) bool { return r.Has(content) })
	switch {
	case i < 0:
		if err := h.createRevision(ctx, e, now, number); err != nil {
			return err
		}
		most--
	case i > 0 || all[0].Hash != now.Hash:
		if err := h.renewRevision(ctx, e, all[i], now, number); err != nil {
			return err
		}
	}
	if i > 0 {
		all = slices.Insert(slices.Delete(slices.Clone(all), i, i+1), 0, all[i])
	}
	for _, r := range all[min(max(most, 0), len(all)):] {
		if err := h.deleteRevision(ctx, e, r); err != nil {
			return err
		}
	}
	return nil
}

// collisions is how many other names are tried if a ControllerRevision has the name already, and another content or owner.
const collisions = 5

// createRevision creates a ControllerRevision. Its owner is the template, so the garbage collector deletes it with the template:
// an object of a namespace may have an owner of the cluster.
func (h *History) createRevision(ctx context.Context, e *Entry, now Present, number int64) (err error) {
	o := appsv1.ControllerRevision{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ControllerRevision"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   cmp.Or(e.Namespace, h.system),
			Labels:      map[string]string{LabelTemplate: e.Name, LabelTemplateKind: e.Kind()},
			Annotations: now.toAnnotations(),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.Group + "/" + v1alpha1.Version, Kind: e.Kind(), Name: e.Name, UID: e.UID, Controller: new(true),
			}},
		},
		Revision: number,
	}
	if o.Data.Raw, err = json.Marshal(contentOf{now.Spec}); err != nil {
		return err
	}
	const digits = 16
	name := strings.ToLower(e.Kind()) + "." + e.Name + "." + digestOf(now.Spec)[:digits]
	for i := range collisions {
		if o.Name = name; i > 0 {
			o.Name += "." + strconv.Itoa(i)
		}
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		err = h.client.Post().AbsPath(h.pathOf(e.Key())).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(text).Do(ctx).Error()
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return fmt.Errorf("the history of %s cannot be written: other objects have the names that Pillion uses, for example the ControllerRevision %s in the namespace %s; delete it", e.ID(), name, o.Namespace)
}

func (p *Present) toAnnotations() map[string]string {
	return map[string]string{annotationRevision: p.Hash, annotationChanged: p.At.UTC().Format(time.RFC3339)}
}

// renewRevision gives a ControllerRevision the highest number.
func (h *History) renewRevision(ctx context.Context, e *Entry, r *Revision, now Present, number int64) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": r.version, "annotations": now.toAnnotations()}, "revision": number})
	if err != nil {
		return err
	}
	return h.client.Patch(types.MergePatchType).AbsPath(h.pathOf(e.Key()), r.Name).Body(patch).Do(ctx).Error()
}

func (h *History) deleteRevision(ctx context.Context, e *Entry, r *Revision) error {
	err := h.client.Delete().AbsPath(h.pathOf(e.Key()), r.Name).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
