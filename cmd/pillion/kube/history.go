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

// The labels of a ControllerRevision that has a content of a template. A policy lets the controller write no others.
const (
	// LabelTemplate has the name of the template, and LabelTemplateKind its kind.
	LabelTemplate     = "pillion.dev/template"
	LabelTemplateKind = "pillion.dev/template-kind"
)

// historyManager is the field manager that owns the history in the status of a template.
const historyManager = "pillion-controller-history"

// Revision is a content that a template has or had.
type Revision struct {
	v1alpha1.RecordedContent

	// Images are those of the containers, in the order of the content, as the template's author wrote them. [History.Fetch] sets them.
	Images []string
}

// History reads and writes the contents that templates have had. It keeps none of them in memory.
//
// The status of a template records its contents: only the controller may write it. ControllerRevisions keep the contents themselves,
// which would make the template too large. Other users may be allowed to create or change ControllerRevisions, so one counts only if the
// status names it, and has the digest of its content.
type History struct {
	client rest.Interface
	system string // Pillion's namespace, which has the history of templates of the cluster
}

// NewHistory returns the history of templates. The client is one of [NewRESTClient].
func NewHistory(client rest.Interface, system string) *History { return &History{client, system} }

// Recorded returns the contents that the status of a template object records. The newest one is the first.
func Recorded(template []byte) ([]*Revision, error) {
	var o struct {
		Status struct {
			History []v1alpha1.RecordedContent `json:"history"`
		} `json:"status"`
	}
	if err := utiljson.Unmarshal(template, &o); err != nil {
		return nil, fmt.Errorf("reading the history of a template: %w", err)
	}
	all := make([]*Revision, 0, len(o.Status.History))
	for _, c := range o.Status.History {
		all = append(all, &Revision{RecordedContent: c})
	}
	return all, nil
}

func (h *History) pathOf(name types.NamespacedName) string {
	return "/apis/apps/v1/namespaces/" + cmp.Or(name.Namespace, h.system) + "/controllerrevisions"
}

// contentOf is the data of a ControllerRevision.
type contentOf struct {
	Spec json.RawMessage `json:"spec"`
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
func (r *Revision) Has(content []byte) bool { return r.Digest == digestOf(content) }

// ErrNoEarlier is returned if there is no content to go back to.
var ErrNoEarlier = errors.New("the history has no earlier content")

// Earlier returns the content to go back to: the newest one that is not the present one, or with a number other than 0, that
// one. The newest one is the first of all. The error is [ErrNoEarlier] if there is none, or names the numbers that there are.
func Earlier(all []*Revision, present []byte, number int64) (*Revision, error) {
	var numbers []string
	for _, r := range all {
		if number == 0 && !r.Has(present) || number != 0 && r.Revision == number {
			return r, nil
		}
		numbers = append(numbers, strconv.FormatInt(r.Revision, 10))
	}
	if number == 0 || len(all) == 0 {
		return nil, ErrNoEarlier
	}
	slices.Reverse(numbers)
	return nil, fmt.Errorf("the history has no revision %d; it has %s", number, strings.Join(numbers, ", "))
}

// ErrLost is returned if no object has the content that was recorded.
var ErrLost = errors.New("use another revision")

// Fetch reads the content of a revision, as canonical JSON. The error is [ErrLost] if that is not what was recorded.
func (h *History) Fetch(ctx context.Context, name types.NamespacedName, r *Revision) ([]byte, error) {
	object := fmt.Sprintf("the ControllerRevision %s in the namespace %s", r.Object, cmp.Or(name.Namespace, h.system))
	content, _, err := h.readContent(ctx, name, r.Object)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the content of revision %d is lost, because somebody has deleted %s: %w", r.Revision, object, ErrLost)
	case err != nil:
		return nil, err
	case !r.Has(content):
		return nil, fmt.Errorf("the content of revision %d is lost, because somebody has written another one into %s: %w", r.Revision, object, ErrLost)
	}
	r.Images = imagesOf(content)
	return content, nil
}

