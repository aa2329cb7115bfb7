// SPDX-License-Identifier: Apache-2.0

// Package reviewtest has AdmissionReviews for the tests of other packages: 60 that
// are a part of the project and, if they are there, captured ones that are not.
package reviewtest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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

// captured reads the folder of captured reviews; the paths are that of a checkout
// with the folder beside it, as its packages see it.
var captured = sync.OnceValues(func() ([]Review, error) {
	folders := []string{os.Getenv(Variable)} //nolint:forbidigo // a variable for tests
	if folders[0] == "" {
		for up := "../.."; len(up) < 20; up += "/.." {
			folders = append(folders, filepath.Join(up, "shared", "corpus"))
		}
	}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "reviews", "*.json"))
		if err != nil || len(files) == 0 {
			continue
		}
		samples, _ := filepath.Glob(filepath.Join(folder, "*-sample.json"))
		var all []Review
		for _, file := range append(files, samples...) {
			body, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			all = append(all, Review{Name: filepath.Base(file), Body: body})
		}
		return all, nil
	}
	return nil, nil
})

// skipped counts the tests that had no captured reviews.
var skipped atomic.Int64

// All returns the synthetic reviews and the captured ones. If there are no captured
// ones, it adds a subtest that is skipped, so that they are missed and not forgotten.
func All(t testing.TB) []Review {
	t.Helper()
	more, err := captured()
	if err != nil {
		t.Fatal(err)
	}
	if test, ok := t.(*testing.T); ok && len(more) == 0 {
		test.Run("captured", func(t *testing.T) {
			skipped.Add(1)
			t.Skip("there are no captured AdmissionReviews; " + Variable + " names their folder")
		})
	}
	return append(Synthetic(t)[:len(Synthetic(t)):len(Synthetic(t))], more...)
}

// Main runs the tests of a package and then writes which reviews they used.
func Main(m *testing.M, w io.Writer) int {
	code := m.Run()
	own, _ := synthetic()
	if more, _ := captured(); len(more) > 0 {
		fmt.Fprintf(w, "corpus: %d synthetic and %d captured reviews\n", len(own), len(more))
	} else {
		fmt.Fprintf(w, "corpus: not here (%s names its folder); %d synthetic reviews used, %d subtests skipped\n", Variable, len(own), skipped.Load())
	}
	return code
}
