// SPDX-License-Identifier: Apache-2.0

package main

import (
	"syscall"
	"time"
)

// sleep keeps its thread, and is late by less than a timer of Go's.
func sleep(d time.Duration) {
	span := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&span, nil)
}
