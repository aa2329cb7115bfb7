// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package cpu measures work in tests. Unlike the time that passes, CPU time does not count what other programs
// take.
package cpu

import (
	"syscall"
	"testing"
	"time"
)

// Used returns the CPU time that the process has used, the garbage collector's included.
func Used(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
