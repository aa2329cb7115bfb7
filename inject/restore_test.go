// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/inject/uninject"
	librarytests "github.com/pillion-dev/pillion/templates/library/tests"
)

// TestUninjectStored checks pods with the defaults that an API server sets. Uninject removes the
// additions with their defaults, and keeps the defaults of the pod's own containers.
func TestUninjectStored(t *testing.T) {
	t.Parallel()
	library := corpusInjectors(t)["library"]
	injected := 0
	corpus(t, func(t *testing.T, pod string, req inject.Request) {
		if pod == "forged-evidence" {
			t.Skip("nothing was injected into this pod, whatever it says")
		}
		injector := library.forPod(pod)
		req.Namespace.Annotations = librarytests.Params()
		was := stored(t, req.Object)
		r, err := injector.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		req.Object = stored(t, applyPatch(t, req.Object, r.Patch()))
		removal, err := uninject.Pod(injector, req)
		if err != nil {
			t.Fatal(err)
		}
		if len(removal.Templates) > 0 {
			injected++
		}
		if is := removeValue(t, req.Object, removal); canonical(t, is) != canonical(t, was) {
			t.Errorf("it was\n%s\nand is\n%s", was, is)
		}
	})
	if injected < 50 { // of the 60 pods of the project
		t.Errorf("only %d pods were injected", injected)
	}
}

// stored returns a pod as an API server stores it.
func stored(t *testing.T, pod []byte) []byte {
	t.Helper()
	kept, err := schema.AsStored(pod)
	if err != nil {
		t.Fatal(err)
	}
	doc := decodeJSON(t, kept).(map[string]any)
	spec := doc["spec"].(map[string]any)
	for name, value := range map[string]any{"schedulerName": "default-scheduler", "dnsPolicy": "ClusterFirst", "securityContext": map[string]any{}} {
		if spec[name] == nil {
			spec[name] = value
		}
	}
	for _, list := range []string{"containers", "initContainers"} {
		items, _ := spec[list].([]any)
		for _, item := range items {
			c := item.(map[string]any)
			for name, value := range map[string]any{"resources": map[string]any{}, "imagePullPolicy": "IfNotPresent"} {
				if c[name] == nil {
					c[name] = value
				}
			}
		}
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func removeValue(t *testing.T, object []byte, removal *uninject.Removal) []byte {
	t.Helper()
	pod := decodeJSON(t, object)
	for _, path := range removal.Paths {
		pod = replace(pod, strings.Split(path, "/")[1:], nil)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestUninjectChanged checks that the error names the first changed field if a user changed what
// was injected.
func TestUninjectChanged(t *testing.T) {
	t.Parallel()
	injector := inject.New(mustLoad(t, os.DirFS("testdata/templates"), "."))
	req := inject.Request{Operation: "CREATE", OptedIn: true, Object: []byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"web"}]}}`)}
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	injected := applyPatch(t, req.Object, r.Patch())
	agent := `/spec/initContainers/0`
	for _, pod := range [][]byte{injected, stored(t, injected)} {
		for name, c := range map[string]struct {
			path string
			to   any
		}{
			"image":     {agent + "/image", "evil:1"},
			"resources": {agent + "/resources", map[string]any{"limits": map[string]any{"cpu": "7"}}},
			"tty":       {agent + "/tty", true},
			"policy":    {agent + "/terminationMessagePolicy", "FallbackToLogsOnError"},
		} {
			changed, err := json.Marshal(replace(decodeJSON(t, pod), strings.Split(c.path, "/")[1:], func(any) any { return c.to }))
			if err != nil {
				t.Fatal(err)
			}
			req.Object = changed
			want := "cannot restore the original: " + schema.Where(c.path)
			if _, err = uninject.Pod(injector, req); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), " differs from what inject writes") {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
	}
}
