// SPDX-License-Identifier: Apache-2.0

package server

// wakeReceiver wakes the goroutine that reads from a channel with room for one value.
func wakeReceiver(sleeper chan<- struct{}) {
	select {
	case sleeper <- struct{}{}:
	default: // a wake-up is pending already
	}
}
