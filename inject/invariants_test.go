// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// checkInvariants checks the invariants for one request. The patch only adds. After the API
// server's library applies it, every original value is in place. A second run adds nothing. The
// same input gives the same bytes. It returns the result and the patched pod.
func checkInvariants(t testing.TB, injector *inject.Injector, req inject.Request) (*inject.Result, []byte) {
	t.Helper()
	before := bytes.Clone(req.Object)
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, req.Object) {
		t.Fatal("the request's bytes were changed")
	}
	patch := r.Patch()
	if verified, err := r.AppendVerified(nil, &jsontree.Verifier{}); err != nil || !bytes.Equal(verified, patch) {
		t.Fatalf("the patch is sound and does not pass: %v\n%s\n%s", err, patch, req.Object)
	}
	checkAgain(t, injector, req, r)
	checkKeyOrder(t, injector, req, r)
	after := applyPatch(t, req.Object, patch)
	checkOps(t, req.Object, patch, after)
	if injected := r.InjectedJSON(); !reflect.DeepEqual(decodeJSON(t, injected), decodeJSON(t, after)) || patch == nil && !bytes.Equal(injected, bytes.TrimSpace(after)) {
		t.Fatalf("the result is printed as\n%s\nand its patch gives\n%s", injected, after)
	}
	if at := reviews.Lost(decodeJSON(t, req.Object), decodeJSON(t, after), ""); at != "" {
		t.Fatalf("the original value at %s is not in place\npatch: %s\nafter: %s", at, patch, after)
	}
	checkOrder(t, injector.Set().Templates, req.Object, after)
	sent := !losesZero(t, before)
	if !sent || !losesZero(t, after) { // otherwise, no API server sends this text, and an expression may read the difference
		req.Object = after
		second, err := injector.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		if second.Adds() {
			t.Fatalf("a second run adds\nfirst:  %s\nsecond: %s\npod: %s", patch, second.Patch(), before)
		}
	}
	req.Object = before
	checkTyped(t, injector, req)
	if sent {
		checkStored(t, injector, req, after)
	}
	return r, after
}

// losesZero reports whether a pod is none, or has a value that means the same as no value, which an API server leaves out when it
// sends the pod to a webhook.
func losesZero(t testing.TB, pod []byte) bool {
	t.Helper()
	sent, ok := typed(pod)
	return !ok || dropsZero(decodeJSON(t, pod), decodeJSON(t, sent))
}

// used has memory that was used for other pods before.
var used = sync.Pool{New: func() any { return &inject.Scratch{} }}

// checkAgain checks that the same input gives the same result with reused memory.
func checkAgain(t testing.TB, injector *inject.Injector, req inject.Request, want *inject.Result) {
	t.Helper()
	req.Scratch = used.Get().(*inject.Scratch)
	defer used.Put(req.Scratch)
	var err error
	if req.Pod, err = req.Scratch.Parse(string(req.Object), 0); err != nil {
		t.Fatal(err)
	}
	got, err := injector.Inject(req)
	if err != nil || !bytes.Equal(want.Patch(), got.Patch()) {
		t.Fatalf("the same input gave other bytes\nfirst:  %s\nsecond: %s", want.Patch(), got.Patch())
	}
	text := func(r *inject.Result) string { return fmt.Sprintf("%+v %+v %+v", r.Pod, r.Decisions, r.Findings) }
	if text(want) != text(got) {
		t.Fatalf("the same input gave another result\nfirst:  %s\nsecond: %s", text(want), text(got))
	}
}

// checkKeyOrder checks that the order of keys does not change the operations. An API server sorts
// the keys of a map, and a file may not.
func checkKeyOrder(t testing.TB, injector *inject.Injector, req inject.Request, want *inject.Result) {
	t.Helper()
	if hasDoubledKeys(req.Object) {
		return
	}
	req.Object = withKeysBackwards(t, decodeJSON(t, req.Object))
	got, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := operations(t, want.Patch()), operations(t, got.Patch()); !slices.Equal(a, b) {
		t.Fatalf("another order of keys gives another patch\nfirst:  %s\nsecond: %s\npod: %s", a, b, req.Object)
	}
}

