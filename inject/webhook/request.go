// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// admissionRequest has the fields that Pillion reads of an AdmissionReview's request.
type admissionRequest struct {
	version string // of the review, also for the answer

	UID         string
	Kind        kind
	Resource    resource
	SubResource string
	Name        string
	Namespace   string
	Operation   admissionv1.Operation
	UserInfo    userInfo
	DryRun      bool
	Object      *jsontree.Node // not nil
	OldObject   *jsontree.Node // nil if there is none
}

type kind struct{ Group, Version, Kind string }

type resource struct{ Group, Version, Resource string }

type userInfo struct{ Username string }

// podLevel is the depth of the pod in a review: review, request, object. A
// final pod is compared with the templates field by field, which needs more levels.
const (
	podLevel   = 2
	finalLevel = podLevel + 3
)

// decodeReview reads an AdmissionReview of version v1 or v1beta1 and the object in it, and reads the body only once. It checks that
// other fields are JSON, and skips them. As in the API server's own decoder, names are case-sensitive, and the last of two equal
// names counts. Room counts the values of a large body, and levels is how many levels of the tree are indexed.
func decodeReview(parser *jsontree.Parser, room jsontree.Room, body []byte, levels int) (*admissionRequest, *rejection) {
	// The body does not change as long as the exchange lasts.
	root, err := parser.ParseIn(room, maxValues, unsafe.String(unsafe.SliceData(body), len(body)), levels)
	switch {
	case errors.Is(err, jsontree.ErrTooManyValues), errors.Is(err, jsontree.ErrNoRoom): // share.denied may have a better reason
		return nil, newRejection(http.StatusRequestEntityTooLarge, "the body is too large: %v", err)
	case err != nil:
		return nil, newRejection(http.StatusBadRequest, "the body is not an AdmissionReview: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	var f fields
	review := f.objectAt("", root)
	sent := f.objectAt("/request", review.Get("request"))
	of := f.objectAt("/request/kind", sent.Get("kind"))
	res := f.objectAt("/request/resource", sent.Get("resource"))
	r := &admissionRequest{
		version: f.textAt("", review, "apiVersion"),
		UID:     f.textAt("/request", sent, "uid"),
		Kind: kind{
			Group:   f.textAt("/request/kind", of, "group"),
			Version: f.textAt("/request/kind", of, "version"),
			Kind:    f.textAt("/request/kind", of, "kind"),
		},
		Resource: resource{
			Group:    f.textAt("/request/resource", res, "group"),
			Version:  f.textAt("/request/resource", res, "version"),
			Resource: f.textAt("/request/resource", res, "resource"),
		},
		SubResource: f.textAt("/request", sent, "subResource"),
		Name:        f.textAt("/request", sent, "name"),
		Namespace:   f.textAt("/request", sent, "namespace"),
		Operation:   admissionv1.Operation(f.textAt("/request", sent, "operation")),
		UserInfo:    userInfo{f.textAt("/request/userInfo", f.objectAt("/request/userInfo", sent.Get("userInfo")), "username")},
		DryRun:      f.checkKind("/request/dryRun", sent.Get("dryRun"), jsontree.True, jsontree.False).Kind() == jsontree.True,
		Object:      cmp.Or(sent.Get("object"), &jsontree.Node{}),
		OldObject:   sent.Get("oldObject"),
	}
	switch name := f.textAt("", review, "kind"); {
	case f.wrong != "":
		return nil, newRejection(http.StatusBadRequest, "the body is not an AdmissionReview: the value at %q has the wrong type", f.wrong)
	case name != "AdmissionReview":
		return nil, newRejection(http.StatusBadRequest, "the kind must be AdmissionReview, not %q", name)
	case r.version != admissionv1.SchemeGroupVersion.String() && r.version != admissionv1beta1.SchemeGroupVersion.String():
		return nil, newRejection(http.StatusBadRequest, "the apiVersion must be %s or %s, not %q",
			admissionv1.SchemeGroupVersion, admissionv1beta1.SchemeGroupVersion, r.version)
	case sent == nil:
		return nil, newRejection(http.StatusBadRequest, "the AdmissionReview has no request")
	case r.UID == "":
		return nil, newRejection(http.StatusBadRequest, "the request has no uid")
	}
	return r, nil
}

// fields reads fields of known types. Wrong is the JSON Pointer to the first field with another type, or "".
type fields struct{ wrong string }

// checkKind returns n if it has one of the kinds, else nil. null counts as missing.
func (f *fields) checkKind(at string, n *jsontree.Node, kinds ...jsontext.Kind) *jsontree.Node {
	switch {
	case n.Kind() == 0 || n.Kind() == jsontree.Null:
		return nil
	case slices.Contains(kinds, n.Kind()):
		return n
	case f.wrong == "":
		f.wrong = "/" + strings.TrimPrefix(at, "/")
	}
	return nil
}

func (f *fields) objectAt(at string, n *jsontree.Node) *jsontree.Node {
	return f.checkKind(at, n, jsontree.Object)
}

func (f *fields) textAt(at string, in *jsontree.Node, name string) string {
	n := in.Get(name)
	if n != nil && n.Kind() != jsontree.String {
		f.checkKind(at+"/"+name, n)
	}
	return n.Text()
}

// createsPod reports whether the request creates a pod.
func (r *admissionRequest) createsPod() bool {
	return r.Operation == admissionv1.Create && r.SubResource == "" &&
		r.Resource == resource{Version: "v1", Resource: "pods"}
}
