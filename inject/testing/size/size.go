// SPDX-License-Identifier: Apache-2.0

// Package size chooses how much a test tries. A property that tries random pods has a quick size, with which
// make test runs it, and a full size for make verify.
package size

import (
	"fmt"
	"os"
	"testing"
)

// Variable is the environment variable that chooses the size: full, or quick (the default).
const Variable = "TEST_SIZE"

// Attribute is the key under which go test -json reports the size of a test, for example "200 of 5000".
const Attribute = "size"

// Choose returns quick, or full if TEST_SIZE is full. The size appears in the output of the test, and as its
// attribute.
func Choose(t testing.TB, quick, full int) int {
	t.Helper()
	n := quick
	if isFull(t) {
		n = full
	}
	t.Attr(Attribute, fmt.Sprintf("%d of %d", n, full))
	return n
}

// SkipUnlessFull skips a test or a subtest that is only for TEST_SIZE=full. The reason says what make test runs in
// its place, for example "TestGrowth covers one template".
func SkipUnlessFull(t testing.TB, reason string) {
	t.Helper()
	if !isFull(t) {
		t.Skipf("only with %s=full (make verify): %s", Variable, reason)
	}
}

func isFull(t testing.TB) bool {
	t.Helper()
	switch value := os.Getenv(Variable); value { //nolint:forbidigo // a variable for tests
	case "", "quick":
		return false
	case "full":
		return true
	default:
		t.Fatalf("%s=%s: the size is quick or full", Variable, value)
		return false
	}
}
