// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package node

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

// TestMain fails: the tests need Linux to compile.
func TestMain(*testing.M) {
	fmt.Fprintf(os.Stderr, "a node needs Linux, and this is %s\n", runtime.GOOS)
	os.Exit(1)
}