// readContent reads the content in a ControllerRevision, as canonical JSON, and the UID of the object's controller.
func (h *History) readContent(ctx context.Context, name types.NamespacedName, object string) (content []byte, owner types.UID, err error) {
	text, err := h.client.Get().AbsPath(h.pathOf(name), object).DoRaw(ctx)
	if err != nil {
		return nil, "", err
	}
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Data     json.RawMessage   `json:"data"`
	}
	if err := utiljson.Unmarshal(text, &o); err != nil {
		return nil, "", err
	}
	if of := metav1.GetControllerOfNoCopy(&o.Metadata); of != nil {
		owner = of.UID
	}
	var data contentOf
	if utiljson.Unmarshal(o.Data, &data) == nil && len(data.Spec) > 0 {
		if content, err := Content(data.Spec); err == nil {
			return content, owner, nil
		}
	}
	return nil, owner, nil // other clients may write any data
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
	template := resourcePath(TemplateResources()[min(len(e.Namespace), 1)], e.Namespace)
	text, err := h.client.Get().AbsPath(template, e.Name).DoRaw(ctx)
	if err != nil {
		return err
	}
	all, err := Recorded(text)
	if err != nil {
		return err
	}
	next := v1alpha1.RecordedContent{Revision: 1, Hash: now.Hash, Digest: digestOf(content), Changed: metav1.NewTime(now.At)}
	switch recorded := len(all) > 0 && all[0].Has(content) && all[0].Hash == now.Hash; {
	case recorded && len(all) <= most:
		return nil
	case recorded:
		next = all[0].RecordedContent
	default:
		if len(all) > 0 {
			next.Revision = all[0].Revision + 1
		}
		if next.Object, err = h.storeContent(ctx, e, content, next.Revision); err != nil {
			return err
		}
	}
	var dropped []string
	recorded := []v1alpha1.RecordedContent{next}
	for _, r := range all {
		switch {
		case r.Object == next.Object:
		case r.Digest == next.Digest, len(recorded) >= most:
			dropped = append(dropped, r.Object)
		default:
			recorded = append(recorded, r.RecordedContent)
		}
	}
	if err := h.applyRecorded(ctx, e, template, recorded); err != nil {
		return err
	}
	for _, object := range dropped {
		err := h.client.Delete().AbsPath(h.pathOf(e.Key()), object).Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// applyRecorded writes the history into the status of a template.
func (h *History) applyRecorded(ctx context.Context, e *Entry, path string, recorded []v1alpha1.RecordedContent) error {
	text, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.Group + "/" + v1alpha1.Version, "kind": e.Kind(),
		"metadata": map[string]any{"name": e.Name, "uid": e.UID}, // another template of this name must not get it
		"status":   map[string]any{"history": recorded},
	})
	if err != nil {
		return err
	}
	return h.client.Patch(types.ApplyPatchType).AbsPath(path, e.Name, "status").Param("fieldManager", historyManager).Param("force", "true").Body(text).Do(ctx).Error()
}

// collisions is how many other names are tried if a ControllerRevision has the name already, and another content or owner.
const collisions = 5

// storeContent creates a ControllerRevision with a content, unless there is one, and returns its name. Its owner is the template, so the
// garbage collector deletes it with the template: an object of a namespace may have an owner of the cluster.
func (h *History) storeContent(ctx context.Context, e *Entry, content []byte, number int64) (name string, err error) {
	o := appsv1.ControllerRevision{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ControllerRevision"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(e.Namespace, h.system),
			Labels:    map[string]string{LabelTemplate: e.Name, LabelTemplateKind: e.Kind()},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.Group + "/" + v1alpha1.Version, Kind: e.Kind(), Name: e.Name, UID: e.UID, Controller: new(true),
			}},
		},
		Revision: number,
	}
	if o.Data.Raw, err = json.Marshal(contentOf{content}); err != nil {
		return "", err
	}
	const digits = 16
	first := strings.ToLower(e.Kind()) + "." + e.Name + "." + digestOf(content)[:digits]
	for i := range collisions {
		if o.Name = first; i > 0 {
			o.Name += "." + strconv.Itoa(i)
		}
		text, err := json.Marshal(o)
		if err != nil {
			return "", err
		}
		err = h.client.Post().AbsPath(h.pathOf(e.Key())).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(text).Do(ctx).Error()
		if !apierrors.IsAlreadyExists(err) {
			return o.Name, err
		}
		there, owner, err := h.readContent(ctx, e.Key(), o.Name)
		if err != nil {
			return "", err
		}
		if owner == e.UID && string(there) == string(content) {
			return o.Name, nil
		}
	}
	return "", fmt.Errorf("the history of %s cannot be written: other objects have the names that Pillion uses, for example the ControllerRevision %s in the namespace %s; delete it", e.ID(), first, o.Namespace)
}