// operations returns those of a patch, in an order and with characters escaped in a way that do not
// depend on the pod's.
func operations(t testing.TB, patch []byte) []string {
	t.Helper()
	var ops []json.RawMessage
	if len(patch) > 0 {
		if err := json.Unmarshal(patch, &ops); err != nil {
			t.Fatal(err)
		}
	}
	texts := make([]string, len(ops))
	for i := range ops {
		text, err := json.Marshal(decodeJSON(t, ops[i]))
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	slices.Sort(texts)
	return texts
}

// withKeysBackwards encodes a value with the keys of its objects in descending order, which neither
// a file nor an API server has.
func withKeysBackwards(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		slices.Reverse(keys)
		for i, k := range keys {
			b.WriteByte("{,"[min(i, 1)])
			b.Write(withKeysBackwards(t, k))
			b.WriteByte(':')
			b.Write(withKeysBackwards(t, v[k]))
		}
		if len(keys) == 0 {
			b.WriteByte('{')
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(withKeysBackwards(t, v[i]))
		}
		b.WriteByte(']')
	default:
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.Bytes()
}

// checkTyped checks a pod as an API server sends it, and a second run over it as an API server
// stores it. Both are decoded, and encoded again without zero values and with normalized
// quantities.
func checkTyped(t testing.TB, injector *inject.Injector, req inject.Request) {
	t.Helper()
	var ok bool
	if req.Object, ok = typed(req.Object); !ok {
		return // no API server has such a pod
	}
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	checkStored(t, injector, req, applyPatch(t, req.Object, r.Patch()))
}

// checkStored checks a second run over the pod that an API server stores, with its feature gates on and off.
func checkStored(t testing.TB, injector *inject.Injector, req inject.Request, pod []byte) {
	t.Helper()
	text, ok := typed(pod)
	if !ok {
		return
	}
	for _, stored := range [][]byte{text, keptBy(t, pod, false)} {
		req.Object = stored
		r, err := injector.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		if r.Adds() {
			t.Fatalf("a second run over the stored pod adds %s\npod: %s", r.Patch(), req.Object)
		}
	}
}

func typed(object []byte) ([]byte, bool) {
	var pod corev1.Pod
	if kjson.UnmarshalCaseSensitivePreserveInts(object, &pod) != nil {
		return nil, false
	}
	text, err := json.Marshal(&pod)
	return text, err == nil
}

func applyPatch(t testing.TB, pod, patch []byte) []byte {
	t.Helper()
	if patch == nil {
		return pod
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("the patch is not one: %v\n%s", err, patch)
	}
	after, err := p.Apply(pod)
	if err != nil {
		t.Fatalf("the patch does not apply: %v\n%s\n%s", err, patch, pod)
	}
	return after
}

// checkOps checks each operation against its document. It must add a new key, a key whose value is
// null or [], or a list item. All operations together must have the same result as the API server's
// library.
func checkOps(t testing.TB, pod, patch, after []byte) {
	t.Helper()
	if patch == nil {
		return
	}
	var ops []struct {
		Op, Path string
		Value    any
	}
	d := json.NewDecoder(bytes.NewReader(patch))
	d.UseNumber()
	if err := d.Decode(&ops); err != nil {
		t.Fatal(err)
	}
	doc := decodeJSON(t, pod)
	for i, op := range ops {
		if op.Op != "add" {
			t.Fatalf("operation %d is %q", i, op.Op)
		}
		names := strings.Split(op.Path, "/")[1:]
		for n := range names {
			names[n] = strings.NewReplacer("~1", "/", "~0", "~").Replace(names[n])
		}
		var problem string
		if doc, problem = add(doc, names, op.Value); problem != "" {
			t.Fatalf("operation %d, add at %s: %s", i, op.Path, problem)
		}
	}
	if !reflect.DeepEqual(doc, decodeJSON(t, after)) {
		t.Fatalf("the patch means something else to the API server's library: %s", patch)
	}
}

// add implements the add of RFC 6902. It returns a problem if it would replace a value other than
// null and [].
func add(doc any, names []string, value any) (after any, problem string) {
	if len(names) == 0 {
		if doc != nil && fmt.Sprint(doc) != "[]" {
			return nil, fmt.Sprintf("the pod says %v", doc)
		}
		return value, ""
	}
	switch v := doc.(type) {
	case map[string]any:
		if _, ok := v[names[0]]; !ok && len(names) > 1 {
			return nil, "there is no " + names[0]
		}
		v[names[0]], problem = add(v[names[0]], names[1:], value)
		return v, problem
	case []any:
		i, err := strconv.Atoi(names[0])
		if names[0] == "-" {
			i, err = len(v), nil
		}
		switch {
		case err != nil || i > len(v) || len(names) > 1 && i == len(v):
			return nil, "there is no item " + names[0]
		case len(names) == 1:
			return slices.Insert(v, i, value), ""
		}
		v[i], problem = add(v[i], names[1:], value)
		return v, problem
	}
	return nil, fmt.Sprintf("%v has no %s", doc, names[0])
}

func decodeJSON(t testing.TB, text []byte) any {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // 2^53+1 is not 2^53
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return v
}

func mustLoad(t testing.TB, fsys fs.FS, names ...string) *templates.Set {
	t.Helper()
	var sources []templates.Source
	for _, name := range names {
		sources = append(sources, templates.Source{FS: fsys, Name: name, Path: name})
	}
	set, err := templates.Load(sources...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
