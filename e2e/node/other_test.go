// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package node

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
)

// TestMain runs TestMachine, whichever tests are selected. The others need Linux to compile.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.run", "^TestMachine$"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestMachine reports why the machine has no node.
func TestMachine(t *testing.T) {
	t.Skipf("all tests on a node: a node needs Linux, and this is %s", runtime.GOOS)
}
