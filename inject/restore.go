// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/pillion-dev/pillion/inject/schema"
)

// verify injects the remaining pod again and compares the result with the original request.
func (i *Injector) verify(req Request, bare []byte) error {
	want, err := decode(req.Object)
	if err != nil {
		return err
	}
	want, _ = without(want, annotationPath(AnnotationUninject))
	req.Object, req.Scratch = bare, nil // because Scratch contains what was added
	r, err := i.Inject(req)
	if err != nil {
		return err
	}
	got, err := decode(r.InjectedJSON())
	if err != nil {
		return err
	}
	if reflect.DeepEqual(got, want) {
		return nil
	}
	different := i.differs(&req, want, got)
	if different == nil {
		return nil
	}
	for k := range r.Decisions {
		if d := &r.Decisions[k]; len(d.failures()) > 0 {
			return fmt.Errorf("without what was injected, %s cannot be injected again: %s", d.Template, d.Message)
		}
	}
	return different
}

// differs returns an error about the first place where the pod differs from the result of another
// injection. It returns nil if the only differences are values that an API server sets.
func (i *Injector) differs(req *Request, want, got any) error {
	pod, err := parseAgain(want)
	if err != nil {
		return err
	}
	again, err := parseAgain(got)
	if err != nil {
		return err
	}
	d := comparison{subject: &i.newRun(req, pod).subject, f: i.schema.AsField(), again: true}
	found := d.find(pod, again)
	switch {
	case found != nil:
		return fmt.Errorf("cannot restore the original: %s differs from what inject writes; undo this change, or edit the pod by hand", schema.Where(found.at))
	case !served(pod):
		return errors.New("cannot restore the original: the pod has been changed in a way that Kubernetes ignores; undo this change, or edit the pod by hand")
	}
	return nil
}
