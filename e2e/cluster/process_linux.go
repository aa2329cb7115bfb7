// SPDX-License-Identifier: Apache-2.0

package cluster

import "syscall"

// childAttributes: the child dies with its parent however that ends, and an interrupt from the terminal
// reaches the parent alone, which then stops the children in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
