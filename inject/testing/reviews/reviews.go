// SPDX-License-Identifier: Apache-2.0

// Package reviews has AdmissionReviews for the tests of other packages: 60 that are a part of the project and, if
// TEST_CORPUS names their folder, captured ones that are not.
package reviews

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// Review is one AdmissionReview.
type Review struct {
	Name string // of a subtest
	Body []byte // JSON, as an API server sends it
}

// Variable is the environment variable that names the folder of captured reviews.
const Variable = "TEST_CORPUS"

// reviews has one review per line, made of pods.yaml by the tests of this package.
//
//go:embed reviews.jsonl
var reviews []byte

// Synthetic returns the project's own reviews, all of which create a pod.
func Synthetic(t testing.TB) []Review {
	t.Helper()
	all, err := synthetic()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var synthetic = sync.OnceValues(func() (all []Review, err error) {
	for d := json.NewDecoder(bytes.NewReader(reviews)); d.More(); {
		var one struct {
			Name string
			Body json.RawMessage
		}
		if err = d.Decode(&one); err != nil {
			return nil, err
		}
		all = append(all, Review{one.Name, one.Body})
	}
	return all, nil
})

// captured reads the reviews in the folder that the variable names. Without the variable, there are none: a test
// never looks for files outside the checkout by itself.
var captured = sync.OnceValues(func() ([]Review, error) {
	folder := os.Getenv(Variable) //nolint:forbidigo // a variable for tests
	if folder == "" {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(folder, "reviews", "*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%s=%s: there is no reviews/*.json in this folder (%w)", Variable, folder, cmp.Or(err, fs.ErrNotExist))
	}
	samples, err := filepath.Glob(filepath.Join(folder, "*-sample.json"))
	if err != nil {
		return nil, err
	}
	var all []Review
	for _, file := range append(files, samples...) {
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all = append(all, Review{Name: filepath.Base(file), Body: body})
	}
	return all, nil
})

// All returns the synthetic reviews and the captured ones.
func All(t testing.TB) []Review {
	t.Helper()
	more, err := captured()
	if err != nil {
		t.Fatal(err)
	}
	return append(slices.Clip(Synthetic(t)), more...)
}

// Main runs the tests of a package and then writes how many reviews they used.
func Main(m *testing.M, w io.Writer) int {
	code := m.Run()
	own, _ := synthetic()
	more, _ := captured()
	fmt.Fprintf(w, "corpus: %d synthetic and %d captured reviews (%s names the folder of captured ones)\n", len(own), len(more), Variable)
	return code
}
