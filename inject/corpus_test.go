// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"hash/crc32"
	"os"
	"slices"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/library"
	librarytests "github.com/pillion-dev/pillion/templates/library/tests"
	"github.com/pillion-dev/pillion/templates/request"
)

// review is the part of an AdmissionReview that the engine reads.
type review struct {
	Request struct {
		Operation   string
		Namespace   string
		SubResource string
		Resource    struct{ Resource string }
		DryRun      bool
		UserInfo    struct{ Username string }
		Object      json.RawMessage
	}
}

// readReviews returns the AdmissionReviews that create a pod, by name: the project's own, and captured
// ones if they exist.
func readReviews(t testing.TB) (names []string, requests []inject.Request) {
	t.Helper()
	for _, one := range reviews.All(t) {
		var r review
		if err := json.Unmarshal(one.Body, &r); err != nil {
			t.Fatalf("%s: %v", one.Name, err)
		}
		if r.Request.Operation != "CREATE" || r.Request.SubResource != "" || r.Request.Resource.Resource != "pods" || r.Request.Object == nil {
			continue
		}
		names = append(names, one.Name)
		requests = append(requests, inject.Request{
			Operation: r.Request.Operation, Username: r.Request.UserInfo.Username, DryRun: r.Request.DryRun,
			Namespace: request.Namespace{Name: r.Request.Namespace},
			Object:    r.Request.Object,
		})
	}
	return names, requests
}

// corpus calls f for the pod of every review.
func corpus(t *testing.T, f func(t *testing.T, name string, req inject.Request)) {
	t.Helper()
	names, requests := readReviews(t)
	for i := range names {
		t.Run(names[i], func(t *testing.T) { f(t, names[i], requests[i]) })
	}
	t.Logf("%d pods", len(names))
}

func TestCorpus(t *testing.T) {
	t.Parallel()
	for name, choice := range corpusInjectors(t) {
		codes := map[inject.Code]int{}
		t.Run(name, func(t *testing.T) {
			corpus(t, func(t *testing.T, pod string, req inject.Request) {
				req.Namespace.Annotations = librarytests.Params()
				r, _ := checkInvariants(t, choice.forPod(pod), req)
				for _, d := range r.Decisions {
					codes[d.Code]++
				}
			})
		})
		t.Logf("%s: %v", name, codes)
		if codes[inject.CodeInjected] == 0 {
			t.Errorf("nothing was ever injected: %v", codes)
		}
	}
}

// requestedByDefault makes defaults of templates that are injected only on request.
func requestedByDefault(set *templates.Set) *templates.Set {
	var all []*templates.Template
	for _, t := range set.Templates {
		c := *t
		c.Spec.Default = true
		all = append(all, &c)
	}
	return templates.NewSet(all)
}

func librarySet(t testing.TB) *templates.Set { return mustLoad(t, library.FS, ".") }

// injectors have different templates. Each pod of the corpus gets those of one of them.
type injectors []*inject.Injector

func (s injectors) forPod(name string) *inject.Injector {
	return s[crc32.ChecksumIEEE([]byte(name))%uint32(len(s))]
}

// corpusInjectors returns the injectors for the pods of the corpus. Those of the library have three
// templates each, so that the cost of a test does not grow with the library.
func corpusInjectors(t testing.TB) map[string]injectors {
	var library injectors
	for part := range slices.Chunk(librarySet(t).Templates, 3) {
		library = append(library, inject.New(requestedByDefault(templates.NewSet(part))))
	}
	return map[string]injectors{"testdata": {inject.New(mustLoad(t, os.DirFS("testdata/templates"), "."))}, "library": library}
}
