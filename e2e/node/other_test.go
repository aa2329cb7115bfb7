// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package node

import (
	"runtime"
	"testing"
)

func TestMachine(t *testing.T) {
	t.Skipf("all tests on a node: a node needs Linux, and this is %s", runtime.GOOS)
}
