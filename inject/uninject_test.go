// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/uninject"
	librarytests "github.com/pillion-dev/pillion/templates/library/tests"
)

// TestUninjectCorpus checks that uninject restores every captured pod. Values that a pod already
// had exactly as the template has them cannot be distinguished from additions. The result is then
// another pod that becomes the same after injection. No pod contains anything of the shipped
// templates.
func TestUninjectCorpus(t *testing.T) {
	t.Parallel()
	for name, choice := range corpusInjectors(t) {
		shared := 0
		t.Run(name, func(t *testing.T) {
			corpus(t, func(t *testing.T, pod string, req inject.Request) {
				if pod == "forged-evidence" {
					t.Skip("nothing was injected into this pod, whatever it says")
				}
				req.Namespace.Annotations = librarytests.Params()
				if was, is := injectAndRemove(t, choice.forPod(pod), req); was != is {
					shared++
					has := strings.Contains(was, `"prometheus.io/scrape":"true"`) || strings.Contains(was, `"shareProcessNamespace":false`) ||
						strings.Contains(was, `"example.com/logs":"shipped"`)
					if name == "library" || !has {
						t.Errorf("it was\n%s\nand is\n%s", was, is)
					}
				}
			})
		})
		t.Logf("%s: %d pods had something already", name, shared)
	}
}

// injectAndRemove returns the pod before injection, and after injection and its inverse.
func injectAndRemove(t *testing.T, injector *inject.Injector, req inject.Request) (was, is string) {
	t.Helper()
	was = canonical(t, req.Object)
	r, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	req.Object = applyPatch(t, req.Object, r.Patch())
	removal, err := uninject.Pod(injector, req)
	if err != nil {
		t.Fatal(err)
	}
	pod := decodeJSON(t, req.Object)
	for _, path := range removal.Paths {
		pod = replace(pod, strings.Split(path, "/")[1:], nil)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return was, canonical(t, text)
}

// canonical returns JSON with sorted keys, and without null and empty values.
func canonical(t *testing.T, text []byte) string {
	t.Helper()
	out, err := json.Marshal(said(decodeJSON(t, text)))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func said(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Collect(maps.Keys(v)) {
			if v[name] == nil {
				delete(v, name)
				continue
			}
			v[name] = said(v[name])
		}
	case []any:
		for i := range v {
			v[i] = said(v[i])
		}
	}
	return v
}
