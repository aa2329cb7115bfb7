// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"testing"
)

// TestBase64 compares appendBase64 with the standard library for many sizes.
func TestBase64(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for size := range 300 {
		src := make([]byte, size)
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		if got, want := appendBase64([]byte("x"), src), base64.StdEncoding.AppendEncode([]byte("x"), src); !bytes.Equal(got, want) {
			t.Errorf("%x: %s, want %s", src, got, want)
		}
	}
}
