// SPDX-License-Identifier: Apache-2.0

//go:build unix

package server

import (
	"net"
	"syscall"
)

// hasUnread reports whether the client has sent bytes that were not read yet.
func hasUnread(conn net.Conn) bool {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	unread := false
	err = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		unread = err == nil && n > 0
	})
	return err == nil && unread
}
