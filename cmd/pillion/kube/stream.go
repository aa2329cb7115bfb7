// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Stream lists and watches the objects of a resource, and reads one after the other. The clients of client-go decode
// everything that users have written into the objects, and for a list, all objects at the same time. So their memory
// depends on what users create. That of a Stream depends on the largest object and on what Read keeps.
type Stream struct {
	client rest.Interface
	path   string // for example "/api/v1/namespaces"

	// Read returns what is kept of an object. Text is its JSON, which changes after the call.
	Read func(text []byte) (runtime.Object, error)
	// Begin returns a function that is called with each object of one list, before all of them are known. It may drop
	// content. Begin may be nil.
	Begin func() func(runtime.Object)
	// Asked is called with the outcome of every request. It may be nil.
	Asked func(error)

	listed func(runtime.Object) // of a list of which a part was read
}

// NewRESTClient returns a client for [NewStream].
func NewRESTClient(config *rest.Config) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = metainternalversionscheme.Codecs.WithoutConversion()
	return rest.UnversionedRESTClientFor(config)
}

// NewStream returns a stream of the resource at a path of the API, for example "/api/v1/namespaces".
func NewStream(client rest.Interface, path string) *Stream {
	return &Stream{client: client, path: path}
}

// sendRequest sends a request, and returns the body of the answer.
func (s *Stream) sendRequest(ctx context.Context, o *metav1.ListOptions) (io.ReadCloser, error) {
	body, err := s.client.Get().AbsPath(s.path).SpecificallyVersionedParams(o, metainternalversionscheme.ParameterCodec, metav1.SchemeGroupVersion).Stream(ctx)
	s.reportOutcome(ctx, err)
	return body, err
}

// reportOutcome reports the outcome of a request. Some errors are normal: the API server cannot stream a list, or no longer has
// the resource version.
func (s *Stream) reportOutcome(ctx context.Context, err error) {
	if s.Asked != nil && ctx.Err() == nil && !apierrors.IsInvalid(err) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		s.Asked(err)
	}
}

// ListerWatcher returns what a reflector needs. Only one reflector may use the stream.
func (s *Stream) ListerWatcher() *cache.ListWatch {
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return s.listObjects(ctx, o) }
	return &cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: s.watchObjects}
}

// beginList returns what is called with each object of a list.
func (s *Stream) beginList() func(runtime.Object) {
	if s.Begin == nil {
		return func(runtime.Object) {}
	}
	return s.Begin()
}

// objects is a list of what was kept of each object.
type objects struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []runtime.Object
}

// DeepCopyObject implements [runtime.Object]. A list is never copied.
func (o *objects) DeepCopyObject() runtime.Object { return o }

// listObjects reads a list, or a part of one.
func (s *Stream) listObjects(ctx context.Context, o metav1.ListOptions) (*objects, error) {
	body, err := s.sendRequest(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if o.Continue == "" || s.listed == nil {
		s.listed = s.beginList()
	}
	list, err := s.readList(json.NewDecoder(body))
	if err != nil {
		err = fmt.Errorf("reading the list %s: %w", s.path, err)
		s.reportOutcome(ctx, err)
		return nil, err
	}
	if list.Continue == "" {
		s.listed = nil
	}
	return list, nil
}

// ReadPage passes the objects of a list, or of one page of it, to Read, and keeps none. It returns the metadata of the list: its
// version, and where the next page continues.
func (s *Stream) ReadPage(ctx context.Context, o metav1.ListOptions) (metav1.ListMeta, error) {
	list, err := s.listObjects(ctx, o)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	return list.ListMeta, nil
}

func (s *Stream) readList(d *json.Decoder) (*objects, error) {
	list := &objects{}
	var text json.RawMessage // of one value at a time
	if err := expectDelim(d, json.Delim('{')); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch key {
		case "metadata":
			err = d.Decode(&list.ListMeta)
		case "items":
			err = s.readItems(d, &text, func(object runtime.Object) {
				s.listed(object)
				list.Items = append(list.Items, object)
			})
		default:
			err = d.Decode(&text)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, expectDelim(d, json.Delim('}'))
}

// readItems reads a list of objects, or null.
func (s *Stream) readItems(d *json.Decoder, text *json.RawMessage, add func(runtime.Object)) error {
	first, err := d.Token()
	if first == nil || err != nil {
		return err
	}
	if first != json.Delim('[') {
		return fmt.Errorf("the items are %v", first)
	}
	for d.More() {
		if err := d.Decode(text); err != nil {
			return err
		}
		object, err := s.Read(*text)
		if err != nil {
			return err
		}
		add(object)
	}
	return expectDelim(d, json.Delim(']'))
}

func expectDelim(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = fmt.Errorf("%v in place of %v", got, want)
	}
	return err
}

// watchObjects streams events, which may begin with those of a list.
func (s *Stream) watchObjects(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	body, err := s.sendRequest(ctx, &o)
	if err != nil {
		return nil, err
	}
	e := &events{stream: s, decoder: json.NewDecoder(body), body: body}
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		e.listed = s.beginList()
	}
	return watch.NewStreamWatcher(e, apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")), nil
}

// events reads the events of a watch.
type events struct {
	stream  *Stream
	decoder *json.Decoder
	body    io.Closer
	listed  func(runtime.Object) // nil after the list
	text    json.RawMessage      // of one object at a time
}

// Decode implements [watch.Decoder].
func (e *events) Decode() (watch.EventType, runtime.Object, error) {
	kind, err := e.readEvent()
	if err != nil {
		return "", nil, err
	}
	return e.decodeObject(kind)
}

// readEvent reads an event into e.text, and returns its type. An object may be nested as deeply as [encoding/json] allows, so
// the event around it must not count.
func (e *events) readEvent() (kind watch.EventType, err error) {
	e.text = e.text[:0]
	if err := expectDelim(e.decoder, json.Delim('{')); err != nil {
		return "", err
	}
	for e.decoder.More() {
		key, err := e.decoder.Token()
		if err != nil {
			return "", err
		}
		if key == "type" {
			err = e.decoder.Decode(&kind)
		} else {
			err = e.decoder.Decode(&e.text)
		}
		if err != nil {
			return "", err
		}
	}
	return kind, expectDelim(e.decoder, json.Delim('}'))
}

// decodeObject returns what is kept of the object of an event.
func (e *events) decodeObject(kind watch.EventType) (watch.EventType, runtime.Object, error) {
	switch kind {
	case watch.Error:
		status := &metav1.Status{}
		err := json.Unmarshal(e.text, status)
		return watch.Error, status, err
	case watch.Bookmark:
		mark := &metav1.PartialObjectMetadata{}
		err := json.Unmarshal(e.text, mark)
		if mark.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			e.listed = nil
		}
		return watch.Bookmark, mark, err
	case watch.Added, watch.Modified, watch.Deleted:
		object, err := e.stream.Read(e.text)
		if err == nil && e.listed != nil {
			e.listed(object)
		}
		return kind, object, err
	}
	return "", nil, fmt.Errorf("%q is no type of an event", kind) // for example a server that answers with a list
}

// Close implements [watch.Decoder].
func (e *events) Close() { _ = e.body.Close() }
