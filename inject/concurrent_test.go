// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"os"
	"sync"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/templates"
	librarytests "github.com/pillion-dev/pillion/templates/library/tests"
)

// TestConcurrently checks that one Injector and one Judge give the same answers to concurrent
// requests as to sequential ones. The race detector needs this test to see the engine.
func TestConcurrently(t *testing.T) {
	t.Parallel()
	_, requests := readReviews(t)
	requests = requests[:size.Choose(t, 15, 60)]
	for name, set := range map[string]*templates.Set{
		"testdata": mustLoad(t, os.DirFS("testdata/templates"), "."),
		"library":  requestedByDefault(librarySet(t)),
	} {
		injector := inject.New(set)
		judge := inject.NewJudge(injector, nil, true)
		answer := func(req inject.Request) []byte {
			req.Namespace.Annotations = librarytests.Params()
			r, err := injector.Inject(req)
			if err != nil {
				t.Error(err)
				return nil
			}
			patch := r.Patch()
			v, err := judge.Judge(req)
			if err != nil {
				t.Error(err)
				return nil
			}
			return append(patch, v.Word()...)
		}
		want := make([][]byte, len(requests))
		for i := range requests {
			want[i] = answer(requests[i])
		}
		var wg sync.WaitGroup
		for first := range 4 {
			wg.Go(func() {
				for i := range requests {
					i = (i + first*7) % len(requests)
					if got := answer(requests[i]); !bytes.Equal(got, want[i]) {
						t.Errorf("%s: pod %d gets\n%s\nbeside others, and alone\n%s", name, i, got, want[i])
					}
				}
			})
		}
		wg.Wait()
	}
}
