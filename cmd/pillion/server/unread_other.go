// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package server

import "net"

// hasUnread returns false, because only Unix reports this.
func hasUnread(net.Conn) bool { return false }
