// SPDX-License-Identifier: Apache-2.0

package main

import (
	"syscall"
	"time"
)

// sleep blocks its thread, which is more precise than Go's timers.
func sleep(d time.Duration) {
	span := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&span, nil)
}
