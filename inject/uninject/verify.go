// SPDX-License-Identifier: Apache-2.0

package uninject

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
)

// verifyRemoval injects the remaining pod again and returns an error if the result differs from the pod of the request.
func verifyRemoval(i *inject.Injector, req inject.Request, bare []byte) error {
	want, err := decodeDocument(req.Object)
	if err != nil {
		return err
	}
	want, _ = removeValue(want, schema.AnnotationPath(inject.AnnotationUninject))
	req.Object, req.Scratch = bare, nil // because Scratch contains what was added
	r, err := i.Inject(req)
	if err != nil {
		return err
	}
	got, err := decodeDocument(r.InjectedJSON())
	if err != nil {
		return err
	}
	if reflect.DeepEqual(got, want) {
		return nil
	}
	different := differenceError(i, &req, want, got)
	if different == nil {
		return nil
	}
	for k := range r.Decisions {
		if d := &r.Decisions[k]; d.Code.Failed() {
			return fmt.Errorf("without what was injected, %s cannot be injected again: %s", d.Template, d.Message)
		}
	}
	return different
}

// differenceError returns an error about the first place where the pod differs from the result of another
// injection. It returns nil if the only differences are values that an API server sets.
func differenceError(i *inject.Injector, req *inject.Request, want, got any) error {
	pod, err := parseAgain(want)
	if err != nil {
		return err
	}
	again, err := parseAgain(got)
	if err != nil {
		return err
	}
	found := i.NewRendering(req, pod).FindDifference(again)
	switch {
	case found != "":
		return fmt.Errorf("cannot restore the original: %s differs from what inject writes; undo this change, or edit the pod by hand", schema.Where(found))
	case !isFromServer(pod):
		return errors.New("cannot restore the original: the pod has been changed in a way that Kubernetes ignores; undo this change, or edit the pod by hand")
	}
	return nil
}
