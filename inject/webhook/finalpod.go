// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
)

// foreseeVerdict judges the final pod that would result if a pod were created with the templates of an Injector. The request has the
// pod before the first injection. Injected and final show what other webhooks do to such a pod: a pod of the same owner directly
// after its injection by any templates, and the same pod after all webhooks, both as JSON. The function makes the same changes
// again. Both are nil if this is unknown. It returns an error if one of the pods is not JSON.
func foreseeVerdict(i *inject.Injector, req inject.Request, injected, final []byte) (*inject.Verdict, error) {
	r, err := i.Inject(req)
	if err != nil {
		return nil, err
	}
	if req.Object, err = schema.AsStored(r.InjectedJSON()); err != nil {
		return nil, err
	}
	if injected != nil && final != nil {
		if injected, err = schema.AsStored(injected); err != nil {
			return nil, err
		}
		if req.Object, err = repeatChanges(injected, final, req.Object); err != nil {
			return nil, err
		}
	}
	return inject.NewJudge(i, nil, true).Judge(req)
}

// repeatChanges returns the pod in with the changes that lead from the pod before to the pod after. It finds items of lists by their
// keys.
func repeatChanges(before, after, in []byte) ([]byte, error) {
	var docs [3]any
	for k, text := range [][]byte{before, after, in} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // numbers keep their digits
		if err := d.Decode(&docs[k]); err != nil {
			return nil, err
		}
	}
	return json.Marshal(repeatChange(schema.Pod().AsField(), docs[0], docs[1], docs[2]))
}

// repeatChange is repeatChanges for one place. A value that is nil is absent.
func repeatChange(f *schema.Field, before, after, in any) any {
	if reflect.DeepEqual(before, after) {
		return in
	}
	switch after := after.(type) {
	case map[string]any:
		was, _ := before.(map[string]any)
		is, ok := in.(map[string]any)
		if in != nil && !ok {
			return after
		}
		out := map[string]any{}
		for _, of := range []map[string]any{is, was, after} {
			for name := range of {
				value := repeatChange(f.At(name), was[name], after[name], is[name])
				if _, removed := was[name]; value != nil && (after[name] != nil || !removed) {
					out[name] = value
				}
			}
		}
		return out
	case []any:
		if f.Shape == schema.KeyedList {
			was, _ := before.([]any)
			is, _ := in.([]any)
			return repeatInList(f, was, after, is)
		}
	}
	return after
}

// repeatInList repeats changes of a list with keys: added items follow the others.
func repeatInList(f *schema.Field, before, after, in []any) (out []any) {
	was, is := itemsByKey(f, before), itemsByKey(f, after)
	for _, item := range in {
		old, had := was[keyOf(f, item)]
		changed, has := is[keyOf(f, item)]
		switch {
		case has:
			out = append(out, repeatChange(f.Elem.AsField(), old, changed, item))
		case !had:
			out = append(out, item)
		}
	}
	here := itemsByKey(f, in)
	for _, item := range after {
		key := keyOf(f, item)
		if _, had := was[key]; !had && here[key] == nil {
			out = append(out, item)
		}
	}
	return out
}

func itemsByKey(f *schema.Field, list []any) map[string]any {
	all := make(map[string]any, len(list))
	for _, item := range list {
		all[keyOf(f, item)] = item
	}
	return all
}

// keyOf returns the key of an item of a list. Ports of different protocols differ.
func keyOf(f *schema.Field, item any) string {
	object, _ := item.(map[string]any)
	key := fmt.Sprint(object[f.Key])
	if f.Key == "containerPort" {
		key = fmt.Sprint(key, object["protocol"])
	}
	return key
}
